"""Deleting what nobody needs any more."""
