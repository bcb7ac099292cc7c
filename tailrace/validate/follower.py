"""Validates without end: the rows that each applied epoch changes, and from time to time each table in full.

The changed rows of both servers are compared by their checksums a moment after the channel has applied them. A row that
differs then, and that no later epoch has changed, is decided by a round of the protocol. So a row that changes again is
looked at again when that change is applied.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Event

import structlog

from schemas.tables import QualifiedName
from schemas.wire.epoch import EpochCommitted, SchemaChanged
from spark_consumer.apply.tables import channel_tables, validation
from spark_consumer.apply.tables.validation import ProvedPosition, Validated
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.target.session import Session
from tailrace.validate.history import TRUNCATE, BeingCopied, History
from tailrace.validate.protocol import BATCH, Key, chunk_suspects, decide, look_upstream
from tailrace.validate.result import Report, TableReport
from tailrace.validate.servers import Servers
from tailrace.validate.tables import Chunk, StructureChanged, TablePair
from tailrace.validate.validator import KEYS_OF_A_LIST, Progress, Validator

_PAUSE = 1.0  # seconds between two looks at the log
_AGAIN = 10.0  # seconds until what differs or could not be decided is looked at again
_MINUTE = 60.0  # until the channel's row is written again at the latest
_MOST_KEYS = 20_000  # keys that are looked at before the next epoch is read
_COPIED = "a copy of it is not complete"

_log = structlog.get_logger()


class Stopped(Exception):
    """The operator ends the validation."""


@dataclass
class _Table:
    """What is known of a table besides its report.

    Attributes:
        open: keys of changed rows that are not proved, and the position before the change.
        full: the row of ``tailrace.validation`` after the last validation in full; None before the first.
        written: what was written last.
        due: when it is to be validated in full, in seconds since 1970.
    """

    open: dict[Key, ProvedPosition] = field(default_factory=dict)
    full: Validated | None = None
    written: Validated | None = None
    due: float = 0.0


class Follower:
    """Follows a channel.

    Args:
        every: seconds between two validations of a table in full.
        progress: shows how far it is; it gets the report.
    """

    def __init__(
        self,
        servers: Servers,
        history: History,
        rules: ConsumerConfig,
        session: Session,
        every: float,
        max_rows_per_s: int,
        stop: Event,
        progress: Progress,
    ) -> None:
        self._servers, self._session, self._channel = servers, session, rules.key
        self._history, self._every, self._stop, self._progress = history, every, stop, progress
        self._validator = Validator(servers, history, rules, "", max_rows_per_s, self._meanwhile, rounds=1)
        self.report = self._validator.report
        self._tables: dict[str, _Table] = {}
        self._pairs: dict[str, TablePair | None] = {}
        self._is_stale = True
        self._at = ProvedPosition("", -1, -1, "")
        self._looked = 0
        self._written: Validated | None = None
        self._busy = ""
        self._next_step = self._next_again = self._next_beat = 0.0

    def run(self) -> None:
        """Validate until ``stop`` is set. What was proved before is read from ``tailrace.validation``."""
        try:
            self._begin()
            while not self._stop.is_set():
                self._step()
                if name := self._next_due():
                    self._in_full(name)
                else:
                    self._stop.wait(_PAUSE)
        except Stopped:
            pass

    def _begin(self) -> None:
        with self._servers.reading("downstream"):
            channel_tables.install(self._session)
            stored = validation.read(self._session.rows, self._channel.prefix).get(self._channel.name, {})
        position = self._servers.position().proved
        own = stored.pop("", None)
        self._at = position
        self._read_tables()
        if own is None or not self._history.continues(own.position, position):
            return
        self._at, self._looked = own.position, own.rows
        for name in stored.keys() & self._tables.keys():
            self._restore(self._tables[name], stored[name])

    def _restore(self, table: _Table, stored: Validated) -> None:
        report = self.report.by_name[stored.table] = TableReport(stored.table, rows=stored.rows)
        if stored.verdict in ("equal", "left out"):
            report.set_problem(stored.problem, "equal" if stored.verdict == "equal" else "left out")
            table.full = table.written = stored
            table.due = stored.at + self._every
        else:
            # Which rows differ is found again; what is written stays until then.
            report.set_problem("", "pending")
            table.due = stored.at

    def _read_tables(self) -> None:
        """Read the structures, and find tables that have come or gone."""
        self._validator.begin()
        self._pairs.clear()
        self._is_stale = False
        names = set(self._validator.names)
        gone = self._tables.keys() - names
        with self._servers.reading("downstream"):
            validation.remove(self._session, self._channel, gone)
        for name in gone:
            del self._tables[name]
            self.report.by_name.pop(name, None)
        for name in sorted(names - self._tables.keys()):
            self._tables[name] = _Table()
            self.report.by_name[name] = TableReport(name)
            self.report.by_name[name].set_problem("not validated in full yet", "pending")

    # -- in full ---------------------------------------------------------------------------------

    def _next_due(self) -> str:
        due = min(self._tables, key=lambda name: self._tables[name].due, default="")
        return due if due and self._tables[due].due <= time.time() else ""

    def _in_full(self, name: str) -> None:
        """Validate a table in full; changes of all tables are looked at meanwhile."""
        table = self._tables[name]
        # DDL during the validation makes it due again.
        table.due = time.time() + self._every
        position, self._busy = self._servers.position().proved, name
        self._validator.table(name)
        self._busy = ""
        if name not in self._tables:
            del self.report.by_name[name]
            return
        report = self.report.by_name[name]
        if report.whole == "pending":
            table.due = min(table.due, time.time() + _AGAIN)
        elif report.whole == "different":
            self._is_stale = True
            table.due = min(table.due, time.time() + _MINUTE)
        table.open |= dict.fromkeys(report.undecided - table.open.keys(), self._at)
        table.full = _row(report, position, time.time())

    def _make_due(self, name: str, why: str) -> None:
        """Have a table validated in full soon, because its rows cannot be followed."""
        table = self._tables[name]
        table.due = min(table.due, time.time() + _AGAIN)
        table.open.clear()
        # The keys of an earlier structure mean nothing.
        self.report.by_name[name] = TableReport(name, rows=self.report.by_name[name].rows)
        self.report.by_name[name].set_problem(why, "pending")

    def _meanwhile(self, report: Report) -> None:
        if self._stop.is_set():
            raise Stopped
        self._progress(report)
        if time.monotonic() >= self._next_step:
            self._step()

    # -- changed rows ----------------------------------------------------------------------------

    def _step(self) -> None:
        """Look at the rows of the epochs that the channel has applied since the last step."""
        if self._is_stale:
            self._read_tables()
        position = self._servers.position()
        if not self._history.continues(self._at, position.proved):
            # The channel was reset, or the log has lost epochs that were not looked at.
            self._at = position.proved
            for name in self._tables:
                self._make_due(name, "changes of it were not looked at")
        before, keys = self._at, dict[str, set[Key]]()
        for logged in self._history.epochs(before.offset, position.epoch):
            epoch = logged.record
            self._collect(epoch, before, keys)
            self._at = ProvedPosition(
                epoch.log_id or before.log_id, epoch.epoch, logged.offset, epoch.executed_gtids
            )
            if sum(map(len, keys.values())) > _MOST_KEYS:
                break
        self._look(keys, before)
        self._settle(
            {name: table.open.keys() - keys.get(name, set()) for name, table in self._tables.items()}
        )
        if time.monotonic() >= self._next_again:
            self._next_again = time.monotonic() + _AGAIN
            self._settle({name: self.report.by_name[name].differing.keys() for name in self._tables})
        self._write()
        self._progress(self.report)
        self._next_step = time.monotonic() + _PAUSE

    def _collect(self, epoch: EpochCommitted, before: ProvedPosition, keys: dict[str, set[Key]]) -> None:
        """Add the keys of the rows that an epoch changes. Tables that change as a whole become due in full."""
        if epoch.for_new_channels:
            return
        if epoch.ddl is not None:
            self._after_ddl(epoch.ddl, keys)
        pairs: dict[QualifiedName, TablePair] = {}
        for touched in epoch.tables:
            name = self._validator.goes_to(touched.db, touched.table)
            if name not in self._tables:
                continue
            if touched.reads or touched.incomplete:
                # Rows that the copy has not brought yet are missing.
                self._make_due(name, _COPIED)
                self._tables[name].due = time.time() + _AGAIN
                keys.pop(name, None)
            elif (pair := self._pair(name)) is not None and pair.division != "whole":
                pairs[touched.db, touched.table] = pair
        if not pairs:
            return
        for pair, key in self._history.changed_keys(epoch, pairs):
            found = keys.setdefault(_name(pair), set())
            found.add(key)
            if len(found) > _MOST_KEYS:
                self._look({_name(pair): found}, before)
                del keys[_name(pair)]

    def _after_ddl(self, ddl: SchemaChanged, keys: dict[str, set[Key]]) -> None:
        """A DDL may change all rows of a table."""
        self._is_stale |= ddl.kind != TRUNCATE
        for name in self._tables:
            if self._validator.concerns(name)(ddl):
                self._make_due(name, f"not validated since {ddl.kind}")
                keys.pop(name, None)
                if ddl.kind != TRUNCATE:
                    self._pairs[name] = None

    def _pair(self, name: str) -> TablePair | None:
        """Return a table's pair; None if its rows are not compared now."""
        if name not in self._pairs:
            try:
                self._pairs[name] = self._validator.pair(TableReport(name))
            except BeingCopied:
                self._make_due(name, _COPIED)
                self._pairs[name] = None
            except StructureChanged:
                self._make_due(name, "its structure changes")
                self._pairs[name] = None
        return self._pairs[name]

    def _look(self, keys: Mapping[str, set[Key]], before: ProvedPosition) -> None:
        """Compare the checksums of changed rows. Those that differ stay open."""
        for name, found in keys.items():
            if (pair := self._pair(name)) is None:
                continue
            table, listed, sides = self._tables[name], sorted(found), self._validator.sides(pair)
            suspects: set[Key] = set()
            try:
                for begin in range(0, len(listed), KEYS_OF_A_LIST):
                    chunk = Chunk(keys=tuple(listed[begin : begin + KEYS_OF_A_LIST]))
                    suspects |= chunk_suspects(sides, chunk)[1]
            except StructureChanged:
                self._is_stale, suspects = True, found
            self.report.by_name[name].note(found - suspects, {}, set())
            for key in found:
                table.open.pop(key, None)
            table.open |= dict.fromkeys(suspects, before)
            self._looked += len(found)

    def _settle(self, wanted: Mapping[str, Collection[Key]]) -> None:
        """Decide rows that no epoch of this step has changed. All tables wait for the channel together."""
        wanted = {name: keys for name, keys in wanted.items() if keys}
        begun = []
        for name, keys in wanted.items():
            if (pair := self._pair(name)) is not None:
                sides = self._validator.sides(pair)
                some = sorted(keys)[: max(1, BATCH // len(wanted))]
                with self._changes_noted(name):
                    begun.append((name, sides, look_upstream(sides, some)))
        for name, sides, look in begun:
            with self._changes_noted(name):
                settled = decide(sides, look)
                self._validator.note(self.report.by_name[name], sides.pair, look.keys, settled)
                for key in look.keys - settled.pending:
                    self._tables[name].open.pop(key, None)

    @contextmanager
    def _changes_noted(self, name: str) -> Iterator[None]:
        try:
            yield
        except BeingCopied:
            self._make_due(name, _COPIED)
        except StructureChanged:
            self._is_stale = True

    # -- what is proved --------------------------------------------------------------------------

    def _write(self) -> None:
        """Write to ``tailrace.validation`` what has changed."""
        with self._servers.reading("downstream"):
            for name, table in self._tables.items():
                self._write_table(self.report.by_name[name], table)
            own = self._own_row()
            is_new = self._written is None or replace(own, at=self._written.at) != self._written
            if is_new or time.monotonic() >= self._next_beat:
                validation.write(self._session, self._channel, own)
                self._written, self._next_beat = own, time.monotonic() + _MINUTE

    def _write_table(self, report: TableReport, table: _Table) -> None:
        is_known = table.full is not None and report.table != self._busy
        if not (is_known or report.different or report.problem):
            return
        full = table.full or _row(report, ProvedPosition(self._at.log_id, -1, -1, ""), time.time())
        row = _row(report, full.position, full.at)
        if table.written is not None and replace(row, at=table.written.at) == table.written:
            return
        validation.write(self._session, self._channel, row)
        if row.different != (table.written.different if table.written else 0):
            _log.warning("different", table=row.table, rows=row.different, first=row.differences[:1])
        table.written = row

    def _own_row(self) -> Validated:
        tables = self._tables.values()
        proved = min(
            (position for table in tables for position in table.open.values()),
            key=lambda position: position.offset,
            default=self._at,
        )
        verdicts = {report.verdict for report in self.report.tables}
        verdict = next((one for one in ("different", "pending") if one in verdicts), "equal")
        pending = sum(len(table.open) for table in tables)
        found = self.report.different
        return Validated("", verdict, self._looked, found, pending, (), "", proved, time.time())


def _row(report: TableReport, position: ProvedPosition, at: float) -> Validated:
    return Validated(
        report.table,
        report.verdict,
        report.rows,
        report.different,
        report.pending,
        tuple(report.keys),
        report.problem,
        position,
        at,
    )


def _name(pair: TablePair) -> str:
    return f"{pair.target.db}.{pair.target.name}"
