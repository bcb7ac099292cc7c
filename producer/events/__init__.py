"""Parses binlog bytes into typed events."""
