"""A simulated producer that copies tables of a ``Model`` into a log in memory, while the model changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from schemas.wire.epoch import BEGIN, END, ROWS, CopyStep, SchemaChanged, TableChanged
from tests.support.applying.model import TABLES, Model, Row, fold
from tests.support.applying.parts import MemoryLog
from tests.support.epochs.fake_topic import Change, read, row_key

COPY = "11111111-0000-0000-0000-00000000c0b1"
State = dict[str, list[Row]]


@dataclass
class Copier:
    """An upstream that runs ahead of its log, and copies of its tables.

    Attributes:
        states: the upstream's rows after each transaction, the first one before all.
        published: the number of transactions in the log.
        engine: of the copied tables.
        copied: the tables that are copied again at random.
        running: the last copied key of each table of which a copy runs; None before the first one.
    """

    model: Model
    random: Random
    log: MemoryLog = field(default_factory=lambda: MemoryLog(numbered=True))
    states: list[State] = field(default_factory=list)
    transactions: list[list[Change]] = field(default_factory=list)
    published: int = 0
    running: dict[str, Any] = field(default_factory=dict)
    engine: str = "InnoDB"
    copied: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.states.append(self._state())

    def _state(self) -> State:
        return {table: [dict(row) for row in rows] for table, rows in self.model.tables.items()}

    def run(self, statements: int) -> None:
        """Run a transaction upstream. A table without a key does not change while it is copied."""
        self.transactions.append(self.model.run(statements))
        self.states.append(self._state())

    def publish(self, end: int) -> list[Change]:
        """Write the transactions up to one of this number into the log; return their changes."""
        found: list[Change] = []
        for changes in self.transactions[self.published : end]:
            self.log.add(*changes, incomplete=self.running)
            found += changes
        self.published = max(self.published, end)
        return found

    def begin(self, table: str, *, again: bool) -> None:
        """Start a copy; a table without a key is copied at once."""
        self._step(table, BEGIN, again=again, ddl=True)
        self.running[table] = None
        if table == "bag":
            rows = [read(self.model.structure(table), row) for row in self.states[self.published][table]]
            self._step(table, ROWS, *rows)
            self.end(table)

    def end(self, table: str) -> None:
        """End a copy."""
        del self.running[table]
        self._step(table, END)

    def chunk(self, table: str, limit: int) -> None:
        """Read a chunk somewhere between two watermarks, and write it behind the second one."""
        structure, last = self.model.structure(table), self.running[table]
        seen = self.random.randint(self.published, len(self.transactions))
        ordered = sorted(self.states[seen][table], key=lambda row: str(self._key(table, row)))
        rows = [row for row in ordered if last is None or str(self._key(table, row)) > last][:limit]
        changed = self.publish(self.random.randint(seen, len(self.transactions)))
        keys = {
            row_key(structure, image)
            for change in changed
            for image in (change.before, change.after)
            if change.structure == structure and image is not None
        }
        kept = [row for row in rows if row_key(structure, row) not in keys]
        self._step(table, ROWS, *(read(structure, row) for row in kept))
        if len(rows) < limit:
            self.end(table)
        else:
            self.running[table] = str(self._key(table, rows[-1]))

    def _key(self, table: str, row: Row) -> object:
        return fold(row[self.model.structure(table).key[0]])

    def _step(self, table: str, step: str, *rows: Change, again: bool = False, ddl: bool = False) -> None:
        db = self.model.db
        copy = CopyStep(COPY, db, table, step, again=again)
        self.log.add(
            *rows,
            incomplete={table},
            copy=copy,
            ddl=create_table(db, table, f"{TABLES[table]} ENGINE={self.engine}") if ddl else None,
        )

    def some_steps(self, count: int) -> None:
        """Run transactions and steps of copies in any order."""
        for _ in range(count):
            kind = self.random.choice("rrpcccb")
            if kind == "r":
                self.run(self.random.randrange(1, 12))
            elif kind == "p":
                self.publish(self.random.randint(self.published, len(self.transactions)))
            elif kind == "c" and self.running:
                self.chunk(self.random.choice(sorted(self.running)), self.random.randrange(1, 5))
            elif kind == "b" and self.random.random() < 0.3:
                self.begin(self.random.choice(self.copied), again=True)

    def finish(self) -> None:
        """End all copies, and publish everything."""
        while self.running:
            self.chunk(sorted(self.running)[0], 3)
        self.publish(len(self.transactions))


#: the tables that are copied; the upstream does not log the cascades of the others
COPIED = tuple(sorted(set(TABLES) - {"head", "tail"}))


def create_table(db: str, table: str, columns: str = "") -> SchemaChanged:
    """Return the statement that a copy starts with."""
    text = f"CREATE TABLE `{table}` {columns or TABLES[table]}"
    return SchemaChanged(text, db, "CREATE TABLE", (TableChanged(db, table),), "mysql", 1_700_000_000)
