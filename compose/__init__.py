"""Kafka, MariaDB and MySQL on this machine, for the demo and the tests. It knows nothing of replication."""
