"""The second opinion: every row of the relay log, decoded by us and by mysql-replication, and compared."""
