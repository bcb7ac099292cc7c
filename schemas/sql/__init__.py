"""Converts rows of the log to SQL text."""
