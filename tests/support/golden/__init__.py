"""The golden files, read and renewed."""
