"""Reads and renews the golden files."""
