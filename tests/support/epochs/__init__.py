"""The epoch log: written without an upstream, read back, and by strangers; Kafka beside it."""
