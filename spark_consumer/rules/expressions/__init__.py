"""Expression filters: SQL conditions on rows, compiled to Python."""
