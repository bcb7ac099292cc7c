"""Reads the positions of upstream, relay log, Kafka and channels for ``tailrace status``."""
