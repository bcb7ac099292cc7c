"""Writes the epoch log without an upstream, and reads it in several ways; special Kafka brokers and registries."""
