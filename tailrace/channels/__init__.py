"""Lists, removes and resets channels, and records an operator's decisions about stopped ones."""
