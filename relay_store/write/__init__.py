"""Writing the relay log: bytes, then fsync, then metadata; readers see them after that."""
