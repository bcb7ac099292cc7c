"""Writing the relay log: bytes, then fsync, then metadata; only then readers see the bytes."""
