"""Deleting relay files that no reader needs any more."""
