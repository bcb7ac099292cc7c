"""The contracts everything else meets in: wire format, table structures, GTID sets, errors. Pure: no sockets."""
