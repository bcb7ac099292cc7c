"""Writing relay files: bytes, then fsync, then metadata; then readers see the bytes."""
