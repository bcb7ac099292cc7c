"""Whether the binlogs that an upstream still has reach back far enough."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from typing import Any

from producer.upstream.connect import (
    UpstreamInfo,
    connected,
    purged,
    query,
    set_at_start,
    upstream_errors,
)
from producer.upstream.dump import DumpStream
from producer.upstream.packets import UNKNOWN, ServerSaid, slow_packet
from relay_store.layout.directory import file_number
from schemas.access.server_url import ServerUrl
from schemas.binlog import framing
from schemas.binlog.framing import ANONYMOUS_GTID, FIRST_POSITION, GTID, GTID_TAGGED, MARIADB_GTID
from schemas.errors import UpstreamError
from schemas.gtid.sets import GtidSet, MariadbGtid, MariadbGtidSet
from schemas.tables import TableFilter

_MARIADB_GTID = re.compile(r"GTID (\d+)-(\d+)-(\d+)")
# Types of the event that a transaction begins with.
_GTID_EVENTS = frozenset({GTID, ANONYMOUS_GTID, GTID_TAGGED, MARIADB_GTID})
_WAIT = 0.5  # seconds
_PATIENCE = 10.0  # seconds for all of it: what is looked for stands at the front
_END_OF_BINLOG = 0
_HEAD = 20  # events among which a file's first transaction begins, if it has one
_CREATED = """
SELECT table_schema, table_name, UNIX_TIMESTAMP(create_time) FROM information_schema.tables
WHERE table_type = 'BASE TABLE' AND create_time IS NOT NULL ORDER BY create_time
"""


def missing_before(url: ServerUrl, info: UpstreamInfo) -> str:
    """Describe transactions older than the oldest binlog file, or in none; empty if there are none.

    A server numbers its files from 1, and each says what was executed before it.

    Raises UpstreamError.
    """
    oldest = info.files[0][0]
    if lacking := set_at_start(url, info, oldest).union(info.purged):
        return f"these transactions: {lacking}"
    if (number := file_number(oldest)) != 1:
        return f"its first binlog files, those before number {number}"
    if gap := mariadb_gap(url, info, oldest, MariadbGtidSet()):
        return f"these transactions: up to {gap}"
    return ""


def file_before(url: ServerUrl, info: UpstreamInfo, executed: GtidSet) -> str:
    """The newest binlog file that begins before anything which `executed` lacks.

    Raises UpstreamError TR204 when the upstream has purged it.
    """
    if missing := info.purged.minus(executed):
        raise purged(url, info, f"these transactions: {missing}")
    for name, _ in reversed(info.files):
        missing = set_at_start(url, info, name).minus(executed)
        if not missing:
            break
    else:
        raise purged(url, info, f"these transactions: {missing}")
    if gap := mariadb_gap(url, info, name, executed):
        raise purged(url, info, f"these transactions: up to {gap}")
    return name


def mariadb_gap(url: ServerUrl, info: UpstreamInfo, file: str, executed: GtidSet) -> str:
    """The last transaction that is neither in ``executed`` nor in a MariaDB's binlogs, from a file on; empty if none.

    A MariaDB server restored from a copy starts its binlog after the copy's transactions without recording
    them. Sequence numbers grow by one, so the first one shows the gap.

    Raises UpstreamError.
    """
    if info.flavor != "mariadb":
        return ""
    assert isinstance(executed, MariadbGtidSet)
    before = set_at_start(url, info, file)
    assert isinstance(before, MariadbGtidSet)
    first = _first_transaction(url, info, file)
    if first is None:
        # Nothing was logged; what it got from others it may have without a binlog of its own.
        return str(_slave_position(url).minus(executed.union(before)))
    domain, gtid = first
    known = executed.domains.get(domain, MariadbGtid(0, 0))
    # What the file says of a domain is true, whatever numbers its transactions were given.
    is_gap = domain not in before.domains and gtid.sequence > known.sequence + 1
    return f"{domain}-{gtid.server_id}-{gtid.sequence - 1}" if is_gap else ""


def _first_transaction(url: ServerUrl, info: UpstreamInfo, file: str) -> tuple[int, MariadbGtid] | None:
    """Domain and GTID of the first transaction from a file's begin on; None if there is none yet."""
    names = [name for name, _ in info.files]
    for name in names[names.index(file) :]:
        for row in _rows(url, f"SHOW BINLOG EVENTS IN %s LIMIT {_HEAD}", (name,)):
            if row[2] == "Gtid" and (found := _MARIADB_GTID.search(str(row[5]))):
                domain, server, sequence = map(int, found.groups())
                return domain, MariadbGtid(server, sequence)
    return None


def _slave_position(url: ServerUrl) -> MariadbGtidSet:
    rows = _rows(url, "SELECT @@global.gtid_slave_pos")
    with upstream_errors(url):
        return MariadbGtidSet.parse(str(rows[0][0] or "") if rows else "")


def _rows(url: ServerUrl, sql: str, arguments: Sequence[Any] = ()) -> Sequence[tuple[Any, ...]]:
    with connected(url, init_command="SET time_zone = '+00:00'") as connection:
        return query(connection, sql, arguments)


def older_table(url: ServerUrl, info: UpstreamInfo, tables: TableFilter) -> str:
    """A replicated table that may have been made before the binlogs begin, in words; empty if there is none.

    Such tables were made while the binlog was off, or it was reset since. ALTER TABLE may give a table another time,
    and the account may not see it, so this finds not all of them.

    Raises UpstreamError.
    """
    found = next((row for row in _rows(url, _CREATED) if tables.allows(str(row[0]), str(row[1]))), None)
    if found is None:
        return ""
    with upstream_errors(url):
        db, table, created = found
        began = _began(url, info)
        if began is not None and float(created) >= began:
            return ""
        times = [_moment(float(created)), "an unknown time" if began is None else _moment(began)]
    return f"{db}.{table} was made at {times[0]}, and the first binlog file at {times[1]}"


def _began(url: ServerUrl, info: UpstreamInfo) -> int | None:
    """When the oldest binlog file was begun, seconds since 1970; None if the server does not say."""
    with suppress(UpstreamError):
        for event in _events_from(url, info, info.files[0][0], FIRST_POSITION):
            header = framing.header(event)
            if header.type == framing.FORMAT_DESCRIPTION:
                return header.timestamp or None
    return None


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def first_commit_after(url: ServerUrl, info: UpstreamInfo, file: str, position: int) -> int | None:
    """When the first transaction after a position was committed, ms since 1970; None if there is none.

    Raises UpstreamError.
    """
    for event in _events_from(url, info, file, position):
        if event[4] in _GTID_EVENTS:
            return framing.commit_ms(event)
    return None


def _events_from(url: ServerUrl, info: UpstreamInfo, file: str, position: int) -> Iterator[bytes]:
    """The events from a position of the upstream's binlog to its end, those that the dump makes up among them.

    Raises UpstreamError.
    """
    events: list[bytes] = []
    ended = False

    def receive(data: bytes) -> tuple[int, int]:
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
            stream.read(_WAIT, receive)
            yield from events
            events.clear()
