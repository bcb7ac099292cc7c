"""Passwords that are not pickled: the unpickling process takes them from its own environment.

Spark hands the work of its tasks on as pickles, in blocks, files and messages that are not made to hold a secret.
The consumer's JVM has the passwords in its environment, and so have the Python workers that come from it. On a
cluster the executors must be given the same variables (docs/SECURITY.md).
"""

from __future__ import annotations

import os

from schemas.errors import ConfigError

TARGET_PASSWORD = "TAILRACE_TARGET_PASSWORD"
KAFKA_PASSWORD = "TAILRACE_KAFKA_SASL_PASSWORD"
KAFKA_JAAS_PASSWORD = "TAILRACE_KAFKA_JAAS_PASSWORD"  # the same as Java's login modules want it quoted
KAFKA_KEY_PASSWORD = "TAILRACE_KAFKA_SSL_KEY_PASSWORD"


def recall(variable: str) -> str:
    """A password that a pickle left behind. Raises ConfigError TR109 if this process does not have it."""
    try:
        return os.environ[variable]
    except KeyError:
        raise ConfigError(
            "TR109",
            f"an executor of Spark does not have {variable} in its environment",
            hint="on a cluster the executors need it there, since no password is sent to them; see docs/SECURITY.md",
        ) from None
