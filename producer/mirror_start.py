"""Where a mirror goes on, or begins: its own relay log first, then GTIDs, then the configured start."""

from __future__ import annotations

import time
from typing import Literal

from producer.upstream.connect import UpstreamInfo, describe, file_before, set_at_start
from relay_store.layout import RelayPosition, StartPosition, subdir_uuid
from relay_store.writer import RelayWriter
from schemas.binlog import FIRST_POSITION
from schemas.errors import UpstreamError
from schemas.gtid import GtidSet, parse_gtid_set
from schemas.server_url import ServerUrl

Start = Literal["earliest", "current"]

_COMMIT_SECONDS = 3  # for which a transaction may be in the binlog and not yet in the executed set


def open_relay(
    url: ServerUrl, relay: RelayWriter, start: Start
) -> tuple[UpstreamInfo, RelayPosition, GtidSet]:
    """Make the relay log ready for the upstream at `url`.

    Returns:
        What the upstream says of itself, where the next event goes, and the GTID set of what is here.

    Raises UpstreamError: TR204 purged, TR206 no binlog, TR207 not the server that this relay log is of.
    """
    info = describe(url)
    if not info.log_bin:
        raise UpstreamError("TR206", f"{url} writes no binlog", hint="set log_bin and restart the server")
    try:
        executed = parse_gtid_set(relay.executed_gtids, info.flavor)
    except ValueError as error:
        raise _other_server(f"{url} is a {info.flavor} server, the relay log is not: {error}") from error
    _refuse_errant(url, info, executed)
    if relay.position is None or subdir_uuid(relay.subdir) != info.server_uuid:
        _begin_file(url, info, relay, executed, start)
    position = relay.position
    assert position is not None
    return info, position, executed


def _begin_file(
    url: ServerUrl, info: UpstreamInfo, relay: RelayWriter, executed: GtidSet, start: Start
) -> None:
    """Begin with a file's first byte: then every relay file is whole, whatever the start."""
    if executed:
        file = file_before(url, info, executed)
    elif relay.position is not None:
        raise _other_server(f"{url} is another server than the relay log is of, and neither has GTIDs")
    elif start == "current":
        file = info.file
        relay.write_start(StartPosition(file, info.position, str(info.executed)))
    else:
        file = info.files[0][0]
        relay.write_start(StartPosition(file, FIRST_POSITION, str(set_at_start(url, info, file))))
    if not relay.subdir or relay.position is not None or subdir_uuid(relay.subdir) != info.server_uuid:
        relay.open_subdir(info.server_uuid)
    relay.rotate(file)


def _refuse_errant(url: ServerUrl, info: UpstreamInfo, executed: GtidSet) -> None:
    """An upstream that lacks what we have is another history: going on would mix the two."""
    deadline = time.monotonic() + _COMMIT_SECONDS
    while not info.executed.contains(executed):
        if time.monotonic() > deadline:
            lacking = executed.minus(info.executed)
            raise _other_server(f"{url} lacks transactions that the relay log has: {lacking}")
        time.sleep(0.2)
        info = describe(url)


def _other_server(what: str) -> UpstreamError:
    hint = "point source.url to a server of the same history, or move the relay directory away"
    return UpstreamError("TR207", what, hint=hint)
