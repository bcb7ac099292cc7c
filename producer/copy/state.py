"""What the log says of copies: a record of each table that is copied, in ``<prefix>.tracked``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any

from schemas.ddl.kinds import ClassifiedStatement, family
from schemas.tables import QualifiedName, TableFilter


class Step(Enum):
    """How far the copy of a table is."""

    #: its begin is not in the log yet
    WAITING = "waiting"
    #: between begin and end: rows of it may be missing downstream
    RUNNING = "running"
    DONE = "done"


@dataclass(frozen=True)
class TableCopy:
    """The copy of one table.

    Attributes:
        copy: UUID of the copy that it belongs to.
        step: how far it is.
        again: whether the table may have rows downstream, which its begin then removes.
        is_new: whether the log has nothing of the table before its begin; its changes up to there are left out.
        is_frozen: whether its changes are left out up to its begin, although the log has it: a complete copy begins
            before them, or a table is being copied whose changes change rows of it.
        incomplete: whether rows may be missing downstream, also while it waits for another begin.
        is_held: whether the publisher stands still while its rows are read, so that nothing changes in between.
        parents: the tables whose changes change rows of it without a trace in the upstream's binlog.
        circle: the tables that are read at one position with it, because they change each other's rows in this way.
        upper: SQL literals of the key columns of the last row that was copied; empty before the first.
        rows: copied so far.
        estimate: the upstream's estimate of all rows.
        ended: the number of the epoch in which it ended, or the copy before it while it runs; -1 if none has.
        refused: why its copy was left out, if that was so; readers have the whole table without.
        for_new: whether only new channels may apply the copy; all others have the table, with all of its changes.
    """

    copy: str
    step: Step = Step.WAITING
    again: bool = False
    is_new: bool = False
    is_frozen: bool = False
    incomplete: bool = False
    is_held: bool = False
    parents: tuple[QualifiedName, ...] = ()
    circle: tuple[QualifiedName, ...] = ()
    upper: tuple[str, ...] = ()
    rows: int = 0
    estimate: int = 0
    ended: int = -1
    refused: str = ""
    for_new: bool = False

    @property
    def is_unknown(self) -> bool:
        """Whether the log has nothing of the table yet."""
        return self.step is Step.WAITING and self.is_new

    @property
    def can_be_dropped(self) -> bool:
        """Whether readers have the whole table without this copy."""
        if self.for_new:
            return self.step is not Step.DONE
        return self.step is Step.WAITING and not (self.is_new or self.is_frozen or self.incomplete)

    @property
    def can_be_refused(self) -> bool:
        """Whether readers will have the whole table if it is not copied once more."""
        return self.step is not Step.WAITING or self.can_be_dropped

    @property
    def leaves_out_rows(self) -> bool:
        """Whether the table's changes are of no use to a reader, whose rows of it are removed before more come."""
        return self.step is Step.WAITING and (
            self.is_new or self.is_frozen or (self.is_held and self.incomplete)
        )

    @property
    def lacks_changes(self) -> bool:
        """Whether the table's rows downstream, if there are any, are not those of the log's position."""
        return self.step is not Step.DONE and (self.is_new or self.is_frozen or self.incomplete)

    def is_incomplete_at(self, epoch: int) -> bool:
        """Whether a channel that did not begin with a copy for new ones may lack rows of the table behind an epoch."""
        return (self.step is not Step.DONE and not self.for_new) or self.ended > epoch

    def interrupted(self) -> TableCopy:
        """The same after the program was stopped: rows that are read at one position are read anew."""
        return self.read_anew() if self.is_held and self.step is Step.RUNNING else self

    def read_anew(self) -> TableCopy:
        """The same, to be read at one position once more."""
        return replace(
            self, step=Step.WAITING, again=True, is_new=False, incomplete=True, is_held=True, upper=(), rows=0
        )

    def anew(self, plan: Plan) -> TableCopy:
        """The same, as a part of another copy. A copy that runs begins again; one of a new table is still its first."""
        is_new = self.is_unknown
        again = self.again if is_new else True
        return TableCopy(
            plan.copy,
            again=again,
            is_new=is_new,
            is_frozen=plan.is_complete or self.is_frozen,
            incomplete=self.incomplete,
            is_held=self.is_held,
            ended=self.ended,
            parents=self.parents,
            circle=self.circle,
            for_new=plan.for_new,
        )

    def frozen(self, *, for_new: bool) -> TableCopy:
        """The same, to be copied again behind the begin of a table whose changes change its rows."""
        if self.is_unknown:
            return self  # its changes are left out already, and nobody has rows of it
        return TableCopy(
            self.copy,
            again=True,
            is_frozen=True,
            incomplete=self.incomplete,
            is_held=self.is_held,
            ended=self.ended,
            parents=self.parents,
            circle=self.circle,
            for_new=for_new,
        )

    def dropped(self, epoch: int, refused: str = "") -> TableCopy | None:
        """The same if its copy is dropped at an epoch; None if nothing is to be said of it.

        A reader inside an earlier copy lacks rows until that one ends.
        """
        ended = epoch if self.incomplete and not self.for_new else self.ended
        return (
            TableCopy(self.copy, Step.DONE, ended=ended, refused=refused) if ended >= 0 or refused else None
        )

    def encode(self) -> bytes:
        """Its record."""
        return json.dumps(asdict(self) | {"step": self.step.value}, ensure_ascii=False).encode()

    @classmethod
    def decode(cls, record: bytes) -> TableCopy:
        """The inverse of ``encode``. Raises ValueError, LookupError, TypeError for what is none."""
        data: dict[str, Any] = json.loads(record)
        data |= {name: tuple(map(tuple, data[name])) for name in ("parents", "circle")}
        found = cls(**data | {"step": Step(data["step"]), "upper": tuple(data["upper"])})
        texts, flags = (
            (
                found.copy,
                found.refused,
                *found.upper,
                *(part for name in (*found.parents, *found.circle) for part in name),
            ),
            (found.again, found.is_new, found.is_frozen, found.incomplete, found.is_held, found.for_new),
        )
        numbers = (found.rows, found.estimate, found.ended)
        if not all(isinstance(text, str) for text in texts) or not all(type(n) is int for n in numbers):
            raise ValueError("a field of a table's copy has another type")
        if not all(type(flag) is bool for flag in flags):
            raise ValueError("a field of a table's copy has another type")
        if any(len(name) != 2 for name in (*found.parents, *found.circle)):
            raise ValueError("a field of a table's copy has another type")
        return found


@dataclass(frozen=True)
class Replicated:
    """The patterns by which the log's tables were chosen, up to its end."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    @cached_property
    def tables(self) -> TableFilter:
        """The tables that they choose."""
        return TableFilter(self.include, self.exclude)

    def encode(self) -> bytes:
        """Its record."""
        return json.dumps(asdict(self), ensure_ascii=False).encode()

    @classmethod
    def decode(cls, record: bytes) -> Replicated:
        """The inverse of ``encode``. Raises ValueError, LookupError, TypeError, ConfigError for what is none."""
        return cls.of(json.loads(record))

    @classmethod
    def of(cls, data: dict[str, list[str]]) -> Replicated:
        """The patterns in plain data. Raises as ``decode`` does."""
        found = cls(tuple(data["include"]), tuple(data["exclude"]))
        assert found.tables
        return found


@dataclass(frozen=True)
class Plan:
    """What is to be copied and is not in the log yet.

    Attributes:
        copy: UUID of the copy.
        tables: patterns such as ``shop.*``, in the form of ``[tables] include``: of the tables to copy again.
        again: whether tables are to be copied again.
        is_complete: whether all is copied again, so that a reader without anything may begin with this copy.
        had: the log has the tables that all of these choose, and the others are new; if there are none, it has all
            tables if some are copied again, else no table.
        objects: whether the list of tables is in the log, and views and stored programs are not.
        began: the number of the epoch with which a complete copy began; -1 before.
        asked: when it was asked for, ms since 1970; -1 for a log's first copy.
        for_new: whether it is a complete copy that only new channels apply.
    """

    copy: str
    tables: tuple[str, ...] = ()
    again: bool = False
    is_complete: bool = False
    had: tuple[Replicated, ...] = ()
    objects: bool = False
    began: int = -1
    asked: int = -1
    for_new: bool = False

    @property
    def has_new(self) -> bool:
        """Whether tables may be new to the log."""
        return bool(self.had) or not self.again

    def is_new(self, name: QualifiedName) -> bool:
        """Whether the log has nothing of a table, or an object, without this copy."""
        return not all(had.tables.allows(*name) for had in self.had) if self.had else not self.again

    def leaves_out(self, statement: ClassifiedStatement) -> bool:
        """Whether a DDL is left out of the log, which gets what it changes from this copy."""
        if self.objects and family(statement.kind) not in _OBJECTS:
            return False
        if statement.database is not None and self.had:
            return not all(had.tables.allows_database(statement.database) for had in self.had)
        names = [*statement.table_names, *([statement.program] if statement.program else [])]
        return any(map(self.is_new, names)) if names else self.has_new and not self.had

    def encode(self) -> bytes:
        """Its record."""
        return json.dumps(asdict(self), ensure_ascii=False).encode()

    @classmethod
    def decode(cls, record: bytes) -> Plan:
        """The inverse of ``encode``. Raises ValueError, LookupError, TypeError for what is none."""
        data = json.loads(record)
        return cls(
            str(data["copy"]),
            tuple(map(str, data["tables"])),
            bool(data["again"]),
            bool(data["is_complete"]),
            tuple(map(Replicated.of, data["had"])),
            bool(data["objects"]),
            int(data["began"]),
            int(data["asked"]),
            bool(data["for_new"]),
        )


@dataclass(frozen=True)
class CompleteCopies:
    """The complete copies that have come to their end.

    Attributes:
        began: the numbers of the epochs with which they began, in their order; only so many of the last ones.
        asked: when the last one was asked for, or one for new channels that came to nothing; in a log with everything
            from its beginning on, at first when that was. In ms since 1970; -1 if there was none.
    """

    began: tuple[int, ...] = ()
    asked: int = -1

    def with_one_of(self, plan: Plan) -> CompleteCopies:
        """The same with one that has come to its end."""
        return CompleteCopies((*self.began, plan.began)[-_MOST_COMPLETE:], plan.asked)

    def is_due(self, every: float, now: int) -> bool:
        """Whether another one is due at a time, in ms since 1970, if one is wanted every so many seconds."""
        # A clock that was wrong once must not put it off for years.
        return self.asked < 0 or abs(now - self.asked) >= every * 1000

    def encode(self) -> bytes:
        """Its record."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, record: bytes) -> CompleteCopies:
        """The inverse of ``encode``. Raises ValueError, LookupError, TypeError for what is none."""
        data = json.loads(record)
        return cls(tuple(map(int, data["began"])), int(data["asked"]))


_COPY = "copy"
# No table has a name like these.
PLAN_KEY = b'["copy","",""]'
REPLICATED_KEY = b'["copy","","replicated"]'
#: the key of the plan of a complete copy, from when its tables are in the log until all of them are copied
COMPLETE_KEY = b'["copy","","complete"]'
#: the key of ``CompleteCopies``
COMPLETED_KEY = b'["copy","","completed"]'
_MOST_COMPLETE = 100
# The families of statements that create what the last step of a first copy brings.
_OBJECTS = frozenset({"views", "routines", "triggers", "events"})


def topic_key(name: QualifiedName) -> bytes:
    """The key of a table's record in the tracked topic."""
    return json.dumps([_COPY, *name], ensure_ascii=False, separators=(",", ":")).encode()


def check_record(key: bytes, record: bytes) -> bool:
    """Whether a record of the tracked topic is one of copies. Raises as ``Replicated.decode`` for an invalid one."""
    name = json.loads(key)
    if not isinstance(name, list) or len(name) != 3:
        return False
    if name[0] != _COPY or not all(isinstance(part, str) for part in name):
        raise ValueError(f"its key is {key[:100]!r}")
    kinds: dict[bytes, type[Plan | Replicated | CompleteCopies]] = {
        PLAN_KEY: Plan,
        COMPLETE_KEY: Plan,
        COMPLETED_KEY: CompleteCopies,
        REPLICATED_KEY: Replicated,
    }
    kinds.get(key, TableCopy).decode(record)
    return True


def load(stored: Mapping[bytes, bytes]) -> tuple[Plan | None, dict[QualifiedName, TableCopy]]:
    """The plan and the tables in the records of the tracked topic."""
    plan, tables = None, {}
    for key, record in stored.items():
        if key == PLAN_KEY:
            plan = Plan.decode(record)
        elif key not in (REPLICATED_KEY, COMPLETE_KEY, COMPLETED_KEY) and len(name := json.loads(key)) == 3:
            tables[name[1], name[2]] = TableCopy.decode(record)
    return plan, tables
