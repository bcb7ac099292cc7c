"""Reads the first events behind a position of the upstream's binlog, with a dump of its own."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import closing

from producer.upstream.connect import UpstreamInfo
from producer.upstream.dump import DumpStream
from producer.upstream.packets import UNKNOWN, ServerSaid, slow_packet
from schemas.access.server_url import ServerUrl
from schemas.binlog.framing import ANONYMOUS_GTID, GTID, GTID_TAGGED, MARIADB_GTID
from schemas.errors import UpstreamError

#: types of the event that a transaction begins with
GTID_EVENTS = frozenset({GTID, ANONYMOUS_GTID, GTID_TAGGED, MARIADB_GTID})
_WAIT = 0.5  # seconds
_PATIENCE = 10.0  # seconds for all of it: what is looked for stands at the front
_END_OF_BINLOG = 0


def events_from(url: ServerUrl, info: UpstreamInfo, file: str, position: int) -> Iterator[bytes]:
    """The events from a place of the upstream's binlog to its end, those that the dump makes up among them.

    Raises UpstreamError.
    """
    events: list[bytes] = []
    ended = False

    def take(data: bytes) -> tuple[int, int]:
        nonlocal ended
        try:
            event, used, need = slow_packet(data)
        except ServerSaid as said:
            if said.number != _END_OF_BINLOG:
                raise
            ended = True
            return len(data), UNKNOWN
        if event:
            events.append(event)
        return used, need

    # A number that no replica has by chance: the server would end the dump of one that had it.
    server_id = random.randint(1 << 31, (1 << 32) - 1)
    deadline = time.monotonic() + _PATIENCE
    with closing(DumpStream.open(url, info, file, position, server_id, follow=False)) as stream:
        while not ended:
            if time.monotonic() > deadline:
                what = f"{url} does not come to the end of its binlog from {file}:{position} on"
                raise UpstreamError("TR201", what, retryable=True)
            stream.read(_WAIT, take)
            yield from events
            events.clear()
