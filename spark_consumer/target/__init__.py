"""What the downstream is: its connections, tables and rights."""
