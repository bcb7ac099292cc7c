"""Character sets and collations by the ids that the servers log."""
