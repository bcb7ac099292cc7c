"""A slice in one transaction with its position."""
