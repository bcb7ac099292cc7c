"""Reads the text of a statement: its tokens, its kind, its names and its clauses."""
