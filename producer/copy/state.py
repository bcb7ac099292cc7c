"""What the log says of copies: a record of each table that is copied, in ``<prefix>.tracked``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

from schemas.tables import QualifiedName


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
        incomplete: whether rows may be missing downstream, also while it waits for another begin.
        is_held: whether the publisher stands still while its rows are read, so that nothing changes in between.
        upper: SQL literals of the key columns of the last row that was copied; empty before the first.
        rows: copied so far.
        estimate: the upstream's estimate of all rows.
        ended: the number of the epoch in which it ended; -1 before.
    """

    copy: str
    step: Step = Step.WAITING
    again: bool = False
    incomplete: bool = False
    is_held: bool = False
    upper: tuple[str, ...] = ()
    rows: int = 0
    estimate: int = 0
    ended: int = -1

    @property
    def is_unknown(self) -> bool:
        """Whether the log has nothing of the table yet."""
        return self.step is Step.WAITING and not self.again

    @property
    def can_be_dropped(self) -> bool:
        """Whether readers have the whole table without this copy, which has not begun."""
        return self.step is Step.WAITING and self.again and not self.incomplete

    @property
    def leaves_out_rows(self) -> bool:
        """Whether the table's changes are of no use to a reader, whose rows of it are removed before more come."""
        return self.is_unknown or (self.step is Step.WAITING and self.is_held and self.incomplete)

    def interrupted(self) -> TableCopy:
        """The same after the program was stopped: rows that are read at one position are read anew."""
        if not self.is_held or self.step is not Step.RUNNING:
            return self
        return replace(self, step=Step.WAITING, again=True, upper=(), rows=0)

    def anew(self, plan: Plan) -> TableCopy:
        """The same, as a part of another copy. A copy that runs begins again; one of a new table is still its first."""
        again = self.incomplete or (plan.again and not self.is_unknown)
        return TableCopy(plan.copy, again=again, incomplete=self.incomplete, is_held=self.is_held)

    def encode(self) -> bytes:
        """Its record."""
        return json.dumps(asdict(self) | {"step": self.step.value}, ensure_ascii=False).encode()

    @classmethod
    def decode(cls, record: bytes) -> TableCopy:
        """The inverse of ``encode``. Raises ValueError, LookupError, TypeError for what is none."""
        data: dict[str, Any] = json.loads(record)
        found = cls(**data | {"step": Step(data["step"]), "upper": tuple(data["upper"])})
        texts, flags = (found.copy, *found.upper), (found.again, found.incomplete, found.is_held)
        numbers = (found.rows, found.estimate, found.ended)
        if not all(isinstance(text, str) for text in texts) or not all(type(n) is int for n in numbers):
            raise ValueError("a field of a table's copy has another type")
        if not all(type(flag) is bool for flag in flags):
            raise ValueError("a field of a table's copy has another type")
        return found


@dataclass(frozen=True)
class Plan:
    """What is to be copied and is not in the log yet.

    Attributes:
        copy: UUID of the copy.
        objects: whether the list of tables is in the log, and views and stored programs are not.
        tables: patterns such as ``shop.*``, in the form of ``[tables] include``.
        again: whether the tables may have rows downstream, which their copies then remove; else the log has nothing of
            them yet.
    """

    copy: str
    tables: tuple[str, ...] = ()
    again: bool = False
    objects: bool = False

    def encode(self) -> bytes:
        """Its record."""
        return json.dumps(asdict(self), ensure_ascii=False).encode()

    @classmethod
    def decode(cls, record: bytes) -> Plan:
        """The inverse of ``encode``. Raises ValueError, LookupError, TypeError for what is none."""
        data = json.loads(record)
        return cls(
            str(data["copy"]), tuple(map(str, data["tables"])), bool(data["again"]), bool(data["objects"])
        )


_COPY = "copy"
PLAN_KEY = b'["copy","",""]'


def topic_key(name: QualifiedName) -> bytes:
    """The key of a table's record in the tracked topic."""
    return json.dumps([_COPY, *name], ensure_ascii=False, separators=(",", ":")).encode()


def check_record(key: bytes, record: bytes) -> bool:
    """Whether a record of the tracked topic is one of a copy. Raises as ``TableCopy.decode`` for an invalid one."""
    name = json.loads(key)
    if not isinstance(name, list) or len(name) != 3:
        return False
    if name[0] != _COPY or not all(isinstance(part, str) for part in name):
        raise ValueError(f"its key is {key[:100]!r}")
    (Plan if key == PLAN_KEY else TableCopy).decode(record)
    return True


def load(stored: Mapping[bytes, bytes]) -> tuple[Plan | None, dict[QualifiedName, TableCopy]]:
    """The plan and the tables in the records of the tracked topic."""
    plan, tables = None, {}
    for key, record in stored.items():
        if key == PLAN_KEY:
            plan = Plan.decode(record)
        elif len(name := json.loads(key)) == 3:
            tables[name[1], name[2]] = TableCopy.decode(record)
    return plan, tables
