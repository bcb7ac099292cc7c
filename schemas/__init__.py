"""What producer and consumer must agree on: records, table structures, GTID sets, types, errors."""
