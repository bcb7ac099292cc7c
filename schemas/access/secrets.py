"""Passwords that are not pickled: the unpickling process reads them from its own environment.

Spark distributes the work of its tasks as pickles, in blocks, files and messages that are not meant for secrets.
The consumer's JVM has the passwords in its environment, and so have the Python workers that it starts. On a
cluster the executors must be given the same variables (docs/SECURITY.md).
"""

from __future__ import annotations

import os

from schemas.errors import ConfigError

TARGET_PASSWORD = "TAILRACE_TARGET_PASSWORD"
KAFKA_PASSWORD = "TAILRACE_KAFKA_SASL_PASSWORD"
KAFKA_JAAS_PASSWORD = "TAILRACE_KAFKA_JAAS_PASSWORD"  # the same, quoted for Java's login modules
KAFKA_KEY_PASSWORD = "TAILRACE_KAFKA_SSL_KEY_PASSWORD"


def recall(variable: str) -> str:
    """Read a password that was left out of a pickle. Raises ConfigError TR109 if this process does not have it."""
    try:
        return os.environ[variable]
    except KeyError:
        raise ConfigError(
            "TR109",
            f"an executor of Spark does not have {variable} in its environment",
            hint="on a cluster set it for the executors, since no password is sent to them; see docs/SECURITY.md",
        ) from None
