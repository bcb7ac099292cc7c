"""Where epochs are committed: the topics, one Kafka transaction per epoch, a schema registry."""
