"""Finds where the upstream's rows come from, which each epoch records, and whether they are this pipeline's own."""

from __future__ import annotations

import time
from collections.abc import Callable

#: ids of the upstream, and of the logs and servers whose rows other pipelines write into it, given the own log's id;
#: none while the upstream does not answer; raises UpstreamError if the own log is among them
Look = Callable[[str], tuple[str, ...]]
_EVERY = 2.0  # seconds


class Origins:
    """Read at the start, and periodically while other pipelines write to the upstream.

    Attributes:
        ids: what epochs tell.
    """

    def __init__(self, look: Look) -> None:
        self._look, self._log_id = look, ""
        self._met, self._next = False, 0.0
        self.ids: tuple[str, ...] = ()

    def begin(self, log_id: str) -> None:
        """Look, before the first epoch of this run. Raises UpstreamError."""
        self._log_id = log_id
        self.ids = self._look(log_id) or self.ids

    def meet(self) -> None:
        """Note that another pipeline writes to the upstream: read the ids now and periodically."""
        self._met, self._next = True, 0.0
        self.keep_up()

    def keep_up(self) -> None:
        """Look, if it is time to. Raises UpstreamError."""
        if self._met and time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY
            self.ids = self._look(self._log_id) or self.ids
