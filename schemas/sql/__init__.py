"""Rows of the log as SQL text."""
