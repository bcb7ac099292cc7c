"""Finds where a mirror continues or starts: its relay log, then GTIDs, then the configured start."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from producer.settings import Start
from producer.upstream.connect import UpstreamInfo, describe, purged, set_at_start
from producer.upstream.history import file_before, missing_before, older_table
from relay_store.layout.directory import Owner, RelayPosition, StartPosition, file_number, subdir_uuid
from relay_store.write.discard import discard_after
from relay_store.write.writer import RelayWriter
from schemas.access.server_url import ServerUrl
from schemas.binlog.framing import FIRST_POSITION
from schemas.errors import ConfigError, RelayError, UpstreamError
from schemas.gtid.sets import GtidSet, parse_gtid_set
from schemas.tables import TableFilter
from schemas.wire.epoch import COPY, ORIGIN, EpochCommitted


@dataclass(frozen=True)
class MirrorStart:
    """Where an empty relay log begins; the first of these that is given.

    Attributes:
        gtid_set: behind these transactions, if the upstream writes GTIDs.
        file: with this binlog file.
        published: the last epoch of the log; with the oldest file that the upstream has, which must reach back to it.
        position: at the oldest binlog or at the current position. Files are always stored from their first byte;
            the publisher gets the start position.
        tables: those that are replicated.
    """

    gtid_set: str = ""
    file: str = ""
    position: Start = "earliest"
    published: EpochCommitted | None = None
    tables: TableFilter = field(default_factory=TableFilter)


EARLIEST = MirrorStart()
_log = structlog.get_logger()

_COMMIT_SECONDS = 3  # for which a transaction may be in the binlog and not yet in the executed set


def open_relay(
    url: ServerUrl, relay: RelayWriter, start: MirrorStart
) -> tuple[UpstreamInfo, RelayPosition, GtidSet]:
    """Make the relay log ready for the upstream at `url`.

    Returns:
        Server information, the position of the next event, and the GTID set of the relay log.

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
    url: ServerUrl, info: UpstreamInfo, relay: RelayWriter, executed: GtidSet, start: MirrorStart
) -> None:
    """Begin with a file's first byte: then every relay file is whole, whatever the start."""
    first: UpstreamStart | None = None
    if not executed and relay.position is None:
        first = _first_start(url, info, start)
        file = first.file
    elif executed and info.has_gtids:
        file = file_before(url, info, executed)
    else:
        raise _other_server(
            f"{url} is a different server than the relay log's, and GTIDs are not available on both"
        )
    if not relay.subdir or relay.position is not None or subdir_uuid(relay.subdir) != info.server_uuid:
        relay.open_subdir(info.server_uuid)
    if first is not None:
        relay.write_start(StartPosition(file, first.pos, first.gtid_set, relay.subdir, first.log_begins))
    relay.rotate(file)


@dataclass(frozen=True)
class UpstreamStart:
    """Where a relay log starts upstream; the fields are those of ``StartPosition``."""

    file: str
    pos: int
    gtid_set: str
    log_begins: str


def _first_start(url: ServerUrl, info: UpstreamInfo, start: MirrorStart) -> UpstreamStart:
    chosen = choose_start(url, info, start)
    if start.published is not None:
        return replace(chosen, log_begins="")
    if chosen.log_begins not in (ORIGIN, COPY):
        _log.warning(
            "history_not_known",
            upstream=str(url),
            begin=f"{chosen.file}:{chosen.pos}",
            behind=chosen.gtid_set,
            reason=chosen.log_begins,
            hint="what was written before is not in the log: a target needs a copy of exactly that, and nothing here"
            " can tell whether it has one; `tailrace consume --from gtid:SET` compares a copy's GTID set with the log",
        )
    return chosen


def choose_start(url: ServerUrl, info: UpstreamInfo, start: MirrorStart) -> UpstreamStart:
    """Where a relay log would begin. Raises ConfigError TR106, UpstreamError TR204 or TR207."""
    if start.gtid_set and not info.has_gtids and not start.file:
        hint = "set relay.relay-binlog-name instead, or gtid_mode upstream"
        raise ConfigError("TR106", f"relay.relay-binlog-gtid is set, but {url} writes no GTIDs", hint=hint)
    if start.gtid_set and info.has_gtids:
        try:
            wanted = parse_gtid_set(start.gtid_set, info.flavor)
        except ValueError as error:
            raise ConfigError("TR106", f"relay.relay-binlog-gtid is no GTID set of {url}: {error}") from error
        refuse_errant(url, info, wanted, "relay.relay-binlog-gtid")
        file = file_before(url, info, wanted)
        return UpstreamStart(file, FIRST_POSITION, str(wanted), "relay.relay-binlog-gtid")
    if start.file:
        if start.file not in [name for name, _ in info.files]:
            raise purged(url, info, f"the binlog file {start.file}")
        before = set_at_start(url, info, start.file)
        return UpstreamStart(start.file, FIRST_POSITION, str(before), "relay.relay-binlog-name")
    if start.published is not None:
        return _behind_epochs(url, info, start.published)
    if start.position in ("current", COPY):
        # A transaction may be in the binlog and not yet in the executed set, so the set decides where there is one.
        exact = info.flavor == "mysql" and info.has_gtids
        file, pos = (
            (file_before(url, info, info.executed), FIRST_POSITION) if exact else (info.file, info.position)
        )
        begins = COPY if start.position == COPY else "source.start is current"
        return UpstreamStart(file, pos, str(info.executed), begins)
    return _earliest(url, info, start.tables)


def _earliest(url: ServerUrl, info: UpstreamInfo, tables: TableFilter) -> UpstreamStart:
    """The upstream's own beginning. Raises UpstreamError TR204 if it no longer has that."""
    oldest = info.files[0][0]
    if missing := missing_before(url, info):
        raise UpstreamError(
            "TR204",
            f"{url} no longer has {missing}; its earliest binlog file is {oldest}, and source.start is earliest",
            hint="what is missing can be had from a copy of the tables only: begin the log before the copy is made,"
            ' with source.start = "current", or behind what it holds, with relay.relay-binlog-gtid, and start the'
            f' channel with `--from gtid:SET`. relay.relay-binlog-name = "{oldest}" begins there, whatever is missing',
        )
    if older := older_table(url, info, tables):
        _log.warning("table_older_than_binlogs", table=older)
        return UpstreamStart(oldest, FIRST_POSITION, "", "the first binlog file is younger than the tables")
    return UpstreamStart(oldest, FIRST_POSITION, "", ORIGIN)


def _behind_epochs(url: ServerUrl, info: UpstreamInfo, last: EpochCommitted) -> UpstreamStart:
    """The oldest file that the upstream has, which holds all that the last epoch lacks. Raises UpstreamError TR204."""
    oldest = info.files[0][0]
    before = set_at_start(url, info, oldest)
    executed = parse_gtid_set(last.executed_gtids, info.flavor)
    if executed and (last.last_gtid is not None or not last.transactions):
        file_before(url, info, executed)
    elif last.source_id == info.server_uuid and last.source_file not in [name for name, _ in info.files]:
        raise purged(url, info, f"the binlog file {last.source_file}")
    return UpstreamStart(oldest, FIRST_POSITION, str(before), "")


def refuse_errant(url: ServerUrl, info: UpstreamInfo, executed: GtidSet, where: str) -> None:
    """Raise UpstreamError if the upstream lacks transactions that we have: its history has diverged."""
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
    # Without GTIDs only the position tells: a binlog that ends before the last epoch does is another history.
    here, end = (file_number(last.source_file), last.source_pos), (file_number(info.file), info.position)
    if not info.has_gtids and last.source_id == info.server_uuid and here > end:
        raise _other_server(
            f"the binlog of {url} ends at {info.file}:{info.position}, and {where} is at {last.source_file}:"
            f"{last.source_pos}: the binlog was reset or truncated"
        )


def discard_unpublished(root: Path, info: UpstreamInfo, last: EpochCommitted) -> None:
    """Cut the relay log back to the end of the last epoch, if the upstream still has what follows."""
    here = RelayPosition(last.relay_dir, last.relay_file, last.relay_pos)
    if subdir_uuid(here.subdir) != info.server_uuid or last.source_file not in [
        name for name, _ in info.files
    ]:
        reason = "the upstream does not have what follows the last epoch"
        _log.warning("relay_log_recovery_left_out", position=str(here), reason=reason)
    elif size := discard_after(root, here, last.executed_gtids):
        _log.info("relay_log_recovery", position=str(here), bytes=size)


def _other_server(what: str) -> UpstreamError:
    hint = "set source.url to a server with the same history, or move the relay directory away"
    return UpstreamError("TR207", what, hint=hint)
