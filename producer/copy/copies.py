"""The publisher's side of copies: what is copied, what changed meanwhile, and what goes into the log next.

Readers hand in what they read upstream: which tables there are, a table's definition, a chunk of its rows. Each answer
names a boundary (everything executed up to there was visible) and a position in the binlog (nothing after it was
visible). It goes into the log at the first boundary at or after that position. What changed in between is in the log
already, so its keys are left out of the chunk. Why this is right: docs/decisions/0034.
"""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from producer.copy.cascades import NO_CASCADES, Cascades, referred_tables
from producer.copy.requests import CopyRequest
from producer.copy.state import (
    COMPLETE_KEY,
    COMPLETED_KEY,
    PLAN_KEY,
    REPLICATED_KEY,
    CompleteCopies,
    Plan,
    Replicated,
    Step,
    TableCopy,
    load,
    topic_key,
)
from producer.epochs.open_epoch import Records, SealedEpoch, TrackedRecord
from producer.structures.store import BinlogPosition
from relay_store.layout.directory import RelayPosition, file_number
from schemas.ddl.classify import classify
from schemas.ddl.kinds import ClassifiedStatement
from schemas.ddl.table_definition import TableDefinition
from schemas.structure import TableStructure
from schemas.tables import QualifiedName, TableFilter
from schemas.wire.avro_schema import OP_BEHIND
from schemas.wire.epoch import ABSENT, INCOMPLETE, CompleteCopy, EpochCommitted, SchemaChanged
from schemas.wire.rows import header_size, key_prefix

#: makes whole values of rows' `after` bytes, given what each begins with, the number of the epoch, and where it ends
RowValues = Callable[[list[bytes], bytes, int, RelayPosition], list[bytes]]


@dataclass(frozen=True)
class Boundary:
    """The end of an epoch.

    Attributes:
        epoch: its number.
        executed: GTIDs up to there, as text.
        position: in the upstream's binlog.
    """

    epoch: int
    executed: str
    position: BinlogPosition

    @classmethod
    def after(cls, epoch: EpochCommitted) -> Boundary:
        """The end of an epoch."""
        position = BinlogPosition(epoch.source_id, file_number(epoch.source_file), epoch.source_pos)
        return cls(epoch.epoch, epoch.executed_gtids, position)


@dataclass(frozen=True)
class Work:
    """Something to read.

    Attributes:
        name: the table; ("", "") for what is not of one table.
        run: of the table; another run begins where DDL changes the table.
        base: what is executed there must be visible to the reader.
        is_begun: whether rows are to be read, else the table's definition; without a table: whether views and
            programs are to be read, else which tables there are.
        lower: SQL literals of the key columns: the rows above them are to be read; empty for the first ones.
        is_complete: without a table: whether it is to be found out which tables cannot be copied.
        attempt: how often these rows were read in vain, because changes of other tables may have changed them.
    """

    name: QualifiedName
    run: int
    base: Boundary
    is_begun: bool
    lower: tuple[str, ...] = ()
    is_complete: bool = False
    attempt: int = 0


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What was read.

    Attributes:
        work: what was asked.
        visible: nothing after this position was visible.
        size: bytes that it takes, about.
    """

    work: Work
    visible: BinlogPosition
    size: int = 0


@dataclass(frozen=True, kw_only=True)
class TablesFound(Answer):
    """The tables to copy.

    Attributes:
        names: in the order of their copies.
        statements: what creates their databases.
        refused: those that cannot be copied, and why; if that was to be found out.
    """

    names: tuple[QualifiedName, ...]
    statements: tuple[SchemaChanged, ...] = ()
    refused: Mapping[QualifiedName, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class NothingFound(Answer):
    """Nothing can be copied again, whatever the tables are."""


@dataclass(frozen=True, kw_only=True)
class ObjectsFound(Answer):
    """What creates views and stored programs, in an order that works."""

    statements: tuple[SchemaChanged, ...]


@dataclass(frozen=True, kw_only=True)
class TableFound(Answer):
    """A table's definition.

    Attributes:
        ddl: its CREATE TABLE; None if there is no such table, or it is not copied.
        definition: the same, understood.
        estimate: rows, as the upstream guesses.
        is_held: whether the publisher stands still until the rows are in the log.
        refused: why the table is not copied.
        cascades: what changes its rows, and which rows its changes change, without a trace in the binlog.
    """

    ddl: SchemaChanged | None
    definition: TableDefinition | None = None
    estimate: int = 0
    is_held: bool = False
    refused: str = ""
    cascades: Cascades = NO_CASCADES


@dataclass(frozen=True, kw_only=True)
class ChunkRead(Answer):
    """Rows of a table.

    Attributes:
        structure: of the rows.
        keys: the Kafka key of each row.
        after: the Avro bytes of each row.
        values: makes values of them.
        upper: SQL literals of the last row's key columns.
        is_last: whether there are no rows above it.
    """

    structure: TableStructure
    keys: list[bytes]
    after: list[bytes]
    values: RowValues
    upper: tuple[str, ...]
    is_last: bool


@dataclass
class _Hold:
    """The publisher stands still for tables that are read at one position.

    Attributes:
        boundary: where it stands; None while it does not.
        position: how far it may go on before it stands still again; None while the reader does not know.
        begun: those of the tables whose begins are in the log.
    """

    names: frozenset[QualifiedName]
    boundary: Boundary | None = None
    position: BinlogPosition | None = None
    begun: set[QualifiedName] = field(default_factory=set)


@dataclass
class _Table:
    """A table that is copied.

    Attributes:
        state: as the log says it.
        run: answers of another run are of no use.
        reads_after: the epoch of the boundary of what is being read; None while nothing is.
        lower: of what is to be read next.
        all_read: whether nothing is to be read until what was handed in is in the log.
        watched_from: the epoch behind which the keys of its changes are kept; None if they are not.
        changed_at: the last epoch in which rows were cut short by missing columns.
        waits_for: the tables that have to be complete before it begins.
        attempt: how often the next rows were read in vain.
    """

    state: TableCopy
    run: int = 0
    reads_after: int | None = None
    lower: tuple[str, ...] = ()
    all_read: bool = False
    watched_from: int | None = None
    changed_at: int = -1
    waits_for: frozenset[QualifiedName] = frozenset()
    attempt: int = 0

    def begins_anew(self) -> None:
        """What was read is of no use; read again from where the log is."""
        self.run += 1
        self.lower, self.all_read, self.reads_after = self.state.upper, False, None


_ALL: QualifiedName = ("", "")
_DELETE = ord("d")


class Copies:
    """The copies of one log. Readers call ``next_work``, ``hand_in`` and ``give_up``; the publisher the others.

    Args:
        stored: the records of the tracked topic.
        known: the tables of which the log has had rows.
        last: the end of the last epoch.
        most: bytes that may wait to be written into the log.
    """

    def __init__(
        self,
        stored: Mapping[bytes, bytes],
        known: Collection[QualifiedName],
        last: Boundary,
        most: int = 64 << 20,
    ) -> None:
        self._plan, tables = load(stored)
        replicated = stored.get(REPLICATED_KEY)
        self._replicated = Replicated.decode(replicated) if replicated is not None else None
        self._known = known
        complete = stored.get(COMPLETE_KEY)
        self._complete = Plan.decode(complete) if complete is not None else None
        completed = stored.get(COMPLETED_KEY)
        self._completed = CompleteCopies.decode(completed) if completed is not None else CompleteCopies()
        self._tables = {name: _Table(state) for name, state in tables.items()}
        self._interrupt(tables)
        self._hold: _Hold | None = None
        self._plan_table = _Table(TableCopy(""))
        self._boundary, self._most, self._began = last, most, -1
        self._waiting: deque[Answer] = deque()
        self._size = 0
        self._lock = threading.Condition()
        # The keys that changed of tables that are watched, by epoch; and whether the open epoch has rows already.
        self._changed: deque[tuple[int, set[bytes]]] = deque()
        self._open: set[bytes] = set()
        self._prefixes: tuple[bytes, ...] = ()
        self._parent_prefixes: tuple[bytes, ...] = ()
        self._has_rows = False
        self._incomplete = self._left_out = self._unknown = frozenset[QualifiedName]()
        self._new_channels: dict[QualifiedName, str] = {}
        self._settle()

    # -- for readers -----------------------------------------------------------------------------

    def next_work(self, seconds: float) -> Work | None:
        """Something to read that nobody reads; None if there is nothing for so long, or until ``wake``."""
        with self._lock:
            found = self._next_work()
            if found is None:
                self._lock.wait(seconds)
                found = self._next_work()
            return found

    def wake(self) -> None:
        """Let those that wait for work, for room or for an answer look again, because they are to stop."""
        with self._lock:
            self._lock.notify_all()

    def hand_in(self, answer: Answer, stop: threading.Event) -> None:
        """Let the publisher have what was read; waits for room."""
        with self._lock:
            while self._waiting and self._size + answer.size > self._most and not stop.is_set():
                if not self._is_of_use(answer.work):
                    return
                self._lock.wait(0.1)
            if not self._is_of_use(answer.work):
                return
            table = self._table(answer.work.name)
            table.reads_after = None
            if self._is_held(answer.work.name):
                table.all_read = True  # its reader goes on by itself
            elif isinstance(answer, ChunkRead):
                table.lower, table.all_read = answer.upper, answer.is_last
            else:
                table.all_read = True
            self._waiting.append(answer)
            self._size += answer.size
            self._lock.notify_all()

    @property
    def waiting(self) -> tuple[int, int]:
        """Rows that were handed in and are not in the log, and bytes that they take, about."""
        with self._lock:
            return sum(len(one.keys) for one in self._waiting if isinstance(one, ChunkRead)), self._size

    def give_up(self, work: Work) -> None:
        """It could not be read just now."""
        with self._lock:
            if self._is_of_use(work):
                self._table(work.name).reads_after = None

    def hold(self, work: Work, cascades: Cascades, stop: threading.Event) -> list[Work]:
        """Let the publisher stand still at its next boundary, for a table and the others of its circle.

        Returns what is to be read there; nothing if nobody needs it any more, or not yet.
        """
        hold = _Hold(cascades.circle | {work.name})
        with self._lock:
            while self._is_of_use(work) and not stop.is_set():
                if self._must_wait(work.name, cascades):
                    return []
                self._hold = self._hold or hold
                if self._hold is hold and hold.boundary is not None:
                    return self._held_work(hold, work, hold.boundary)
                self._lock.wait(0.1)
            if self._hold is hold:
                self._give_up_hold()
            return []

    def _held_work(self, hold: _Hold, work: Work, base: Boundary) -> list[Work]:
        found = [Work(work.name, work.run, base, is_begun=False)]
        for name in sorted(hold.names - {work.name}):
            # One that is whole is read with the others: the first of them has it copied again.
            copy = self._tables[work.name].state.copy
            whole = TableCopy(copy, Step.DONE, again=True, for_new=self.is_for_new)
            table = self._tables.setdefault(name, _Table(whole))
            table.begins_anew()
            table.reads_after, table.all_read = base.epoch, True
            found.append(Work(name, table.run, base, is_begun=False))
        return found

    def go_on_to(self, work: Work, position: BinlogPosition) -> None:
        """Let the publisher, which stands still, go on to a position, and stand there until the tables are complete."""
        with self._lock:
            if self._hold is not None and work.name in self._hold.names and self._is_of_use(work):
                self._hold.position = position

    def break_off(self, work: Work) -> None:
        """What was read while the publisher stood still came to no end; read it anew."""
        with self._lock:
            if self._is_of_use(work):
                if self._is_held(work.name):
                    self._give_up_hold()
                else:
                    self._tables[work.name].begins_anew()

    def _is_held(self, name: QualifiedName) -> bool:
        return self._hold is not None and name in self._hold.names

    def _release(self, name: QualifiedName) -> None:
        """A table is not read any more: the others for which the publisher stands still with it begin anew."""
        if self._is_held(name):
            self._give_up_hold()

    def _give_up_hold(self) -> None:
        hold, self._hold = self._hold, None
        if hold is not None:
            self._interrupt(hold.names)
            self._settle()
            self._lock.notify_all()

    def _interrupt(self, names: Collection[QualifiedName]) -> None:
        """Tables were not read to the end: those that are read at one position, with their circles, begin anew."""
        tables = [self._tables[name] for name in names if name in self._tables]
        for table in tables:
            table.state = table.state.interrupted()
            table.begins_anew()
        for table in tables:
            circle = [self._tables[name].state for name in table.state.circle if name in self._tables]
            if table.state.step is Step.DONE and any(one.lacks_changes for one in circle):
                table.state = replace(table.state.read_anew(), for_new=self.is_for_new)
                table.begins_anew()

    def _next_work(self) -> Work | None:
        if (plan := self._plan) is not None:
            table, is_free = self._plan_table, not plan.objects or not self._waits_for_begin
            if is_free and table.reads_after is None and not table.all_read:
                table.reads_after = self._boundary.epoch
                return Work(
                    _ALL, table.run, self._boundary, is_begun=plan.objects, is_complete=plan.is_complete
                )
            if not plan.objects:
                return None
        idle = [
            (name, table)
            for name, table in self._tables.items()
            if table.state.step is not Step.DONE and table.reads_after is None and not table.all_read
        ]
        # Definitions first: what waits for its begin is left out of the log.
        for name, table in sorted(idle, key=lambda one: one[1].state.step is Step.RUNNING):
            is_begun = table.state.step is Step.RUNNING
            if self._waits(table.waits_for) or (is_begun and not self._watch(table)):
                continue
            table.reads_after = self._boundary.epoch
            return Work(name, table.run, self._boundary, is_begun, table.lower, attempt=table.attempt)
        return None

    def _waits(self, names: Collection[QualifiedName]) -> bool:
        """Whether some of these tables are not complete."""
        return any(name in self._tables and self._tables[name].state.step is not Step.DONE for name in names)

    def _must_wait(self, name: QualifiedName, cascades: Cascades) -> bool:
        """Whether a table cannot begin yet; what was read of it is of no use then."""
        table = self._tables[name]
        table.waits_for = cascades.parents
        if not self._waits(cascades.parents):
            return False
        self._release(name)
        table.begins_anew()
        return True

    @property
    def _waits_for_begin(self) -> bool:
        return any(table.state.step is Step.WAITING for table in self._tables.values())

    def _watch(self, table: _Table) -> bool:
        """Keep the keys of a table's changes. Returns whether all of those after the last boundary are kept."""
        if table.watched_from is None:
            table.watched_from = self._boundary.epoch
            self._settle()
            # The publisher notes rows in the other order: it says that there are some, and looks for prefixes.
            if self._has_rows:
                table.watched_from += 1
        return table.watched_from <= self._boundary.epoch

    def _table(self, name: QualifiedName) -> _Table:
        return self._plan_table if name == _ALL else self._tables[name]

    def _is_of_use(self, work: Work) -> bool:
        table = self._plan_table if work.name == _ALL else self._tables.get(work.name)
        return table is not None and table.run == work.run

    # -- what the publisher meets ----------------------------------------------------------------

    @property
    def plan(self) -> Plan | None:
        """What is to be copied, as long as the log does not have the list of tables."""
        return self._plan

    @property
    def tables(self) -> dict[QualifiedName, TableCopy]:
        """The state of each table."""
        with self._lock:
            return {name: table.state for name, table in self._tables.items()}

    @property
    def next_epoch(self) -> int:
        """The number of the epoch behind the last one."""
        return self._boundary.epoch + 1

    @property
    def are_running(self) -> bool:
        """Whether something is left to copy."""
        with self._lock:
            left = any(table.state.step is not Step.DONE for table in self._tables.values())
            return left or self._plan is not None

    @property
    def is_for_new(self) -> bool:
        """Whether what runs is a copy for new channels; it never runs together with another one."""
        return any(plan is not None and plan.for_new for plan in (self._plan, self._complete))

    @property
    def copying(self) -> bool:
        """Whether something is left to copy that all channels apply."""
        return self.are_running and not self.is_for_new

    @property
    def incomplete(self) -> frozenset[QualifiedName]:
        """The tables of which rows may be missing downstream."""
        return self._incomplete

    @property
    def new_channels(self) -> Mapping[QualifiedName, str]:
        """What a channel lacks that begins with the copy that runs, and only that: as in ``TableTouched``."""
        return self._new_channels

    def note(self, records: Records) -> None:
        """Rows of an epoch are about to be written."""
        self._has_rows = self._has_rows or bool(records)
        if self._prefixes:
            prefixes = self._prefixes
            self._open.update([key for key in records.keys if key.startswith(prefixes)])
        if self._parent_prefixes:
            # An UPDATE that changes the key is a DELETE and an INSERT here.
            parents = self._parent_prefixes
            self._open.update(
                [
                    key
                    for key, value in zip(records.keys, records.values, strict=True)
                    if key.startswith(parents) and value[header_size(value) + OP_BEHIND] == _DELETE
                ]
            )

    def leaves_out_rows(self, db: str, table: str) -> bool:
        """Whether a table's rows are left out of the log: its copy begins later, with nothing of it downstream."""
        plan, name = self._plan, (db, table)
        return name in self._left_out or (plan is not None and not plan.objects and plan.is_new(name))

    def leaves_out_ddl(self, statement: ClassifiedStatement) -> bool:
        """Whether a DDL is left out of the log, which does not have yet what it changes: a later answer will."""
        if self._plan is not None and self._plan.leaves_out(statement):
            return True
        return any(name in self._unknown for name in statement.table_names)

    def ended(self, epoch: SealedEpoch) -> SealedEpoch:
        """An epoch of changes ended, all rows of which were noted. Returns it with what changes of the copies."""
        with self._lock:
            record = epoch.record
            for name in epoch.lacking:
                if name in self._tables:
                    self._tables[name].changed_at = record.epoch
            statements = [*epoch.left_out, *([record.ddl] if record.ddl is not None else [])]
            tracked = dict(one for ddl in statements for one in (*self._meet(ddl), *self._meet_keys(ddl)))
            self._pass(record)
            return replace(epoch, tracked=(*epoch.tracked, *tracked.items())) if tracked else epoch

    def _meet(self, ddl: SchemaChanged) -> list[TrackedRecord]:
        """DDL: what was read before it is of no use, and the copies of its tables begin again under their new names."""
        records: list[TrackedRecord] = []
        if self._plan is not None:
            self._plan_table.begins_anew()
            if self._plan.is_complete and self._plan.objects:
                # Whoever begins with this copy could not apply the DDL: the copy begins behind it.
                self._plan = replace(self._plan, objects=False)
                records.append((PLAN_KEY, self._plan.encode()))
        names = {(t.db, t.table) for t in ddl.tables}
        names |= {(t.renamed_to_db or t.db, t.renamed_to) for t in ddl.tables if t.renamed_to}
        if ddl.kind == "DROP DATABASE":
            database = classify(ddl.statement, ddl.default_db, ddl.source_flavor, sql_mode=ddl.mode).database
            names |= {name for name in self._tables if name[0] == database}
        # It may be possible to copy them now.
        refused = [name for name in names if name in self._tables and self._tables[name].state.refused]
        records += [self._drop(name) for name in refused]
        for name in names:
            self._release(name)
        met = [
            name for name in names if name in self._tables and self._tables[name].state.step is not Step.DONE
        ]
        if not met:
            return records
        if ddl.kind == "TRUNCATE TABLE":
            for name in met:
                self._tables[name].begins_anew()
            return records
        states = [self._tables[name].state for name in met]
        again, incomplete = any(s.again for s in states), any(s.incomplete for s in states)
        for name in sorted(names):
            old = self._tables.get(name)
            is_new = all(s.is_unknown for s in states)
            state = TableCopy(
                states[0].copy,
                again=again or incomplete,
                is_new=is_new,
                is_frozen=any(s.is_frozen for s in states),
                incomplete=incomplete,
                ended=max(s.ended for s in states),
                is_held=any(s.is_held for s in states),
                parents=tuple({parent for s in states for parent in s.parents}),
                circle=tuple({one for s in states for one in s.circle}),
                for_new=self.is_for_new,
            )
            self._tables[name] = _Table(state, run=old.run + 1 if old else 0)
            records.append((topic_key(name), state.encode()))
        self._settle()
        return records

    def _meet_keys(self, ddl: SchemaChanged) -> list[TrackedRecord]:
        """DDL that may add foreign keys, or change the names of their tables."""
        refers = referred_tables(ddl)
        renamed = {
            (t.db, t.table): (t.renamed_to_db or t.db, t.renamed_to) for t in ddl.tables if t.renamed_to
        }
        if not refers and not renamed:
            return []
        self._give_up_hold()
        for table in self._tables.values():
            if table.state.step is Step.WAITING:
                table.begins_anew()  # what was read of foreign keys is old
        records: list[TrackedRecord] = []
        named = {(t.db, t.table) for t in ddl.tables} | set(renamed.values())
        states = [self._tables[name].state for name in refers if name in self._tables]
        above = {*refers, *renamed.values(), *(parent for state in states for parent in state.parents)}
        below = [name for name, table in self._tables.items() if not named.isdisjoint(table.state.parents)]
        for name in below:
            table = self._tables[name]
            parents = {*table.state.parents, *above} - {name}
            table.state = replace(table.state, parents=tuple(sorted(parents)))
            records.append((topic_key(name), table.state.encode()))
        if any(state.lacks_changes for state in states):
            records += self._freeze({*named, *below}, states[0].copy, None)
        self._settle()
        return records

    def _freeze(
        self, names: Collection[QualifiedName], copy: str, begins: QualifiedName | None
    ) -> list[TrackedRecord]:
        """Rows of these tables change from here on in ways that the log does not have: copy them again, behind it."""
        records: list[TrackedRecord] = []
        hold = self._hold
        if hold is not None and begins not in hold.names and not hold.names.isdisjoint(names):
            self._give_up_hold()
        for name in sorted(names):
            old = self._tables.get(name) or _Table(TableCopy(copy, Step.DONE))
            if old.state.step is Step.WAITING and (old.state.is_frozen or old.state.is_unknown):
                continue
            # The run goes on if its reader waits for this with the publisher at a standstill.
            table = old if self._is_held(name) else _Table(old.state, run=old.run + 1)
            table.state = old.state.frozen(for_new=self.is_for_new)
            self._tables[name] = table
            records.append((topic_key(name), table.state.encode()))
        return records

    def _pass(self, epoch: EpochCommitted) -> None:
        """Behind an epoch."""
        if self._open:
            self._changed.append((epoch.epoch, self._open))
            self._open = set()
        self._has_rows = False
        if epoch.source_id != self._boundary.position.server:
            for answer in self._waiting:
                if self._is_of_use(answer.work) and answer.visible.server != epoch.source_id:
                    self._release(answer.work.name)
                    self._table(answer.work.name).begins_anew()
        self._boundary = Boundary.after(epoch)
        needed = [answer.work.base.epoch for answer in self._waiting]
        needed += [table.reads_after for table in self._tables.values() if table.reads_after is not None]
        oldest = min(needed, default=self._boundary.epoch)
        while self._changed and self._changed[0][0] <= oldest:
            self._changed.popleft()
        self._lock.notify_all()

    def _settle(self) -> None:
        """The states of tables have changed."""
        tables = self._tables.items()
        incomplete = [name for name, table in tables if table.state.incomplete]
        left_out = [name for name, table in tables if table.state.leaves_out_rows]
        if self.is_for_new:
            self._new_channels = dict.fromkeys(incomplete, INCOMPLETE) | dict.fromkeys(left_out, ABSENT)
            incomplete, left_out = [], []
        else:
            self._new_channels = {}
        self._incomplete, self._left_out = frozenset(incomplete), frozenset(left_out)
        self._unknown = frozenset(name for name, table in tables if table.state.is_unknown)
        for _, table in tables:
            if table.state.step is not Step.RUNNING:
                table.watched_from = None
        watched = [name for name, table in tables if table.watched_from is not None]
        parents = {parent for name in watched for parent in self._tables[name].state.parents}
        self._prefixes, self._parent_prefixes = _prefixes(watched), _prefixes(parents)

    # -- what an operator asks for ---------------------------------------------------------------

    def requested(self, request: CopyRequest, now: int) -> tuple[TrackedRecord, ...] | None:
        """Copy tables again, or drop copies that have not begun.

        Args:
            now: ms since 1970.

        Returns the records that change, none if the log has them already; None if the request has to wait.
        """
        with self._lock:
            if request.cancel:
                return self._cancel()
            plan = self._plan
            known = {table.state.copy for table in self._tables.values()}
            if request.copy in known or (plan is not None and plan.copy == request.copy):
                return ()
            if plan is not None and not plan.for_new:
                return None
            records = self._gives_up_for_new()
            plan = Plan(request.copy, request.tables, again=True, is_complete=not request.tables, asked=now)
            return tuple(dict((*records, self._begins_plan(plan))).items())

    def repeated(self, every: float, now: int) -> tuple[TrackedRecord, ...]:
        """Copy everything for new channels if that is due, as ``CompleteCopies.is_due`` says, and nothing runs.

        Returns the records that change.
        """
        with self._lock:
            if self._complete is not None or self.are_running or not self._completed.is_due(every, now):
                return ()
            plan = Plan(str(uuid.uuid4()), again=True, is_complete=True, asked=now, for_new=True)
            return (self._begins_plan(plan),)

    def _begins_plan(self, plan: Plan) -> TrackedRecord:
        self._plan = plan
        self._plan_table.begins_anew()
        self._lock.notify_all()
        return (PLAN_KEY, plan.encode())

    def _gives_up_for_new(self, *, is_late: bool = True) -> list[TrackedRecord]:
        """A copy for new channels comes to nothing, if one runs. None has begun with it, since it has not ended.

        Args:
            is_late: whether the next one is due as this one was; else it is due once the time for one has passed.
        """
        plan = self._complete or self._plan
        if plan is None or not self.is_for_new:
            return []
        records: list[TrackedRecord] = [(PLAN_KEY, None), (COMPLETE_KEY, None)]
        if not is_late:
            self._completed = replace(self._completed, asked=plan.asked)
            records.append((COMPLETED_KEY, self._completed.encode()))
        self._plan = self._complete = self._hold = None
        for table in (self._plan_table, *self._tables.values()):
            table.begins_anew()
        running = [name for name, table in self._tables.items() if table.state.step is not Step.DONE]
        records += [self._drop(name) for name in running]
        self._settle()
        self._lock.notify_all()
        return records

    def _cancel(self) -> tuple[TrackedRecord, ...]:
        if self.is_for_new:
            return tuple(self._gives_up_for_new(is_late=False))
        plan = self._plan
        records = self._drop_plan(plan) if plan is not None and plan.again else []
        dropped = [name for name, table in self._tables.items() if table.state.can_be_dropped]
        records += [self._drop(name) for name in dropped]
        self._settle()
        return tuple(records)

    def _drop_plan(self, plan: Plan) -> list[TrackedRecord]:
        """Nothing is copied again."""
        self._plan = replace(plan, tables=(), again=False, is_complete=False) if plan.had else None
        self._plan_table.begins_anew()
        records = self._gives_up_complete() if plan.is_complete else []
        return [*records, (PLAN_KEY, self._plan.encode() if self._plan else None)]

    def _drop(self, name: QualifiedName, refused: str = "") -> TrackedRecord:
        """Nothing more is copied of a table."""
        self._release(name)
        old = self._tables.pop(name)
        state = old.state.dropped(self.next_epoch, refused)
        if state is not None:
            self._tables[name] = _Table(state, run=old.run + 1)
        return (topic_key(name), state.encode() if state else None)

    def _gives_up_complete(self) -> list[TrackedRecord]:
        """The complete copy that is under way will lack something."""
        self._complete = None
        return [(COMPLETE_KEY, None)]

    def replicates(self, tables: TableFilter) -> tuple[TrackedRecord, ...]:
        """These tables are replicated from now on. Those that were not before are copied.

        Returns the records that change. Call it before anything is decoded.
        """
        now, before = Replicated(tables.include, tables.exclude), self._replicated
        if now == before:
            return ()
        records: list[TrackedRecord] = [(REPLICATED_KEY, now.encode())]
        with self._lock:
            self._replicated = now
            records += self._gives_up_for_new()
            for name in [name for name in self._tables if not tables.allows(*name)]:
                del self._tables[name]
                records.append((topic_key(name), None))
            if before is not None and (plan := _with_new_tables(self._plan, before)) != self._plan:
                self._plan = plan
                self._plan_table.begins_anew()
                records.append((PLAN_KEY, plan.encode()))
            if self._complete is not None:
                records += self._gives_up_complete()
            self._settle()
        return tuple(records)

    def can_be_dropped(self, work: Work) -> bool:
        """Whether a table, or all, need not be copied if that is impossible."""
        with self._lock:
            if not self._is_of_use(work):
                return False
            if work.name == _ALL:
                return self._plan is not None and self._plan.again and not self._plan.had
            return self._tables[work.name].state.can_be_dropped

    # -- into the log ----------------------------------------------------------------------------

    def stands_at(self, here: BinlogPosition) -> bool:
        """Whether the publisher stands still at this boundary."""
        with self._lock:
            hold = self._hold
            if hold is None:
                return False
            if hold.position is not None:
                return here.reached(hold.position)
            if hold.boundary is None:
                hold.boundary = self._boundary
                self._lock.notify_all()
            return True

    @property
    def end_position(self) -> BinlogPosition | None:
        """Where an epoch has to end, because the publisher will stand still there."""
        hold = self._hold
        return hold.position if hold is not None else None

    def await_answer(self, seconds: float) -> None:
        """Wait until a reader hands something in, or for so long."""
        with self._lock:
            if not self._waiting:
                self._lock.wait(seconds)

    def is_due(self, here: BinlogPosition) -> bool:
        """Whether something may go into the log at a boundary here, or the publisher is to stand still."""
        hold = self._hold
        if hold is not None and hold.boundary is None:
            return True
        if not self._waiting:
            return False
        with self._lock:
            return any(here.reached(answer.visible) for answer in self._waiting)

    def take_due(self, here: BinlogPosition) -> Iterator[Answer]:
        """Take what goes into the log at this boundary, in the order in which it was read."""
        with self._lock:
            waiting = list(self._waiting)
        waits: set[QualifiedName] = set()
        for answer in waiting:
            name = answer.work.name
            if name in waits:
                continue
            if self._is_of_use(answer.work) and not here.reached(answer.visible):
                waits.add(name)
                continue
            with self._lock:
                self._waiting.remove(answer)
                self._size -= answer.size
                self._lock.notify_all()
            if not self._is_of_use(answer.work):
                continue
            with self._lock:
                if self._is_outdated(answer):
                    continue
            yield answer

    def _is_outdated(self, answer: Answer) -> bool:
        """Whether something was read that has to be read again."""
        name, base = answer.work.name, answer.work.base
        if isinstance(answer, TableFound) and self._must_wait(name, answer.cascades):
            return True
        table = self._table(name)
        if table.changed_at > base.epoch:
            table.begins_anew()
            return True
        if not isinstance(answer, ChunkRead) or table.state.is_held or not table.state.parents:
            return False
        parents = _prefixes(table.state.parents)
        if not any(key.startswith(parents) for key in self.changed_since(base)):
            table.attempt = 0
            return False
        table.begins_anew()
        table.attempt += 1
        return True

    def changed_since(self, base: Boundary) -> set[bytes]:
        """The keys that changed after a boundary, of tables whose rows are read."""
        return set().union(*(keys for epoch, keys in self._changed if epoch > base.epoch))

    def plan_with(self, found: TablesFound) -> Plan:
        """The plan with these tables: if one cannot be copied, no reader can begin with the copy."""
        assert self._plan is not None
        return replace(self._plan, is_complete=self._plan.is_complete and not found.refused)

    def begins(self, plan: Plan) -> CompleteCopy:
        """A copy of everything begins with the next epoch."""
        self._began = self.next_epoch
        return CompleteCopy(plan.copy, ended=False)

    def planned(self, found: TablesFound) -> tuple[TrackedRecord, ...]:
        """The list of tables goes into the log. Returns the records that change."""
        plan = self.plan_with(found)
        with self._lock:
            is_done = not plan.has_new and not plan.is_complete
            if plan.for_new and not plan.is_complete:
                return self._refused_for_new(found.refused)
            self._plan = None if is_done else replace(plan, tables=(), again=plan.is_complete, objects=True)
            records: list[TrackedRecord] = [(PLAN_KEY, self._plan.encode() if self._plan else None)]
            if plan.is_complete:
                self._complete = replace(plan, began=self._began)
                records.append((COMPLETE_KEY, self._complete.encode()))
            elif self._complete is not None and self._complete.copy == plan.copy:
                records += self._gives_up_complete()
            self._plan_table.begins_anew()
            wanted = TableFilter(plan.tables)
            for name in found.names:
                is_new, old = plan.is_new(name), self._tables.get(name)
                if not is_new and not (plan.again and wanted.allows(*name)):
                    continue
                if name in found.refused and not is_new and (old is None or old.state.can_be_refused):
                    if old is None or old.state.step is not Step.RUNNING:
                        self._tables[name] = old or _Table(TableCopy(plan.copy))
                        records.append(self._drop(name, found.refused[name]))
                    continue
                again = not is_new or name in self._known
                first = TableCopy(
                    plan.copy,
                    again=again,
                    is_new=is_new,
                    is_frozen=plan.is_complete,
                    for_new=plan.for_new,
                )
                state = first if old is None else old.state.anew(plan)
                self._release(name)
                self._tables[name] = _Table(state, run=old.run + 1 if old else 0)
                records.append((topic_key(name), state.encode()))
            self._settle()
        return tuple(records)

    def _refused_for_new(self, refused: Mapping[QualifiedName, str]) -> tuple[TrackedRecord, ...]:
        """Some tables cannot be copied, so no channel could begin with the copy."""
        plan = self._complete or self._plan
        assert plan is not None
        records = self._gives_up_for_new(is_late=False)
        for name, why in refused.items():
            self._tables.setdefault(name, _Table(TableCopy(plan.copy, Step.DONE)))
            records.append(self._drop(name, why))
        return tuple(dict(records).items())

    def refused_plan(self) -> tuple[TrackedRecord, ...]:
        """Nothing can be copied. Returns the records that change."""
        assert self._plan is not None
        with self._lock:
            if self._plan.for_new:
                return tuple(self._gives_up_for_new(is_late=False))
            return tuple(self._drop_plan(self._plan))

    def finished_plan(self) -> tuple[TrackedRecord, ...]:
        """Views and programs are in the log. Returns the record that changes."""
        with self._lock:
            self._plan = None
        return ((PLAN_KEY, None),)

    def completed(self) -> tuple[CompleteCopy, tuple[TrackedRecord, ...]] | None:
        """The complete copy that has come to its end, and the records that change with the epoch that says so."""
        if self._complete is None or self.are_running:
            return None
        with self._lock:
            plan, self._complete = self._complete, None
            self._completed = self._completed.with_one_of(plan)
        return CompleteCopy(plan.copy, ended=True), (
            (COMPLETE_KEY, None),
            (COMPLETED_KEY, self._completed.encode()),
        )

    def advanced(self, name: QualifiedName, state: TableCopy) -> tuple[TrackedRecord, ...]:
        """A table's copy goes on in the log. Returns the record that changes."""
        with self._lock:
            table = self._tables[name]
            if state.step is not table.state.step:
                # The reader of a table for which the publisher stands still goes on by itself.
                table.all_read, table.lower = state.is_held, state.upper
            table.state = state
            if self._hold is not None and name in self._hold.names and not self._waits(self._hold.names):
                self._hold = None
                self._lock.notify_all()
            self._settle()
        return ((topic_key(name), state.encode()),)

    def froze(self, found: TableFound) -> tuple[TrackedRecord, ...]:
        """A table begins: those whose rows its changes change are copied again behind it. Returns what changes."""
        name = found.work.name
        names = (found.cascades.children | found.cascades.circle) - {name}
        with self._lock:
            if self._hold is not None and name in self._hold.names:
                self._hold.begun.add(name)
                names -= self._hold.begun
            records = self._freeze(names, self._tables[name].state.copy, name)
            self._settle()
            return tuple(records)

    def forgotten(self, name: QualifiedName, refused: str = "") -> tuple[TrackedRecord, ...]:
        """There is no such table any more, or it is not copied, and why. Returns the records that change."""
        with self._lock:
            if refused and self.is_for_new:
                return self._refused_for_new({name: refused})
            record = self._drop(name, refused)
            self._settle()
        return (record,)

    def state(self, name: QualifiedName) -> TableCopy:
        """A table's state in the log."""
        return self._tables[name].state

    def written(self, epoch: EpochCommitted) -> None:
        """An epoch of a copy ended."""
        with self._lock:
            self._pass(epoch)


def _prefixes(names: Iterable[QualifiedName]) -> tuple[bytes, ...]:
    """How the keys of tables' rows begin."""
    return tuple(key_prefix(TableStructure(*name, ())) for name in names)


def _with_new_tables(plan: Plan | None, before: Replicated) -> Plan:
    """A plan that also copies the tables that were not replicated before."""
    if plan is None or plan.objects:
        return Plan(plan.copy if plan else str(uuid.uuid4()), had=(before,))
    # The first list of tables is still to come, and has all of them.
    return replace(plan, had=(*plan.had, before)) if plan.had or plan.again else plan
