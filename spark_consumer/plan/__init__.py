"""What a slice does to each table, and how."""
