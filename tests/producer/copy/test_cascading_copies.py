"""Copies of tables whose rows foreign keys change without a trace in the binlog, against a model."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from producer.copy.cascades import Cascades, CascadingKey, cascades_of, referred_tables
from producer.copy.copies import (
    Answer,
    Boundary,
    ChunkRead,
    Copies,
    ObjectsFound,
    TableFound,
    TablesFound,
    Work,
)
from producer.copy.epochs import copy_epochs
from producer.copy.requests import CopyRequest
from producer.copy.state import PLAN_KEY, Plan
from producer.decode.event_decoder import CopiedRows
from producer.epochs.open_epoch import OpenEpoch, Records, SealedEpoch, TrackedRecord, seal
from producer.structures.store import BinlogPosition
from relay_store.layout.directory import RelayPosition
from schemas.ddl.table_definition import TableDefinition
from schemas.structure import TableStructure
from schemas.tables import QualifiedName, TableFilter
from schemas.wire.epoch import (
    ABSENT,
    CompleteCopy,
    CopyStep,
    EpochCommitted,
    SchemaChanged,
    TableChanged,
    TableTouched,
)
from schemas.wire.rows import SINGLE_OBJECT, key_prefix
from spark_consumer.epochs.slices import LoggedEpoch, as_channel_sees

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
#: the parent of each table: a chain, a circle of two behind it, a table that refers to itself, and one to be altered
PARENTS = {"b": ["a"], "c": ["b"], "e": ["c", "f"], "f": ["e"], "g": ["g", "b"], "h": []}
TABLES = "abcefgh"
HEADER = SINGLE_OBJECT + bytes(8) + b"\x02"

#: a table, a key, and the key of the parents' row; None if the row is deleted
Change = tuple[str, int, int | None]
#: rows by table: the key of the parents' row by key
Rows = dict[str, dict[int, int]]


def name_of(table: str) -> QualifiedName:
    return ("shop", table)


def key_of(table: str, number: int) -> bytes:
    return key_prefix(TableStructure(*name_of(table), ())) + b"%03d" % number


def delete(
    rows: Rows, parents: dict[str, list[str]], table: str, number: int, *, among: Collection[str]
) -> None:
    """Delete a row, and those in some tables that refer to it."""
    if rows.get(table, {}).pop(number, None) is None:
        return
    for child in among:
        if table in parents.get(child, ()):
            for one in [one for one, parent in rows.get(child, {}).items() if parent == number]:
                delete(rows, parents, child, one, among=among)


@dataclass
class Upstream:
    """Tables, and a binlog without cascades: position n is behind the nth change, which may be DDL."""

    states: list[Rows] = field(default_factory=lambda: [{table: {} for table in TABLES}])
    parents: list[dict[str, list[str]]] = field(default_factory=lambda: [dict(PARENTS)])
    binlog: list[Change | SchemaChanged] = field(default_factory=list)

    def commit(self, change: Change | SchemaChanged) -> None:
        rows = {table: dict(content) for table, content in self.states[-1].items()}
        parents = self.parents[-1]
        if isinstance(change, SchemaChanged):
            parents = parents | {"h": ["b"]}
        elif change[2] is None:
            if change[1] not in rows[change[0]]:
                return
            delete(rows, parents, change[0], change[1], among=TABLES)
        else:
            rows[change[0]][change[1]] = change[2]
        self.states.append(rows)
        self.parents.append(parents)
        self.binlog.append(change)

    def cascades(self, table: str, position: int) -> Cascades:
        keys = [(child, one) for child, parents in self.parents[position].items() for one in parents]
        return cascades_of(name_of(table), [CascadingKey(name_of(c), name_of(p)) for c, p in keys])

    def at(self, position: int) -> BinlogPosition:
        return BinlogPosition(SERVER, 1, position)


ALTER = "ALTER TABLE h ADD FOREIGN KEY (parent) REFERENCES b (id) ON DELETE CASCADE"
DDL = SchemaChanged(ALTER, "shop", "ALTER TABLE", (TableChanged("shop", "h"),), "mariadb", 0)


@dataclass(frozen=True)
class Entry:
    """An epoch: its record without the rows' numbers, what a copy read, and the changes up to a position.

    Attributes:
        absent: the tables that a new channel does not have there, or of which it has old rows.
    """

    record: EpochCommitted
    copied: list[tuple[int, int]]
    changes: list[Change]
    position: int
    absent: frozenset[str]


@dataclass
class Channel:
    """What epochs lead to."""

    upstream: Upstream
    is_new: bool = False
    rows: Rows = field(default_factory=dict)

    def apply(self, entry: Entry) -> None:
        record = as_channel_sees([LoggedEpoch(entry.record, 0)], is_new=self.is_new)[0].record
        self.is_new = self.is_new and not record.ends_copy
        if record.for_new_channels:
            assert record.copy is None
            return
        step = record.copy
        if step is not None and step.step == "begin":
            assert step.again or not self.rows.get(step.table)
            self.rows[step.table] = {}
        for number, parent in entry.copied:
            assert step is not None
            assert self.rows[step.table].get(number, parent) == parent
            self.rows[step.table][number] = parent
        touched = {table.table: table for table in record.tables}
        parents = self.upstream.parents[entry.position]
        for table, number, value in entry.changes:
            if touched[table].new_channels == ABSENT:
                continue
            if value is not None:
                self.rows[table][number] = value
            else:
                # Foreign keys act unless the table is being copied.
                delete(self.rows, parents, table, number, among=() if touched[table].incomplete else TABLES)


class Log:
    """A publisher whose epochs are applied at once."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream, self.position, self.number = upstream, len(upstream.binlog), 1
        self.channel, self.entries = Channel(upstream), list[Entry]()
        self.tracked: dict[bytes, bytes] = {PLAN_KEY: Plan("one").encode()}
        self.copies = self.restarted()

    def restarted(self) -> Copies:
        self.copies = Copies(self.tracked, set(), Boundary(self.number - 1, "", self.binlog_position))
        if records := self.copies.replicates(TableFilter()):
            self._insert(records)
        return self.copies

    @property
    def binlog_position(self) -> BinlogPosition:
        return self.upstream.at(self.position)

    def publish(self, count: int) -> None:
        """Write an epoch, unless the publisher stands still."""
        if self.copies.stands_at(self.binlog_position) or self.position == len(self.upstream.binlog):
            return
        end = self.copies.end_position
        last = min(self.position + count, end.pos if end else len(self.upstream.binlog))
        found = self.upstream.binlog[self.position : last]
        changes = list(takewhile(lambda one: not isinstance(one, SchemaChanged), found))
        epoch = OpenEpoch(self.number, 0.0)
        self.position += len(changes)
        if isinstance(found[0], SchemaChanged):  # it is an epoch of its own
            epoch.ddl = found[0]
            self.position += 1
        written = [
            change
            for change in changes
            if isinstance(change, tuple) and not self.copies.leaves_out_rows(*name_of(change[0]))
        ]
        values = [HEADER + (b"d" if change[2] is None else b"u") for change in written]
        self.copies.note(Records(keys=[key_of(*change[:2]) for change in written], values=values))
        sealed = self._sealed(epoch)
        self._apply(sealed.record, [], written)
        self._take(self.copies.ended(sealed).tracked)
        self.check()
        self.write_copies()

    def _apply(
        self, record: EpochCommitted, copied: list[tuple[int, int]], changes: list[Change]
    ) -> EpochCommitted:
        """An epoch is in the log, with what it says of its tables."""
        incomplete, new = self.copies.incomplete, self.copies.new_channels
        tables = tuple(
            TableTouched(*name, "", 1, 0, 0, incomplete=name in incomplete, new_channels=new.get(name, ""))
            for name in sorted({name_of(change[0]) for change in changes})
        )
        absent = frozenset(name[1] for name, state in new.items() if state == ABSENT)
        entry = Entry(replace(record, tables=tables), copied, changes, self.position, absent)
        self.entries.append(entry)
        self.channel.apply(entry)
        return record

    def check_new_channels(self) -> None:
        """A channel that begins with any of the complete copies becomes equal."""
        ends = [entry.record for entry in self.entries if entry.record.ends_copy]
        assert ends
        for end in ends:
            assert end.complete is not None
            begins = CompleteCopy(end.complete.copy, ended=False)
            begin = max(i for i, entry in enumerate(self.entries) if entry.record.complete == begins)
            channel = Channel(self.upstream, is_new=True)
            for entry in self.entries[begin:]:
                channel.apply(entry)
                if channel.is_new:
                    for table in channel.rows.keys() - entry.absent:
                        state = self.upstream.states[entry.position][table]
                        assert channel.rows[table].items() <= state.items(), table
                elif entry.record is end:
                    assert channel.rows == self.upstream.states[entry.position]
            assert channel.rows == self.upstream.states[self.position]

    def write_copies(self, most: int | None = None) -> None:
        for sealed in islice(copy_epochs(self.copies, self), most):  # type: ignore[arg-type]
            self._take(sealed.tracked)
            self.check()

    def insert(
        self,
        copy: CopyStep | None = None,
        tracked: tuple[TrackedRecord, ...] = (),
        ddl: SchemaChanged | None = None,
        definition: TableDefinition | None = None,
        rows: CopiedRows | None = None,
        complete: CompleteCopy | None = None,
        *,
        for_new: bool = False,
    ) -> SealedEpoch:
        sealed = self._sealed(OpenEpoch(self.number, 0.0))
        copied: Any = rows.values(b"", 0, RelayPosition("", "", 0)) if rows is not None else []
        record = replace(sealed.record, copy=copy, complete=complete, for_new_channels=for_new)
        self._apply(record, copied, [])
        return replace(sealed, tracked=tracked)

    def _insert(self, tracked: tuple[TrackedRecord, ...]) -> None:
        self.copies.written(replace(self.insert(tracked=tracked), tracked=()).record)
        self._take(tracked)

    def _sealed(self, epoch: OpenEpoch) -> SealedEpoch:
        self.number += 1
        return seal(epoch, RelayPosition(f"{SERVER}.000001", "binlog.000001", self.position), "")

    def _take(self, tracked: tuple[TrackedRecord, ...]) -> None:
        for name, record in tracked:
            self.tracked.pop(name, None)
            if record is not None:
                self.tracked[name] = record

    def ask(self, tables: tuple[str, ...], *, cancel: bool = False) -> None:
        if not self.copies.stands_at(self.binlog_position):
            self._insert(self.copies.requested(CopyRequest(tables, cancel), 0) or ())

    def copy_for_new(self) -> None:
        """It is time for a copy for new channels."""
        if not self.copies.stands_at(self.binlog_position):
            self._insert(self.copies.repeated(0.0, 0))

    def check(self) -> None:
        """Each row that is there is as it is upstream at this position, where no begin is to remove it."""
        if self.copies.is_for_new:
            assert self.channel.rows == self.upstream.states[self.position]
        for table, rows in self.channel.rows.items():
            if not self.copies.leaves_out_rows(*name_of(table)):
                assert rows.items() <= self.upstream.states[self.position][table].items(), table


class Reader:
    """Reads at one moment, and hands in later."""

    def __init__(self, log: Log) -> None:
        self.log, self.answers = log, list[Answer]()

    def read(self, size: int) -> None:
        copies, newest = self.log.copies, len(self.log.upstream.binlog)
        if (work := copies.next_work(0.0)) is None:
            return
        if work.name == ("", ""):
            names = tuple(map(name_of, TABLES))
            found = TablesFound(work=work, visible=self.log.upstream.at(newest), names=names)
            nothing = ObjectsFound(work=work, visible=self.log.upstream.at(newest), statements=())
            self.answers.append(nothing if work.is_begun else found)
            return
        cascades = self.log.upstream.cascades(work.name[1], newest)
        if work.is_begun and work.attempt < 3:
            self.answers.append(self._chunk(work, newest, size))
        elif work.is_begun or cascades.circle:
            self._hold(work, cascades if cascades.circle else Cascades())
        else:
            self.answers.append(self._definition(work, newest))

    def _hold(self, work: Work, cascades: Cascades) -> None:
        copies, held = self.log.copies, list[Work]()
        thread = threading.Thread(target=lambda: held.extend(copies.hold(work, cascades, threading.Event())))
        thread.start()
        while thread.is_alive():
            copies.stands_at(self.log.binlog_position)
            thread.join(0.001)
        newest = len(self.log.upstream.binlog)
        for one in held:
            copies.go_on_to(one, self.log.upstream.at(newest))
            copies.hand_in(replace(self._definition(one, newest), is_held=True), threading.Event())
            copies.hand_in(self._chunk(replace(one, is_begun=True), newest, 1000), threading.Event())

    def _definition(self, work: Work, newest: int) -> TableFound:
        cascades = self.log.upstream.cascades(work.name[1], newest)
        visible = self.log.upstream.at(newest)
        return TableFound(
            work=work, visible=visible, ddl=DDL, definition=TableDefinition(()), cascades=cascades
        )

    def _chunk(self, work: Work, newest: int, size: int) -> ChunkRead:
        rows = self.log.upstream.states[newest][work.name[1]]
        lower = int(work.lower[0]) if work.lower else -1
        chosen = sorted((number, parent) for number, parent in rows.items() if number > lower)[:size]
        return ChunkRead(
            work=work,
            visible=self.log.upstream.at(newest),
            structure=TableStructure(*work.name, (), ()),
            keys=[key_of(work.name[1], number) for number, _ in chosen],
            after=chosen,  # type: ignore[arg-type]
            values=lambda after, header, epoch, end: after,
            upper=(str(chosen[-1][0]),) if chosen else work.lower,
            is_last=len(chosen) < size,
        )

    def hand_in(self) -> None:
        if self.answers:
            self.log.copies.hand_in(self.answers.pop(0), threading.Event())


# Rows refer to their own number, so that whole families go together; the first tables have most of the others below.
_CHANGES = st.tuples(st.sampled_from("aabbc" + TABLES), st.integers(0, 5), st.none() | st.integers(0, 5))
_ACTIONS = st.one_of(
    _CHANGES,
    _CHANGES,
    st.just("turn"),
    st.just("turn"),
    st.just("turn"),
    st.tuples(st.just("publish"), st.integers(1, 3)),
    st.tuples(st.just("read"), st.integers(1, 4)),
    st.tuples(st.just("crash"), st.integers(0, 4)),
    st.tuples(st.just("copy"), st.sampled_from("aabcef")),
    st.just("alter"),
    st.sampled_from(["hand in", "hand in", "write", "cancel", "copy for new"]),
)


@given(st.lists(_CHANGES, max_size=5), st.integers(0, 30), st.lists(_ACTIONS, min_size=10, max_size=60))
@settings(max_examples=200, deadline=None)
def test_cascades_that_the_binlog_lacks_are_in_the_copy(
    before: list[Any], steps: int, actions: list[Any]
) -> None:
    upstream = Upstream()
    for change in (*((table, number, number) for table in TABLES for number in range(6)), *before):
        upstream.commit(change)
    log = Log(upstream)
    reader = Reader(log)
    for _ in range(steps):
        _turn(log, reader)
    _act(actions, log, reader)
    _finish(log, reader)
    log.copy_for_new()
    assert log.copies.is_for_new
    others = [action for action in actions if action != "cancel" and action[0] != "copy"]
    _act(others, log, reader)
    _finish(log, reader)
    assert log.channel.rows == upstream.states[-1]
    log.check_new_channels()


def _act(actions: list[Any], log: Log, reader: Reader) -> None:
    for action in actions:
        match action:
            case ("publish", count):
                log.publish(count)
            case ("read", size):
                reader.read(size)
            case ("copy", table):
                log.ask((f"shop.{table}",))
            case "cancel":
                log.ask((), cancel=True)
            case "copy for new":
                log.copy_for_new()
            case "hand in":
                reader.hand_in()
            case "turn":
                _turn(log, reader)
            case "write":
                log.write_copies()
            case ("crash", count):
                reader.hand_in()
                log.write_copies(count)
                reader.answers.clear()
                log.restarted()
            case "alter":
                log.upstream.commit(DDL)
            case change:
                log.upstream.commit(change)


def _finish(log: Log, reader: Reader) -> None:
    for _ in range(2000):
        if log.position == len(log.upstream.binlog) and not log.copies.are_running:
            return
        _turn(log, reader)
    raise AssertionError("the copy does not end")


def _turn(log: Log, reader: Reader) -> None:
    reader.hand_in()
    log.publish(2)
    log.write_copies()
    reader.read(2)


def test_tables_to_which_a_statement_refers() -> None:
    other = "CREATE TABLE x (a INT REFERENCES y (id) ON DELETE SET NULL, FOREIGN KEY (b) REFERENCES `o`.`z` (`id`))"
    assert referred_tables(DDL) == {("shop", "b")}
    assert referred_tables(replace(DDL, statement=other)) == {("shop", "y"), ("o", "z")}
    assert not referred_tables(replace(DDL, statement=other.replace("SET NULL", "RESTRICT")))
    assert not referred_tables(replace(DDL, statement="ALTER TABLE h COMMENT 'REFERENCES b CASCADE'"))
