"""Kafka, MariaDB and MySQL on this machine, for the demo and the tests. It does not depend on replication."""
