"""What ``tailrace status`` shows: the positions of upstream, relay log, Kafka and each channel."""
