"""Translates the upstream's DDL into the statements that the downstream runs."""
