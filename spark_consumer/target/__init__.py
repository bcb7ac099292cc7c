"""The downstream: its connections, tables and privileges."""
