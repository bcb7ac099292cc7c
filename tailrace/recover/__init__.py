"""Applies the relay log to a downstream when the upstream and Kafka are gone.

The producer's publisher reads and decodes the relay files, and what it commits goes to the consumer's plan,
rendering and applier in this process, instead of to Kafka.
"""

from tailrace.recover.run import Recovery, recover

__all__ = ["Recovery", "recover"]
