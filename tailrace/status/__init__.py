"""What ``tailrace status`` tells: where upstream, relay log, Kafka and each channel are."""
