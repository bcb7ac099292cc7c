"""Checking the relay log: sizes, checksums, GTIDs, the sequence of files."""
