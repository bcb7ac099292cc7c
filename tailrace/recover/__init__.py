"""Applies the relay log to a downstream when the upstream and Kafka are lost.

The producer's publisher reads and decodes the relay files. Its epochs are not written to Kafka, but applied by the
consumer's sink in the same process.
"""
