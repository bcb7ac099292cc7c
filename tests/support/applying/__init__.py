"""Runs the consumer or its parts in the test's process, and describes downstream tables."""
