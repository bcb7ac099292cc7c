"""Compiled code that makes the values of prepared statements from rows."""
