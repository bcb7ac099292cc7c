"""The producing side: upstream binlog → relay files (mirror), relay files → epochs in Kafka (publish)."""
