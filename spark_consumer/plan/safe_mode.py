"""Safe mode: applying changes that may have been applied before, by a copy or another replicator.

The position makes every slice happen once, so no restart needs it. It is for a channel that starts or is rewound to a
position before its downstream's state, so rows may already exist or be deleted.

In tables with a key, INSERT and UPDATE become DELETE + INSERT, and a DELETE need not find its row. In tables that are
applied in order, the row with that key is changed, and inserted if there is none (``spark_consumer.rows.ordered``).
Rows are found by their key only, never by REPLACE or ON DUPLICATE KEY UPDATE, which would remove or change another row
with the same secondary unique value. Such a
row is an error. Tables without a key have no row identity and stay strict.
"""

from __future__ import annotations

import time


class SafeMode:
    """Safe mode: always on, or on for some seconds after the start."""

    def __init__(self, always: bool, duration: float, now: float | None = None) -> None:
        self._always = always
        self._until = (time.monotonic() if now is None else now) + duration

    def active(self, now: float) -> bool:
        """Whether it is on at a time of the monotonic clock, in seconds."""
        return self._always or now < self._until
