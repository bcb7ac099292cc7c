"""Plans how the rows of a slice become statements, for each table."""
