"""Makes, reads, tracks, damages and mirrors binlog events and files."""
