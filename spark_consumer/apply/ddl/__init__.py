"""Runs each DDL exactly once, also after an interruption."""
