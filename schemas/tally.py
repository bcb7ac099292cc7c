"""Counts what seldom happens in this process, for its metrics: repeated attempts, and errors that were got over.

Any thread counts. These are no more than counts, so nothing depends on one that is lost between two threads.
"""

from __future__ import annotations

from collections import Counter

#: attempts that were repeated, by what was waited for: upstream, kafka, downstream
RETRIES: Counter[str] = Counter()
#: errors by their code, also those after which the work went on
ERRORS: Counter[str] = Counter()


def retried(waits_for: str, code: str = "") -> None:
    """Count an attempt that is repeated, and the error that it repeats after, if that has a code."""
    RETRIES[waits_for] += 1
    if code:
        ERRORS[code] += 1
