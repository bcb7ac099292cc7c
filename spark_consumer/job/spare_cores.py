"""Whether this machine has cores for Spark beside those that the consumer's own process needs."""

from __future__ import annotations

import os

_ENOUGH = 4


def has_spare_cores() -> bool:
    """Return whether Spark's start and local executors take no core from what is being applied."""
    return len(os.sched_getaffinity(0)) >= _ENOUGH
