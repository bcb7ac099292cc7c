"""Finds where the upstream's rows come from, which each epoch records, and whether they are this pipeline's own."""

from __future__ import annotations

import time
from collections.abc import Callable

#: ids of the upstream, and of the logs and servers whose rows other pipelines write into it, given the own log's id;
#: none while the upstream does not answer; raises UpstreamError if the own log is among them
ReadOrigins = Callable[[str], tuple[str, ...]]
_EVERY = 2.0  # seconds


class Origins:
    """Read at the start, and periodically while other pipelines write to the upstream.

    Attributes:
        ids: what the records of epochs contain.
    """

    def __init__(self, read: ReadOrigins) -> None:
        self._read, self._log_id = read, ""
        self._others_write, self._next_read = False, 0.0
        self.ids: tuple[str, ...] = ()

    def begin(self, log_id: str) -> None:
        """Read the ids, before the first epoch of this run. Raises UpstreamError."""
        self._log_id = log_id
        self.ids = self._read(log_id) or self.ids

    def note_other_pipeline(self) -> None:
        """Note that another pipeline writes to the upstream: read the ids now and periodically."""
        self._others_write, self._next_read = True, 0.0
        self.refresh_if_due()

    def refresh_if_due(self) -> None:
        """Read the ids again, if it is time to. Raises UpstreamError."""
        if self._others_write and time.monotonic() >= self._next_read:
            self._next_read = time.monotonic() + _EVERY
            self.ids = self._read(self._log_id) or self.ids
