"""The consuming side: epochs in Kafka → slices → transactions on the downstream, as a Spark job."""
