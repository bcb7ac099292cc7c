"""Applying one slice through several connections: which rows belong together, and how it still happens once."""
