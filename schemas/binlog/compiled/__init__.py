"""Looks at many events at once: compiled."""
