"""Bytes of the binlog to events that say what they mean."""
