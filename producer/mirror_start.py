"""Where a mirror goes on, or begins: its own relay log first, then GTIDs, then the configured start."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import structlog

from producer.upstream.connect import UpstreamInfo, describe, file_before, purged, set_at_start
from relay_store.discard import discard_behind
from relay_store.layout import Owner, RelayPosition, StartPosition, subdir_uuid
from relay_store.writer import RelayWriter
from schemas.binlog import FIRST_POSITION
from schemas.epoch import EpochCommitted
from schemas.errors import ConfigError, RelayError, UpstreamError
from schemas.gtid import GtidSet, parse_gtid_set
from schemas.server_url import ServerUrl


@dataclass(frozen=True)
class Start:
    """Where an empty relay log begins; the first of these that is given.

    Attributes:
        gtid_set: behind these transactions, if the upstream writes GTIDs.
        file: with this binlog file.
        place: with the oldest binlog file that the upstream has, or with what comes from now on. Either way files
            are kept from their first byte; the publisher is told where to begin.
    """

    gtid_set: str = ""
    file: str = ""
    place: Literal["earliest", "current"] = "earliest"


EARLIEST = Start()
_log = structlog.get_logger()

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
    refuse_errant(url, info, executed, "the relay log")
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
    else:
        first = _first_position(url, info, start)
        relay.write_start(first)
        file = first.file
    if not relay.subdir or relay.position is not None or subdir_uuid(relay.subdir) != info.server_uuid:
        relay.open_subdir(info.server_uuid)
    relay.rotate(file)


def _first_position(url: ServerUrl, info: UpstreamInfo, start: Start) -> StartPosition:
    if start.gtid_set and not info.has_gtids and not start.file:
        hint = "set relay.relay-binlog-name instead, or gtid_mode upstream"
        raise ConfigError("TR106", f"relay.relay-binlog-gtid is set, but {url} writes no GTIDs", hint=hint)
    if start.gtid_set and info.has_gtids:
        try:
            wanted = parse_gtid_set(start.gtid_set, info.flavor)
        except ValueError as error:
            raise ConfigError("TR106", f"relay.relay-binlog-gtid is no GTID set of {url}: {error}") from error
        refuse_errant(url, info, wanted, "relay.relay-binlog-gtid")
        return StartPosition(file_before(url, info, wanted), FIRST_POSITION, str(wanted))
    if start.file:
        if start.file not in [name for name, _ in info.files]:
            raise purged(url, info, f"the binlog file {start.file}")
        file = start.file
    elif start.place == "current":
        return StartPosition(info.file, info.position, str(info.executed))
    else:
        file = info.files[0][0]
    return StartPosition(file, FIRST_POSITION, str(set_at_start(url, info, file)))


def refuse_errant(url: ServerUrl, info: UpstreamInfo, executed: GtidSet, where: str) -> None:
    """An upstream that lacks what we have is another history: going on would mix the two."""
    deadline = time.monotonic() + _COMMIT_SECONDS
    while not info.executed.contains(executed):
        if time.monotonic() > deadline:
            lacking = executed.minus(info.executed)
            raise _other_server(f"{url} lacks transactions that {where} has: {lacking}")
        time.sleep(0.2)
        info = describe(url)


def check_log(root: Path, owner: Owner, last: EpochCommitted | None) -> None:
    """Whether the log in Kafka, given by its last epoch, is the one that this relay log was published to.

    Raises RelayError TR312.
    """
    if not owner.log_id or (last is not None and last.log_id == owner.log_id):
        return
    there = f"the log {last.log_id}" if last is not None else "no epoch"
    raise RelayError(
        "TR312",
        f"the relay log in {root} was published to the log {owner.log_id}, and the topics of {owner.prefix} hold"
        f" {there}",
        hint="check [kafka] bootstrap-servers; if the topics were deleted or lost, docs/RECOVERY.md says how to begin"
        " anew (`tailrace reset`)",
    )


def check_history(url: ServerUrl, info: UpstreamInfo, last: EpochCommitted, where: str) -> None:
    """Whether a log may go on with this upstream. Raises UpstreamError TR207."""
    try:
        executed = parse_gtid_set(last.executed_gtids, info.flavor)
    except ValueError as error:
        raise _other_server(f"{url} is a {info.flavor} server, and not {where}: {error}") from error
    if not executed and not info.has_gtids and last.source_id != info.server_uuid:
        raise _other_server(f"{url} is another server than {where} is of, and neither has GTIDs")
    refuse_errant(url, info, executed, where)


def discard_unpublished(root: Path, info: UpstreamInfo, last: EpochCommitted) -> None:
    """Cut the relay log back to the end of the last epoch, if the upstream still has what follows."""
    here = RelayPosition(last.relay_dir, last.relay_file, last.relay_pos)
    if subdir_uuid(here.subdir) != info.server_uuid or last.source_file not in [
        name for name, _ in info.files
    ]:
        reason = "the upstream does not have what follows the last epoch"
        _log.warning("relay_log_recovery_left_out", position=str(here), reason=reason)
    elif size := discard_behind(root, here, last.executed_gtids):
        _log.info("relay_log_recovery", position=str(here), bytes=size)


def _other_server(what: str) -> UpstreamError:
    hint = "point source.url to a server of the same history, or move the relay directory away"
    return UpstreamError("TR207", what, hint=hint)
