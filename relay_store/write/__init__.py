"""Writing it: bytes, fsync, metadata, and only then readers."""
