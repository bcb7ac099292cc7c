"""Character sets and collations, by the ids in the binlog."""
