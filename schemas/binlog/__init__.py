"""The binlog's framing: event headers, checksums, transaction groups."""
