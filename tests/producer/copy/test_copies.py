"""Copies against a model: whatever the order of changes, reads and epochs, the log leads to the upstream's rows."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from producer.copy.copies import (
    Answer,
    Boundary,
    ChunkRead,
    Copies,
    NothingFound,
    ObjectsFound,
    TableFound,
    TablesFound,
    Work,
)
from producer.copy.epochs import copy_epochs
from producer.copy.progress import incomplete_at
from producer.copy.requests import CopyRequest
from producer.copy.state import COMPLETED_KEY, PLAN_KEY, CompleteCopies, Plan, Step, TableCopy, topic_key
from producer.decode.event_decoder import CopiedRows
from producer.epochs.open_epoch import OpenEpoch, Records, SealedEpoch, TrackedRecord, seal
from producer.structures.store import BinlogPosition
from relay_store.layout.directory import RelayPosition
from schemas.ddl.classify import classify
from schemas.ddl.table_definition import ColumnDefinition, TableDefinition
from schemas.structure import TableStructure
from schemas.tables import TableFilter
from schemas.wire.epoch import (
    ABSENT,
    CompleteCopy,
    CopyStep,
    EpochCommitted,
    SchemaChanged,
    TableChanged,
    TableTouched,
)
from schemas.wire.rows import key_prefix
from spark_consumer.epochs.slices import LoggedEpoch, as_channel_sees

NAME = ("shop", "t")
STRUCTURE = TableStructure(*NAME, (), ())
PREFIX = key_prefix(STRUCTURE)
SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
DDL = SchemaChanged("ALTER TABLE t FORCE", "shop", "ALTER TABLE", (TableChanged(*NAME),), "mysql", 0)
CLASSIFIED = classify(DDL.statement, DDL.default_db, DDL.source_flavor)
TABLE = TableDefinition((ColumnDefinition("id", "int"),))

Rows = dict[int, int]
#: a key and its value, None if it is deleted; or DDL
Change = tuple[int, int | None] | None


def key(number: int) -> bytes:
    return PREFIX + b"%03d" % number


@dataclass
class Upstream:
    """A table, and its binlog: position n is behind the nth change."""

    states: list[Rows] = field(default_factory=lambda: [{}])
    binlog: list[Change] = field(default_factory=list)

    def commit(self, change: Change) -> None:
        rows = dict(self.states[-1])
        if change is not None:
            number, value = change
            rows.pop(number, None)
            if value is not None:
                rows[number] = value
        self.states.append(rows)
        self.binlog.append(change)

    def at(self, position: int) -> BinlogPosition:
        return BinlogPosition(SERVER, 1, position)


@dataclass
class Downstream:
    """What the epochs lead to."""

    rows: Rows = field(default_factory=dict)
    incomplete: bool = False
    #: somebody has written to it
    is_wrong: bool = False
    is_there: bool = False
    begins: int = 0

    def apply(self, step: CopyStep | None, rows: Rows, changes: list[Change]) -> None:
        if step is not None and step.step == "begin":
            self.is_there = True
            self.begins += 1
        assert self.is_there or not (rows or changes)
        if step is not None and step.step == "begin":
            assert step.again or not self.rows
            self.rows, self.incomplete, self.is_wrong = {}, True, False
        for number, value in rows.items():
            # A row that is there already was changed before its chunk was read.
            assert self.is_wrong or self.rows.get(number, value) == value
            self.rows[number] = value
        for change in changes:
            if change is not None:
                self.rows.pop(change[0], None)
                if change[1] is not None:
                    self.rows[change[0]] = change[1]
        if step is not None and step.step == "end":
            self.incomplete = False


@dataclass(frozen=True)
class Entry:
    """An epoch: its record without the rows' numbers, what a copy read, and the upstream's changes up to a position."""

    record: EpochCommitted
    rows: Rows
    changes: list[Change]
    position: int

    def seen(self, *, is_new: bool) -> EpochCommitted:
        return as_channel_sees([LoggedEpoch(self.record, 0)], is_new=is_new)[0].record

    def apply_to(self, downstream: Downstream, *, is_new: bool) -> None:
        record = self.seen(is_new=is_new)
        if record.for_new_channels:
            assert not record.tables
            assert record.copy is None
        elif not any(table.new_channels == ABSENT for table in record.tables):
            was_incomplete = downstream.incomplete
            downstream.apply(record.copy, self.rows, self.changes)
            assert all(table.incomplete == was_incomplete for table in record.tables)


class Log:
    """A publisher whose epochs are applied at once."""

    def __init__(self, upstream: Upstream, *, is_included: bool) -> None:
        self.upstream, self.downstream = upstream, Downstream()
        self.is_included, self.is_known = is_included, False
        self.position, self.number = 0, 1
        # The last epoch behind which rows are missing downstream.
        self.lacking = -1
        self.open: list[Change] = []
        self.entries: list[Entry] = []
        self.tracked: dict[bytes, bytes] = {}
        # The epochs with which complete copies began, and which of these have come to their end.
        self.began: dict[str, int] = {}
        self.completed: list[int] = []
        if is_included:
            self.tracked[PLAN_KEY] = Plan("one").encode()
        self.copies = self.restarted()

    def restarted(self) -> Copies:
        known = {NAME} if self.is_known else set()
        self.copies = Copies(self.tracked, known, Boundary(self.number - 1, "", self.binlog_position))
        tables = TableFilter([] if self.is_included else ["other.*"])
        if not self.is_included and self.is_known:
            self.downstream.is_wrong = True  # from now on until it is copied again
        if records := self.copies.replicates(tables):
            self._insert(records)
        return self.copies

    @property
    def binlog_position(self) -> BinlogPosition:
        return self.upstream.at(self.position)

    def read(self, count: int) -> None:
        """Write rows of the open epoch."""
        begin = self.position + len(self.open)
        changes = self.upstream.binlog[begin : begin + count]
        if None in changes:  # DDL is an epoch of its own
            changes = changes[: changes.index(None)]
        self.open += changes
        if self.is_included and not self.copies.leaves_out_rows(*NAME):
            keys = [key(change[0]) for change in changes if change]
            self.copies.note(Records(keys=keys, values=[b""] * len(keys)))

    def publish(self, count: int) -> None:
        """End the open epoch; or an epoch that is a DDL."""
        self.read(count)
        changes, self.open = self.open, []
        if not changes:
            changes = self.upstream.binlog[self.position : self.position + 1]
        epoch = OpenEpoch(self.number, 0.0)
        self.position += len(changes)
        if not self.is_included:
            changes = []
        elif None not in changes:
            changes = [] if self.copies.leaves_out_rows(*NAME) else changes
        elif self.copies.leaves_out_ddl(CLASSIFIED):
            epoch.left_out, changes = [DDL], []
        else:
            epoch.ddl = DDL
        sealed = self._sealed(epoch)
        record = self._with_table(sealed.record, changes)
        sealed = self.copies.ended(sealed)
        self._take(sealed.tracked)
        self._apply(record, {}, changes)
        self.check()
        self.write_copies()

    def _with_table(self, record: EpochCommitted, rows: Any) -> EpochCommitted:
        """The record with what it says of the table, if it has rows of it."""
        if not rows or rows == [None]:
            return record
        incomplete, new = NAME in self.copies.incomplete, self.copies.new_channels.get(NAME, "")
        touched = TableTouched(*NAME, "", 1, 0, 0, incomplete=incomplete, new_channels=new)
        return replace(record, tables=(touched,))

    def _apply(self, record: EpochCommitted, rows: Rows, changes: list[Change]) -> None:
        entry = Entry(record, rows, changes, self.position)
        self.entries.append(entry)
        entry.apply_to(self.downstream, is_new=False)

    def check_new_channels(self) -> int:
        """A channel that begins with any of the complete copies becomes equal. Returns how many there are."""
        ended = [
            one.record.complete.copy for one in self.entries if one.record.ends_copy and one.record.complete
        ]
        for copy in ended:
            begins = CompleteCopy(copy, ended=False)
            begin = max(i for i, one in enumerate(self.entries) if one.record.complete == begins)
            channel, is_new = Downstream(), self.entries[begin].record.for_new_channels
            in_copy = is_new
            for one in self.entries[begin:]:
                one.apply_to(channel, is_new=in_copy)
                in_copy = in_copy and not one.record.ends_copy
                assert not in_copy or channel.rows.items() <= self.upstream.states[one.position].items()
                if is_new and one.record.ends_copy and one.record.complete == CompleteCopy(copy, ended=True):
                    assert channel.rows == self.upstream.states[one.position]
            assert channel.rows == self.upstream.states[self.position]
        return len(ended)

    def write_copies(self) -> None:
        if self.open:
            return
        for sealed in copy_epochs(self.copies, self):  # type: ignore[arg-type]
            self._take(sealed.tracked)

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
        if complete is not None:
            assert not (complete.ended and self.downstream.incomplete)
            if complete.ended:
                self.completed.append(self.began[complete.copy])
            else:
                self.began[complete.copy] = self.number
        copied: Any = rows.values(b"", 0, RelayPosition("", "", 0)) if rows else []
        record = replace(
            self._seal(OpenEpoch(self.number, 0.0)).record,
            copy=copy,
            complete=complete,
            for_new_channels=for_new,
        )
        self._apply(self._with_table(record, copied), dict(copied), [])
        self.check()
        return replace(self._sealed(OpenEpoch(self.number, 0.0)), tracked=tracked)

    def copy_again(self, *tables: str) -> None:
        """Somebody writes to the downstream's table, and an operator has it, or everything, copied again."""
        if (
            not self.is_included
            or self.open
            or (records := self.copies.requested(CopyRequest(tables), 0)) is None
        ):
            return
        self._insert(records)
        assert not self.copies.is_for_new
        if not self.copies.leaves_out_rows(*NAME):
            self.downstream.rows |= {2: 1000, 50: 1000}
            self.downstream.is_wrong = True

    def copy_for_new(self) -> None:
        """It is time for a copy for new channels."""
        if self.is_included and not self.open:
            self._insert(self.copies.repeated(0.0, 0))

    def cancel(self) -> None:
        """An operator wants no copy that has not begun; a table with wrong rows is mended by hand then."""
        if not self.is_included or self.open:
            return
        self._insert(self.copies.requested(CopyRequest(cancel=True), 0) or ())
        assert not self.copies.is_for_new
        state, downstream = self.copies.tables.get(NAME), self.downstream
        if self.copies.plan is not None or (state is not None and state.step is Step.WAITING):
            return
        assert downstream.incomplete == (state is not None and state.step is Step.RUNNING)
        if downstream.is_wrong:
            rows = self.upstream.states[self.position]
            wanted = downstream.rows.keys() if downstream.incomplete else rows.keys()
            downstream.rows = {number: rows[number] for number in wanted & rows.keys()}
            downstream.is_wrong = False

    def _insert(self, tracked: tuple[TrackedRecord, ...]) -> None:
        self.copies.written(replace(self.insert(tracked=tracked), tracked=()).record)
        self._take(tracked)

    def _sealed(self, epoch: OpenEpoch) -> SealedEpoch:
        if self.downstream.incomplete:
            self.lacking = self.number
        self.number += 1
        return self._seal(epoch)

    def _seal(self, epoch: OpenEpoch) -> SealedEpoch:
        return seal(epoch, RelayPosition(f"{SERVER}.000001", "binlog.000001", self.position), "")

    def _take(self, tracked: tuple[TrackedRecord, ...]) -> None:
        for name, record in tracked:
            self.tracked.pop(name, None)
            if record is not None:
                self.tracked[name] = record

    def check(self) -> None:
        """Each row that is there is as it is upstream at this position; if the table is whole, each is there."""
        expected = self.upstream.states[self.position]
        if self.is_included and self.lacking >= 0:
            assert incomplete_at(self.copies.plan, self.copies.tables, self.lacking)
        self.is_known = self.is_known or bool(self.downstream.rows)
        # Where changes are left out, the rows are old, and the table's begin removes them.
        if self.downstream.is_wrong or not self.is_included or self.copies.leaves_out_rows(*NAME):
            return
        if self.downstream.incomplete:
            assert self.downstream.rows.items() <= expected.items()
        elif self.copies.is_for_new or self._is_done:
            assert self.downstream.rows == expected

    @property
    def _is_done(self) -> bool:
        return NAME in self.copies.tables and self.copies.tables[NAME].step is Step.DONE


class Reader:
    """Reads at one moment, and hands in later."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.answers: list[Answer] = []
        self.refuses_table = self.refuses_all = False

    def read(self, size: int, behind: int) -> None:
        """Args: ``behind``: how much further the upstream's place is noted than what was visible, if it is there."""
        work = self.log.copies.next_work(0.0)
        if work is None:
            return
        upstream = self.log.upstream
        newest = len(upstream.states) - 1
        shown = max(work.base.position.pos, newest - behind)
        if (refusal := self._refusal(work)) is not None:
            self.answers.append(refusal)
        else:
            self.answers.append(self._answer(work, upstream.states[shown], upstream.at(newest), size))

    def _refusal(self, work: Work) -> Answer | None:
        """What cannot be copied need not be, or somebody mends it."""
        is_all = work.name == ("", "")
        refuses = self.refuses_all if is_all else self.refuses_table and not work.is_begun
        if not refuses:
            return None
        copies, downstream, visible = self.log.copies, self.log.downstream, work.base.position
        if not copies.can_be_dropped(work):
            lacks = downstream.incomplete or not downstream.is_there or copies.leaves_out_rows(*NAME)
            assert is_all or lacks
            self.refuses_all = self.refuses_table = False
            return None
        if is_all:
            return NothingFound(work=work, visible=visible)
        return TableFound(work=work, visible=visible, ddl=None, refused="why")

    def _answer(self, work: Work, rows: Rows, visible: BinlogPosition, size: int) -> Answer:
        if work.name == ("", ""):
            if work.is_begun:
                return ObjectsFound(work=work, visible=visible, statements=())
            names = (NAME,) if self.log.is_included else ()
            refused = {NAME: "why"} if work.is_complete and self.refuses_table else {}
            return TablesFound(work=work, visible=visible, names=names, refused=refused)
        if not work.is_begun:
            return TableFound(work=work, visible=visible, ddl=DDL, definition=TABLE)
        lower = int(work.lower[0]) if work.lower else -1
        above = sorted(number for number in rows if number > lower)
        chosen = [(number, rows[number]) for number in above[:size]]
        return ChunkRead(
            work=work,
            visible=visible,
            structure=STRUCTURE,
            keys=[key(number) for number, _ in chosen],
            after=chosen,  # type: ignore[arg-type]
            values=lambda after, header, epoch, end: after,
            upper=(str(chosen[-1][0]),) if chosen else work.lower,
            is_last=len(chosen) < size,
        )

    def hand_in(self) -> None:
        if self.answers:
            self.log.copies.hand_in(self.answers.pop(0), threading.Event())


_CHANGES = st.tuples(st.integers(0, 12), st.none() | st.integers(0, 99))
# Some stand twice, so that they come more often.
_ACTIONS = st.one_of(
    st.tuples(st.just("commit"), _CHANGES),
    st.tuples(st.just("commit"), _CHANGES),
    st.tuples(st.just("publish"), st.integers(1, 2)),
    st.tuples(st.just("open"), st.integers(1, 4)),
    st.tuples(st.just("read"), st.tuples(st.integers(2, 6), st.integers(0, 3))),
    st.tuples(st.just("read"), st.tuples(st.integers(2, 6), st.integers(0, 3))),
    st.just(("hand in", None)),
    st.just(("hand in", None)),
    st.just(("write", None)),
    st.sampled_from(
        [
            (name, None)
            for name in (
                *("restart", "commit", "write", "copy again", "copy all", "cancel", "other tables"),
                *("copy for new", "copy for new"),
                *("refuse table", "refuse all"),
            )
        ]
    ),
)


@given(
    st.lists(_CHANGES, min_size=4, max_size=12),
    st.booleans(),
    st.integers(0, 2),
    st.integers(-1, 6),
    st.lists(_ACTIONS, min_size=8, max_size=60),
)
@example([(0, 0), (0, None), (0, None), (0, None)], False, 1, 0, [])
@example(
    [(0, 1)] * 4,
    True,
    2,
    -1,
    [("commit", (0, 2)), ("open", 1), ("read", (6, 1)), ("publish", 1), ("hand in", None)],
)
@settings(max_examples=600, deadline=None)
def test_the_log_leads_to_the_upstreams_rows(
    before: list[Any], is_included: bool, steps: int, refused_from: int, actions: list[tuple[str, Any]]
) -> None:
    upstream = Upstream()
    for change in before:
        upstream.commit(change)
    log = Log(upstream, is_included=is_included)
    log.position = len(before)
    log.restarted()
    reader = Reader(log)
    for _ in range(steps):  # the list of tables, and the table's begin
        reader.read(1, 0)
        reader.hand_in()
        log.write_copies()
    for action, argument in actions:
        _act(action, argument, log, reader)
    if not log.is_included:
        reader.answers.clear()
        log.open.clear()
        log.is_included = True
        log.restarted()
    _finish(log, reader)
    reader.refuses_all = reader.refuses_table = False
    if log.downstream.is_wrong:  # what should have mended it was refused
        log.copy_again("shop.*")
        _finish(log, reader)
    assert log.downstream.rows == upstream.states[-1]
    _cancel_listed(log, reader)
    assert log.downstream.rows == upstream.states[-1]
    # DDL before, between or after the begins of the complete copy and of its table.
    changes = [*before[: steps + 1], None, *before]
    _copy_all(log, reader, changes, refused_from)
    _copy_all(log, reader, changes)
    assert log.downstream.rows == upstream.states[-1]
    _copy_for_new(log, reader, changes, refused_from)
    _copy_for_new(log, reader, changes)
    assert log.downstream.rows == upstream.states[-1]
    assert CompleteCopies.decode(log.tracked[COMPLETED_KEY]).began == tuple(log.completed)
    assert log.check_new_channels() == len(log.completed) >= 2


def _act(action: str, argument: Any, log: Log, reader: Reader) -> None:
    match action:
        case "commit":
            log.upstream.commit(argument)
        case "open":
            log.read(argument)
        case "publish" if log.position < len(log.upstream.binlog):
            log.publish(argument)
        case "read":
            reader.read(*argument)
        case "hand in":
            reader.hand_in()
        case "write":
            log.write_copies()
        case "copy again":
            log.copy_again("shop.*")
        case "copy all":
            log.copy_again()
        case "copy for new":
            log.copy_for_new()
        case "cancel":
            log.cancel()
        case "refuse table":
            reader.refuses_table = not reader.refuses_table
        case "refuse all":
            reader.refuses_all = not reader.refuses_all
        case "restart" | "other tables":
            reader.answers.clear()
            log.open.clear()
            log.is_included = log.is_included == (action == "restart")
            log.restarted()


def _cancel_listed(log: Log, reader: Reader) -> None:
    """A copy is listed and then cancelled: a reader inside the one before still lacks rows."""
    reader.answers.clear()
    log.copy_again("shop.*")
    reader.read(1, 0)
    reader.hand_in()
    log.write_copies()
    log.cancel()


def _copy_all(log: Log, reader: Reader, changes: list[Change], refused_from: int = -1) -> None:
    """Copy everything again during changes; from one of them on the table cannot be copied."""
    log.copy_again()
    assert log.downstream.is_wrong
    _during(log, reader, changes, refused_from)


def _copy_for_new(log: Log, reader: Reader, changes: list[Change], refused_from: int = -1) -> None:
    """Copy everything for new channels, as ``_copy_all`` does for all of them."""
    log.copy_for_new()
    assert log.copies.is_for_new
    begins = log.downstream.begins
    _during(log, reader, changes, refused_from)
    assert log.downstream.begins == begins


def _during(log: Log, reader: Reader, changes: list[Change], refused_from: int) -> None:
    for number, change in enumerate(changes):
        reader.refuses_table = reader.refuses_table or number == refused_from
        log.upstream.commit(change)
        reader.hand_in()
        log.write_copies()
        reader.read(2, 1)
        log.publish(1)
    _finish(log, reader)
    reader.refuses_table = False


def _finish(log: Log, reader: Reader) -> None:
    for _ in range(1000):
        if log.position < len(log.upstream.binlog):
            log.publish(3)
        elif not log.copies.are_running:
            return
        reader.hand_in()
        reader.read(3, 0)
        log.write_copies()
    raise AssertionError("the copy does not end")


def test_a_copy_for_new_channels_comes_at_its_time() -> None:
    log = Log(Upstream(), is_included=True)
    reader = Reader(log)

    def is_due(now: int) -> bool:
        log._insert(records := log.copies.repeated(10.0, now))
        assert bool(records) == log.copies.is_for_new
        return log.copies.is_for_new

    def ask(request: CopyRequest) -> None:
        log._insert(log.copies.requested(request, 30_000) or ())
        assert not log.copies.is_for_new

    assert not is_due(5000)
    _finish(log, reader)
    assert is_due(5000)  # there was none
    _finish(log, reader)
    assert [is_due(14_999), is_due(15_000)] == [False, True]
    ask(CopyRequest(cancel=True))
    log.restarted()
    assert [is_due(24_999), is_due(25_000)] == [False, True]
    ask(CopyRequest((NAME[0] + ".*",)))
    assert not log.copies.repeated(10.0, 31_000)
    _finish(log, reader)
    assert is_due(31_000)  # it came to nothing
    _finish(log, reader)
    ask(CopyRequest())
    _finish(log, reader)
    assert [is_due(39_999), is_due(40_000)] == [False, True]
    reader.refuses_table = True
    _finish(log, reader)
    assert [is_due(49_999), is_due(50_000)] == [False, True]
    _finish(log, reader)
    assert is_due(1000)  # the clock was set back


def test_the_copier_asks_what_is_left_while_the_publisher_forgets_tables() -> None:
    names = [("shop", f"t{number}") for number in range(2_000)]
    stored = {topic_key(name): TableCopy("c", Step.DONE).encode() for name in names}
    copies = Copies(stored, set(), Boundary(0, "", BinlogPosition(SERVER, 1, 4)))

    def forget() -> None:
        for name in names:
            copies.forgotten(name)

    publisher = threading.Thread(target=forget)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        publisher.start()
        while publisher.is_alive():
            assert not copies.are_running
    finally:
        sys.setswitchinterval(interval)
        publisher.join()
    assert copies.tables == {}


def test_who_waits_for_work_is_woken_where_it_is_to_stop() -> None:
    copies = Copies({}, set(), Boundary(0, "", BinlogPosition(SERVER, 1, 4)))
    found: list[Work | None] = []
    reader = threading.Thread(target=lambda: found.append(copies.next_work(3600)), daemon=True)
    reader.start()
    while reader.is_alive():
        copies.wake()
        reader.join(0.01)
    assert found == [None]
