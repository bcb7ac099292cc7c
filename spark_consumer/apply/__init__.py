"""Applies each slice in one transaction with the position."""
