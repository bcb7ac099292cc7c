"""Reads the golden cases of ``golden/pipeline``: a channel's rules, upstream events and downstream statements."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zlib import crc32

from schemas.ddl.classify import classify
from schemas.ddl.lexer import Flavor
from schemas.errors import TailraceError, Where
from schemas.structure import TableStructure
from schemas.wire.avro_schema import KEY_CHANGE, row_schema
from schemas.wire.epoch import SchemaChanged, TableChanged, TableTouched
from spark_consumer.apply.prepared import PreparedRows, assemble_slice
from spark_consumer.ddl.translate import DdlRules
from spark_consumer.epochs.slices import LoggedEpoch, Slice
from spark_consumer.plan.plan import plan_slice, targets_of
from spark_consumer.plan.statements import Limits
from spark_consumer.rows.render import render
from spark_consumer.rows.slice_rows import RangeRows
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.rules.rules import Rules
from spark_consumer.target.table import TargetTable
from tailrace.assemble.settings import consumer_config
from tailrace.config.file import load
from tests.support.applying.targets import as_it_is, unique
from tests.support.applying.targets import column as target_column
from tests.support.epochs.fake_topic import (
    Change,
    delete,
    halves,
    insert,
    integer,
    row_key,
    row_value,
    text,
    update,
)
from tests.support.epochs.records import epoch_record
from tests.support.paths import GOLDEN

FOLDER = GOLDEN / "pipeline"
_TYPES = {"int": integer, "text": text}
_UPSTREAM = '[target]\nurl = "mysql://nobody@nowhere"\n'


@dataclass
class Case:
    """One case and its expected result."""

    place: str
    title: str
    rules: str
    events: list[str]
    expected: str
    structures: dict[str, TableStructure] = field(default_factory=dict)
    targets: dict[tuple[str, str], TargetTable] = field(default_factory=dict)

    def run(self, folder: Path) -> str:
        """Run a case, and return the statements in the form of the golden files."""
        path = folder / "tailrace.toml"
        path.write_text(_UPSTREAM + self.rules)
        config = consumer_config(load(path))
        rules = config.rules
        lines: list[str] = []
        changes: list[Change] = []
        for event in self.events:
            word, _, rest = event.partition(" ")
            if word == "table":
                self._table(rest)
            elif word == "downstream":
                self._downstream(rest)
            elif word in ("ddl", "mariadb"):
                lines += self._rows(changes, rules, config)
                changes = []
                lines.append(self._ddl(rest, rules, config, "mysql" if word == "ddl" else "mariadb"))
            else:
                changes.append(self._change(word, rest))
        return "\n".join([*lines, *self._rows(changes, rules, config)])

    def _table(self, text_: str) -> None:
        name, _, columns = text_.partition(": ")
        db, _, table = name.partition(".")
        made, key = [], []
        for column in columns.split(", "):
            label, kind, *more = column.split()
            made.append(_TYPES[kind](label, nullable="null" in more))
            key += [label] if "key" in more else []
        self.structures[name] = TableStructure(db, table, tuple(made), tuple(key))

    def _downstream(self, text_: str) -> None:
        """Read ``db.table: column, column [cascades]``, a downstream table that differs from the upstream's."""
        name, _, columns = text_.removesuffix(" cascades").partition(": ")
        db, _, table = name.partition(".")
        known = {c.name: c for s in self.structures.values() for c in as_it_is(s).columns}
        made = tuple(
            replace(known.get(label, target_column(label)), fills=True) for label in columns.split(", ")
        )
        key = next((s.key for s in self.structures.values() if (s.db, s.table) == (db, table)), ("id",))
        self.targets[db, table] = TargetTable((db, table), made, (unique(*key),), text_.endswith(" cascades"))

    def _change(self, word: str, rest: str) -> Change:
        name, _, images = rest.partition(" ")
        structure = self.structures[name]
        rows = [self._image(structure, values) for values in json.loads(f"[{images}]")]
        made: dict[str, Callable[..., Change]] = {"insert": insert, "update": update, "delete": delete}
        return made[word](structure, *rows)

    @staticmethod
    def _image(structure: TableStructure, values: list[Any]) -> dict[str, Any]:
        return {column.name: value for column, value in zip(structure.columns, values, strict=True)}

    def _ddl(self, statement: str, rules: Rules, config: ConsumerConfig, flavor: Flavor) -> str:
        found = classify(statement, "app", flavor)
        tables = tuple(TableChanged(t.db, t.table, t.renamed_to_db, t.renamed_to) for t in found.tables)
        ddl = SchemaChanged(statement, "app", found.kind, tables, flavor, 0)
        known = {(s.db, s.table) for s in self.structures.values()}
        ddl_rules = DdlRules(rules.tables, rules.events, rules.router, config.ddl)
        try:
            carried = ddl_rules.translate(ddl, lambda: known)
        except TailraceError as error:
            return f"stop {error.code}"
        return "not carried" if carried is None else carried.statement

    def _rows(self, changes: list[Change], rules: Rules, config: ConsumerConfig) -> list[str]:
        if not changes:
            return []
        try:
            prepared = self._prepared(halves(changes), rules, config)
        except TailraceError as error:
            return [f"stop {error.code}"]
        writes = prepared.writes
        lines = [s.sql.decode() + (" -- or fewer" if t.safe else "") for t, s in writes.deletes]
        lines += [statement.sql.decode() for _, statement in (*writes.updates, *writes.inserts)]
        for one in writes.ordered:
            lines.append(one.sql.decode() + (" -- or none" if one.may_find_no_row else ""))
            lines += [f"  else {sql.decode()}" for sql in one.fallbacks]
        row_counts = ", ".join(
            f"{name} {count}" for name, count in vars(prepared.row_counts).items() if count
        )
        return [*lines, f"({row_counts})"] if row_counts else lines

    def _prepared(self, changes: list[Change], rules: Rules, config: ConsumerConfig) -> PreparedRows:
        used = {c.structure for c in changes}
        structures = {row_schema(s).fingerprint.hex(): s for s in used}
        downstream: dict[tuple[str, str], TargetTable | None] = {}
        for s in used:
            name = targets_of({"": s}, rules).get((s.db, s.table))
            if name is not None:
                downstream[name] = self.targets.get(name, as_it_is(s, name))
        limits = Limits(config.statement_rows if config.multiple_rows else 1)
        plan = plan_slice(structures, downstream, rules, limits, Where(), safe=config.safe_mode)
        keys = [row_key(c.structure, c.after or c.before or {}) for c in changes]
        values = [row_value(change, 7, seq, "g") for seq, change in enumerate(changes)]
        slice_ = self._slice(changes, sum(crc32(value) for value in values))
        return assemble_slice(slice_, plan, list(render(plan, RangeRows(keys, values))))

    @staticmethod
    def _slice(changes: list[Change], digest: int) -> Slice:
        counts: dict[TableStructure, list[int]] = {}
        for change in changes:
            column = 1 if change.flags & KEY_CHANGE else "cud".index(change.op)
            counts.setdefault(change.structure, [0, 0, 0])[column] += 1
        touched = tuple(
            TableTouched(s.db, s.table, row_schema(s).fingerprint.hex(), *n) for s, n in counts.items()
        )
        record = replace(epoch_record(7, rows=len(changes)), tables=touched, digest=digest)
        return Slice((LoggedEpoch(record, 7),))


_STATEMENTS = "\n--- statements\n"


def files() -> list[Path]:
    """Return the files with cases."""
    return sorted(FOLDER.glob("*.txt"))


def cases() -> list[Case]:
    """Return all cases."""
    return [case for path in files() for case in _file(path)]


def renewed(path: Path, folder: Path) -> str:
    """Return a file's text with the code's present statements; ``folder`` is for configurations."""
    head, *blocks = path.read_text().split("\n=== ")
    return "\n=== ".join([head, *(_renewed(block, folder) for block in blocks)]).rstrip("\n") + "\n"


def _renewed(block: str, folder: Path) -> str:
    head, mark, statements = block.partition(_STATEMENTS)
    if not mark:
        head, statements = head.rstrip("\n"), "\n\n"
    return head + _STATEMENTS + _case("", block).run(folder) + statements[len(statements.rstrip("\n")) :]


def _file(path: Path) -> list[Case]:
    found = []
    line = 1
    for block in path.read_text().split("\n=== "):
        if line > 1:
            found.append(_case(f"{path.name}:{line}", block))
        line += block.count("\n") + 1
    return found


def _case(place: str, block: str) -> Case:
    head, _, statements = block.partition(_STATEMENTS)
    rules, _, events = head.partition("\n--- events\n")
    title, _, toml = rules.partition("\n")
    kept = [e for e in events.splitlines() if e and not e.startswith("#")]
    return Case(place, title, toml, kept, statements.strip("\n"))
