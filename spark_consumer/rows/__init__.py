"""Reads, compacts and renders rows on the executors."""
