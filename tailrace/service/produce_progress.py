"""Shows the producer's progress: the published position and the upstream's binlog files."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace

from producer.run import ProducerProgress
from producer.upstream.connect import describe
from relay_store.layout.directory import file_number
from schemas.access.server_url import ServerUrl
from schemas.errors import TailraceError
from tailrace.service.progress import Snapshot

_LOOK_EVERY_S = 5.0
#: seconds that due epochs may stand still: a Kafka that is away is waited for up to ten minutes
STANDSTILL_S = 1_200.0


def is_publishing_due(state: ProducerProgress, now: float) -> bool:
    """Return whether the relay log has something to publish, and no server, copy or operator is waited for.

    Args:
        now: seconds since 1970.
    """
    copy = state.copy()
    if (copy is not None and copy.running) or not state.mirror.connected or state.publish.paused:
        return False
    return state.publish.lag_s(state.relay.tail.position, now) != 0.0


class UpstreamBacklog:
    """Reads the upstream's binlog files periodically. If that fails, only the time left is unknown."""

    def __init__(self, source: ServerUrl) -> None:
        self._source = source
        self._sizes: dict[int, int] = {}
        self._next_look = 0.0

    @property
    def end(self) -> tuple[int, int] | None:
        """Number and size of the upstream's last binlog file, as they were seen last; None if unknown."""
        return max(self._sizes.items(), default=None)

    def snapshot(self, state: ProducerProgress) -> Snapshot:
        """Return the progress to show."""
        since = state.publish.paused
        held = None if since is None else f"since {since}, with `tailrace pause publishing`"
        return replace(self._snapshot(state), paused=state.mirror.paused or held)

    def _snapshot(self, state: ProducerProgress) -> Snapshot:
        published = state.publish
        lag = published.lag_s(state.relay.tail.position, time.time())
        if lag == 0.0 and not state.mirror.connected:
            lag = None  # newer transactions of the upstream are unknown
        reached = published.position
        if reached is None:
            return Snapshot(published.rows, "", lag)
        self._look()
        number = file_number(reached.file)
        done = sum(size for n, size in self._sizes.items() if n < number) + reached.pos
        remaining = sum(size for n, size in self._sizes.items() if n >= number) - reached.pos
        position = f"epoch {published.epoch}, {reached.file}:{reached.pos}"
        if published.gtid:
            position += f", gtid {published.gtid}"
        known = float(max(0, remaining)) if number in self._sizes else None
        return Snapshot(published.rows, position, lag, float(done), known)

    def _look(self) -> None:
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _LOOK_EVERY_S
        with suppress(TailraceError):
            self._sizes = {file_number(name): size for name, size in describe(self._source).files}
