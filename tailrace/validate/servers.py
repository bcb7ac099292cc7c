"""Reads the two servers for the protocol: each in one snapshot, at positions of the upstream that can be ordered."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Any, TypeVar

import pymysql
from pymysql.connections import Connection
from pymysql.constants import FIELD_TYPE
from pymysql.cursors import Cursor

from schemas.access.server_url import ServerUrl
from schemas.errors import DownstreamError, UpstreamError
from schemas.tables import QualifiedName
from spark_consumer.apply.tables import position_store
from spark_consumer.apply.tables.position_store import ChannelRow
from spark_consumer.apply.tables.validation import ProvedPosition
from spark_consumer.ddl import online_tables
from spark_consumer.epochs.position import parse_like
from spark_consumer.rules.channel import ChannelKey
from tailrace.servers import Side, is_mariadb, message
from tailrace.validate.chunks import connect_raw
from tailrace.validate.history import History
from tailrace.validate.protocol import Key, Rows
from tailrace.validate.tables import StructureChanged, TablePair, TableReader

T = TypeVar("T")

_WAIT = 0.05  # seconds between two looks at a position
_IDLE = 0.5  # seconds in which an upstream that rests writes nothing
_SNAPSHOT = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
# No such table, no such column, and a snapshot older than the table's last DDL.
_CHANGED = {1146, 1054, 1412}
_INTEGERS = {FIELD_TYPE.TINY, FIELD_TYPE.SHORT, FIELD_TYPE.LONG, FIELD_TYPE.LONGLONG, FIELD_TYPE.INT24}
_DECIMALS = {FIELD_TYPE.DECIMAL, FIELD_TYPE.NEWDECIMAL, FIELD_TYPE.FLOAT, FIELD_TYPE.DOUBLE}


@dataclass(frozen=True)
class ChannelPosition:
    """The position of the channel in one snapshot of the downstream.

    Attributes:
        epoch: the last epoch that is applied completely.
        offset: its offset in the epochs topic.
        last: the last epoch of which rows may be there; None if it is not known.
        hidden: upstream tables that an online schema change builds, and that the downstream does not have.
        executed: the GTID set of everything that is applied.
        file, pos: the upstream's binlog position up to which everything is applied; None before the first epoch.
        log_id: the id of the log.
        is_new: whether tables lack rows, because the channel began with a copy for new channels that has not ended.
    """

    epoch: int
    offset: int
    last: int | None
    hidden: frozenset[QualifiedName]
    executed: str
    file: str | None
    pos: int | None
    log_id: str
    is_new: bool

    @property
    def proved(self) -> ProvedPosition:
        """What is kept of the position with something that was proved there."""
        return ProvedPosition(self.log_id, self.epoch, self.offset, self.executed)

    @property
    def order(self) -> tuple[int, int]:
        """A sort key of the binlog position."""
        return order_of(self.file, self.pos)


@dataclass(frozen=True)
class UpstreamEnd:
    """The end of the upstream's binlog: transactions behind it were not read."""

    file: str
    pos: int
    executed: str


def order_of(file: str | None, pos: int | None) -> tuple[int, int]:
    """Return a sort key for positions of one server; its binlog files have growing numbers."""
    return (int(file.rpartition(".")[2]), pos or 0) if file else (-1, 0)


class Servers:
    """Both connections, and the channel whose position counts.

    Args:
        patience: seconds to wait for a server, or for a channel that does not move.
        most: seconds to wait for a channel that moves.
    """

    def __init__(
        self,
        upstream: ServerUrl,
        downstream: ServerUrl,
        channel: ChannelKey,
        patience: float,
        most: float = inf,
    ) -> None:
        self._urls = {"upstream": upstream, "downstream": downstream}
        self._channel, self._patience, self._most = channel, patience, most
        self._stuck: ChannelPosition | None = None
        self.upstream = connect_raw(upstream, "upstream")
        self.downstream = connect_raw(downstream, "downstream")
        with self.reading("upstream"):
            self.mariadb = is_mariadb(self.upstream)
            # MySQL has the new name since 8.2.
            [(version,)] = _rows(self.upstream, "SELECT VERSION()")
            old = self.mariadb or version.startswith((b"5.", b"8.0", b"8.1"))
            self._status = "SHOW MASTER STATUS" if old else "SHOW BINARY LOG STATUS"
        with self.reading("downstream"):
            self.same_flavor = is_mariadb(self.downstream) == self.mariadb
            for connection in (self.upstream, self.downstream):
                _rows(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")

    def check_gtids(self) -> None:
        """Raise UpstreamError if the upstream has no GTIDs."""
        with self.reading("upstream"):
            if not self.mariadb and _rows(self.upstream, "SELECT @@gtid_mode")[0][0] != b"ON":
                raise UpstreamError(
                    "TR203",
                    "a validation needs GTIDs: only they tell whether the upstream shows a transaction",
                    hint="set gtid_mode = ON, or stop writing and use `tailrace compare`",
                )

    def close(self) -> None:
        """Close both connections."""
        for connection in (self.upstream, self.downstream):
            connection.close()

    @contextmanager
    def reading(self, side: Side) -> Iterator[None]:
        """Raise a server's errors as ours."""
        try:
            yield
        except (pymysql.MySQLError, OSError) as error:
            if isinstance(error, pymysql.MySQLError) and error.args and error.args[0] in _CHANGED:
                raise StructureChanged(message(error)) from None
            code, kind = ("TR203", UpstreamError) if side == "upstream" else ("TR603", DownstreamError)
            raise kind(
                code, f"reading the {side} {self._urls[side]} failed: {message(error)}", retryable=True
            ) from error

    # -- the channel -----------------------------------------------------------------------------

    def position(self) -> ChannelPosition:
        """Return the channel's position. Raises DownstreamError TR612 if there is no such channel."""
        with self.reading("downstream"):
            return self._position()

    def _position(self) -> ChannelPosition:
        def query(sql: str, arguments: Any = ()) -> Sequence[tuple[Any, ...]]:
            return _typed_rows(self.downstream, sql)

        found = next((row for row in position_store.all_channels(query) if row.key == self._channel), None)
        if found is None:
            raise position_store.unknown_channel(self._channel)
        return _channel_position(found)

    def passed(self, position: ChannelPosition, end: UpstreamEnd) -> bool:
        """Return whether the channel has applied everything up to an end."""
        if position.order >= order_of(end.file, end.pos):
            return True
        # The binlog may end with events that are no transactions, such as those of FLUSH LOGS.
        both = parse_like(position.executed, end.executed), parse_like(end.executed, position.executed)
        if not both[0].contains(both[1]):
            return False
        if self.mariadb:
            return True  # its set has every transaction of the binlog
        # A transaction is in MySQL's binlog a moment before it is in its set.
        time.sleep(_IDLE)
        return self.end() == end

    def wait_until_passed(self, end: UpstreamEnd) -> bool:
        """Wait until the channel has applied everything up to an end; return False if it takes too long."""
        given_up = wait_while_moving(
            self.position,
            lambda position: self.passed(position, end),
            self._patience,
            self._most,
            self._stuck,
        )
        if given_up is not None:
            self._stuck = given_up
        return given_up is None

    def read_downstream(self, read: Callable[[], T]) -> tuple[T, ChannelPosition]:
        """Read the downstream in one snapshot with the channel's position."""
        with self.reading("downstream"):
            _rows(self.downstream, _SNAPSHOT)
            try:
                return read(), self._position()
            finally:
                self.downstream.rollback()

    # -- the upstream ----------------------------------------------------------------------------

    def end(self) -> UpstreamEnd:
        """Return the end of the upstream's binlog."""
        with self.reading("upstream"):
            return self._end()

    def _end(self) -> UpstreamEnd:
        file, pos, _, _, *rest = _rows(self.upstream, self._status)[0]
        executed = _rows(self.upstream, "SELECT @@global.gtid_binlog_pos")[0][0] if self.mariadb else rest[0]
        return UpstreamEnd(file.decode(), int(pos), (executed or b"").decode())

    def read_upstream(self, read: Callable[[], T], behind: ChannelPosition) -> tuple[T, UpstreamEnd]:
        """Read the upstream in one snapshot that has everything up to a position."""
        deadline = time.monotonic() + self._patience
        with self.reading("upstream"):
            self._wait_until_visible(behind)
            while True:
                _rows(self.upstream, _SNAPSHOT)
                try:
                    if not self.mariadb or self._snapshot_order() >= behind.order:
                        found = read()
                        return found, self._end()
                finally:
                    self.upstream.rollback()
                if time.monotonic() > deadline:
                    raise _behind(behind)
                time.sleep(_WAIT)

    def _wait_until_visible(self, behind: ChannelPosition) -> None:
        """Wait until MySQL shows what the channel has applied: its binlog has a transaction earlier than its tables."""
        if self.mariadb or not behind.executed:
            return
        sql = f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{behind.executed}', {self._patience})"
        if _rows(self.upstream, sql)[0][0] != b"0":
            raise _behind(behind)

    def _snapshot_order(self) -> tuple[int, int]:
        status = dict(_rows(self.upstream, "SHOW STATUS LIKE 'binlog_snapshot_%'"))
        names = {name.lower(): value.decode() for name, value in status.items()}
        return order_of(names[b"binlog_snapshot_file"], int(names[b"binlog_snapshot_position"]))


class PairSides:
    """One pair of tables on both servers: the protocol's ``Sides``."""

    def __init__(self, servers: Servers, history: History, pair: TablePair, where: str) -> None:
        self._servers, self._history, self.pair = servers, history, pair
        self.above = TableReader(servers.upstream, pair.sources, pair, where)
        self.below = TableReader(servers.downstream, [pair.target], pair, where)

    def position(self) -> ChannelPosition:
        return self._servers.position()

    def downstream(self, read: Callable[[TableReader], T]) -> tuple[T, ChannelPosition]:
        return self._servers.read_downstream(lambda: read(self.below))

    def upstream(self, read: Callable[[TableReader], T], behind: ChannelPosition) -> tuple[T, UpstreamEnd]:
        return self._servers.read_upstream(lambda: read(self.above), behind)

    def wait_until_passed(self, end: UpstreamEnd) -> bool:
        return self._servers.wait_until_passed(end)

    def passed(self, position: ChannelPosition, end: UpstreamEnd) -> bool:
        return self._servers.passed(position, end)

    def touched(self, rows: Rows, after: ChannelPosition, until: ChannelPosition) -> Collection[Key]:
        self._history.check_complete(self.pair.source_names, after.epoch, is_new=after.is_new)
        # Everything that the downstream can show was in the log when it was read.
        last = self._history.end() if self.pair.any_time or until.last is None else until.last
        return self._history.touched(self.pair, rows, after.offset, last)


def wait_while_moving(
    position: Callable[[], T], is_there: Callable[[T], bool], patience: float, most: float, stuck: T | None
) -> T | None:
    """Wait for a channel. Returns None when it is there, else the position at which it is given up.

    Args:
        patience: seconds without any movement after which it is given up.
        most: seconds after which it is given up although it moves.
        stuck: where it was given up before, and is at once if it has not moved since then.
    """
    begin = moved = time.monotonic()
    last: T | None = None
    while not is_there(found := position()):
        now = time.monotonic()
        if found != last:
            last, moved = found, now
        if found == stuck or now > min(moved + patience, begin + most):
            return found
        time.sleep(_WAIT)
    return None


def _behind(position: ChannelPosition) -> UpstreamError:
    return UpstreamError(
        "TR203",
        f"the upstream does not show the transactions that the channel has applied: {position.executed}",
        hint="see whether [source] url names the server that the log comes from",
        retryable=True,
    )


def _channel_position(row: ChannelRow) -> ChannelPosition:
    position = row.position
    # Workers, a recovery, a rewind and DDL write ahead of the position.
    ahead = (
        int(row.stored["Number_of_workers"] or 0) > 1
        or position.recovered
        or position.repeat_until
        or position.ddl_intent
    )
    last = None if ahead else position.epoch + (position.epoch_rows is not None)
    return ChannelPosition(
        position.epoch,
        position.epochs_offset,
        last,
        online_tables.from_json(position.online_tables).names,
        position.executed_gtids,
        position.source_log,
        position.source_pos,
        position.log_id or "",
        position.is_new,
    )


def _rows(connection: Connection[Any], sql: str) -> Sequence[tuple[Any, ...]]:
    with connection.cursor(Cursor) as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


def _typed_rows(connection: Connection[Any], sql: str) -> Sequence[tuple[Any, ...]]:
    """Return rows of a connection that converts nothing with numbers and text."""
    with connection.cursor(Cursor) as cursor:
        cursor.execute(sql)
        kinds = [column[1] for column in cursor.description]
        return [
            tuple(_typed(kind, value) for kind, value in zip(kinds, row, strict=True))
            for row in cursor.fetchall()
        ]


def _typed(kind: Any, value: bytes | None) -> Any:
    if value is None:
        return None
    return int(value) if kind in _INTEGERS else float(value) if kind in _DECIMALS else value.decode()
