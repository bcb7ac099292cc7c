"""Validates a channel's tables, chunk by chunk."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import Any

from pymysql.connections import Connection

from schemas.tables import QualifiedName, TableFilter
from schemas.wire.epoch import SchemaChanged
from spark_consumer.apply.tables.validation import ProvedPosition
from spark_consumer.epochs.letter_case import lower_route
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.rules.route import Router
from tailrace.servers import rows
from tailrace.validate.catalog import ComparedTable, Pairing, read_catalog
from tailrace.validate.chunks import chunk_rows
from tailrace.validate.history import BeingCopied, History
from tailrace.validate.protocol import BATCH, ROUNDS, Key, Settled, chunk_suspects, settle
from tailrace.validate.result import Report, TableReport
from tailrace.validate.saved_run import Proved, SavedRun, structure_of
from tailrace.validate.servers import PairSides, Servers
from tailrace.validate.tables import (
    Chunk,
    Collations,
    ReadUpTo,
    StructureChanged,
    TablePair,
    TableReader,
    pair_tables,
)

Progress = Callable[[Report], None]

#: keys in question after which the rest of a table is not read
_MOST_SUSPECTS = 20_000
_STRUCTURE_ROUNDS = 3
#: keys that are looked up together; they become a list of literals in a statement
KEYS_OF_A_LIST = 1000


class Validator:
    """Validates tables one after the other; ``report`` has what is known so far.

    Args:
        saved: what an interrupted run has proved, and where this one keeps what it proves.
    """

    def __init__(
        self,
        servers: Servers,
        history: History,
        rules: ConsumerConfig,
        where: str,
        max_rows_per_s: int,
        progress: Progress,
        rounds: int = ROUNDS,
        saved: SavedRun | None = None,
    ) -> None:
        self._rounds = rounds
        self._servers, self._history, self._rules, self._where = servers, history, rules, where
        self._rate, self._progress, self._saved = max_rows_per_s, progress, saved
        self.report = Report()
        self._pairs: Mapping[str, Sequence[str]] = {}
        self._above: Mapping[str, ComparedTable] = {}
        self._below: Mapping[str, ComparedTable] = {}
        self._parents: Mapping[tuple[str, str], set[tuple[str, str]]] = {}
        self._first = self._since = ProvedPosition("", -1, -1, "")
        self._passed = False
        self._goes_to: Callable[[str, str], str] = lambda db, table: ""

    @property
    def names(self) -> Sequence[str]:
        """The downstream's tables, ``db.table``."""
        return tuple(self._pairs)

    def goes_to(self, db: str, table: str) -> str:
        """Return the downstream's table, ``db.table``, of an upstream table; empty if it is not replicated."""
        return self._goes_to(db, table)

    def begin(self, only: Sequence[str] = ()) -> None:
        """Read the tables of both servers, and find out which to validate: all, or some upstream tables."""
        servers = self._servers
        self._read_catalogs()
        self._first = self._since
        with servers.reading("upstream"):
            upper = _ignores_letter_case(servers.upstream)
        with servers.reading("downstream"):
            lower = _ignores_letter_case(servers.downstream)
        routes = tuple(map(lower_route, self._rules.routes)) if upper else self._rules.routes
        replicated = TableFilter(self._rules.include, self._rules.exclude, folds=upper).allows
        wanted = TableFilter(only, (), folds=upper).allows
        router = Router(routes, () if lower else None)
        self._pairing = Pairing(replicated, router)
        self._goes_to = lambda db, table: ".".join(router.table(db, table)) if replicated(db, table) else ""
        self._pairs = {
            target: sources
            for sources, target in self._pairing.pairs(self._above, self._below)
            if any(wanted(self._above[name].db, self._above[name].name) for name in sources)
        }
        named = [name for sources in self._pairs.values() for name in sources]
        self.report.rows_estimated = sum(self._estimates.get(name, 0) for name in named)

    def _read_catalogs(self) -> None:
        """Read the structures of both servers: the downstream's when the channel has passed the upstream's."""
        servers = self._servers
        self._since = servers.position().proved
        with servers.reading("upstream"):
            self._above = read_catalog(servers.upstream, _every)
            self._collations_above = _collations(servers.upstream)
            self._parents = _parents(servers.upstream)
            estimates = "SELECT table_schema, table_name, table_rows FROM information_schema.tables"
            found = rows(servers.upstream, f"{estimates} WHERE table_rows IS NOT NULL")
            self._estimates = {f"{_text(db)}.{_text(name)}": int(count) for db, name, count in found}
        self._passed = servers.wait_until_passed(servers.end())
        with servers.reading("downstream"):
            self._below = read_catalog(servers.downstream, _every)
            self._collations_below = _collations(servers.downstream)
            tables = "SELECT table_schema, table_name FROM information_schema.tables WHERE"
            self._any_time = _names(servers.downstream, f"{tables} engine <> 'InnoDB'")
            self._versioned = _names(servers.downstream, f"{tables} table_type = 'SYSTEM VERSIONED'")

    def again(self, report: TableReport) -> None:
        """Validate a table anew that was copied again because rows were different."""
        self._read_catalogs()
        self.table(report.table)
        found = self.report.by_name[report.table]
        found.repaired = max(0, report.different - found.different - found.pending)

    def repairable(self, name: str) -> QualifiedName | str:
        """Return the upstream table of a downstream table that a copy may empty, or why none may."""
        sources, target = self._pairs[name], self._below.get(name)
        above = [self._above[source] for source in sources if source in self._above]
        if len(sources) > 1:
            return "its rows are of several upstream tables"
        if not above or target is None:
            return "dropped meanwhile"
        if (target.db, target.name) in self._versioned:
            return "it is system-versioned and cannot be emptied"
        if own := {c.name.lower() for c in target.columns} - {c.name.lower() for c in above[0].columns}:
            return f"only the downstream has its column {min(own)}, whose values would be lost"
        return above[0].db, above[0].name

    def show(self) -> None:
        """Show the progress."""
        self._progress(self.report)

    def table(self, name: str) -> None:
        """Validate one downstream table, again from its start if DDL changes it meanwhile."""
        for _ in range(_STRUCTURE_ROUNDS):
            report = self.report.by_name[name] = TableReport(name)
            try:
                if (pair := self.pair(report)) is not None:
                    self._rows(report, pair)
                return
            except BeingCopied:
                report.set_problem("a copy of it is not complete", "pending")
                return
            except StructureChanged as change:
                report.set_problem(f"its structure changed meanwhile: {change}", "pending")
            self._read_catalogs()

    def pair(self, report: TableReport) -> TablePair | None:
        """Return a table's pair; None, with the reason noted, if its rows are not compared.

        Raises StructureChanged or BeingCopied if that cannot be known now.
        """
        sources = self._sources(report.table)
        target = self._below.get(report.table)
        if not sources:
            report.set_problem("dropped meanwhile", "left out")
            return None
        if reason := next(filter(None, map(self._left_out, sources)), ""):
            report.set_problem(reason, "left out")
            return None
        tables = self._source_names(report.table)
        position = self._servers.position()
        if tables <= position.hidden:
            report.set_problem("an online schema change builds it", "left out")
            return None
        self._history.check_complete(tables, position.epoch, is_new=position.is_new)
        parents = _ancestors(self._parents, tables)
        concerns = self.concerns(report.table)
        if target is None:
            self._structure_problem(report, concerns, "missing downstream")
            return None
        pair = pair_tables(
            [self._above[source] for source in sources],
            target,
            (self._collations_above, self._collations_below),
            same_flavor=self._servers.same_flavor,
        )
        if isinstance(pair, str):
            self._structure_problem(report, concerns, pair)
            return None
        any_time = (target.db, target.name) in self._any_time
        return replace(pair, any_time=any_time, parents=parents, since=self._since.offset, concerns=concerns)

    def concerns(self, name: str) -> Callable[[SchemaChanged], bool]:
        """Return a function that tells whether DDL may change a table's structure or rows."""
        tables = self._source_names(name)
        return partial(_concerns, tables | _ancestors(self._parents, tables), name, self._goes_to)

    def _sources(self, name: str) -> list[str]:
        return [source for source in self._pairs.get(name, ()) if source in self._above]

    def _source_names(self, name: str) -> set[QualifiedName]:
        return {(self._above[source].db, self._above[source].name) for source in self._sources(name)}

    def _structure_problem(
        self, report: TableReport, concerns: Callable[[SchemaChanged], bool], problem: str
    ) -> None:
        """Note a difference of structures. Raise StructureChanged if DDL may be the reason."""
        if not self._passed:
            raise StructureChanged(f"{problem}, and the channel is behind")
        self._history.check_structure(concerns, self._since.offset)
        report.set_problem(problem, "different")

    def _left_out(self, source: str) -> str:
        """Return why a table's rows need not be equal; empty if they must."""
        table, rules = self._above[source], self._rules.rules
        if rules.expressions_of(table.db, table.name):
            return "[[expression-filter]] leaves out rows by their values"
        if dropped := rules.events.dropped_dml(table.db, table.name):
            return f"[[filters]] leaves out {', '.join(sorted(dropped))}"
        return ""

    def _rows(self, report: TableReport, pair: TablePair) -> None:
        sides = self.sides(pair)
        proved = self._resume(report, pair)
        suspects = set(proved.open)
        for chunk, counts, upto in _chunks(sides, self._servers, pair, proved.upto):
            number, found = chunk_suspects(sides, chunk)
            suspects |= found
            report.chunks += 1
            report.rows += number if counts else 0
            if len(suspects) >= BATCH:
                self.settle(report, sides, suspects)
                suspects = set()
            if upto is not None:
                self._save(report, replace(proved, upto=upto), suspects)
            self._progress(self.report)
            self._slow_down(sides.above)
            if report.different + report.pending > _MOST_SUSPECTS:
                report.more = True
                break
        self.settle(report, sides, suspects)
        # Rows may be equal in the columns that were compared while DDL brought another one, or another table.
        self._history.check_structure(pair.concerns, pair.since)
        if not report.more:
            self._save(report, replace(proved, upto=None), ())
        self._progress(self.report)

    def _resume(self, report: TableReport, pair: TablePair) -> Proved:
        """Return what an interrupted run has proved of a table; nothing if DDL or a copy of it came since then."""
        structure = structure_of(pair, (self._collations_above, self._collations_below))
        new = Proved(self._since, structure)
        found = self._saved.take(report.table) if self._saved else None
        now = self._servers.position()
        if found is None or found.structure != structure:
            return new
        if not self._history.continues(found.position, now.proved):
            return new
        if any(self._history.was_copied(name, found.position.epoch, now.epoch) for name in pair.source_names):
            return new
        try:
            self._history.check_structure(pair.concerns, found.position.offset)
        except StructureChanged:
            return new
        report.rows, report.chunks = found.rows, found.chunks
        self.report.rows_resumed += found.rows
        self._first = min(self._first, found.position, key=lambda position: position.offset)
        self.report.position = self._first.executed
        return found

    def _save(self, report: TableReport, proved: Proved, suspects: Collection[Key]) -> None:
        if self._saved is None:
            return
        proved = replace(proved, rows=report.rows, chunks=report.chunks)
        with self._servers.reading("downstream"):
            self._saved.write(report.table, proved, {*suspects, *report.differing.keys(), *report.undecided})

    def sides(self, pair: TablePair) -> PairSides:
        """Return both sides of a pair."""
        return PairSides(self._servers, self._history, pair, self._where)

    def settle(self, report: TableReport, sides: PairSides, suspects: Collection[Key]) -> None:
        """Look at rows again until they are decided, or have moved in each round, and note what was found."""
        keys = sorted(suspects)
        for begin in range(0, len(keys), BATCH):
            some = keys[begin : begin + BATCH]
            settled = settle(sides, some, self._rounds)
            self.note(report, sides.pair, some, settled)

    def note(self, report: TableReport, pair: TablePair, keys: Collection[Key], settled: Settled) -> None:
        """Note what a round has found of rows."""
        report.note(keys, _shown(pair, settled), settled.pending)

    def _slow_down(self, reader: TableReader) -> None:
        if self._rate:
            time.sleep(reader.read / self._rate)
            reader.read = 0


def _concerns(
    tables: Set[QualifiedName], target: str, goes_to: Callable[[str, str], str], ddl: SchemaChanged
) -> bool:
    """Return whether DDL may change tables, or bring rows of another one into the target."""
    if ddl.kind == "DROP DATABASE":
        return any(db.lower() == ddl.default_db.lower() for db, _ in tables)
    names = {(table.db, table.table) for table in ddl.tables}
    names |= {(table.renamed_to_db or table.db, table.renamed_to) for table in ddl.tables if table.renamed_to}
    known = {(db.lower(), table.lower()) for db, table in tables}
    return any((db.lower(), table.lower()) in known or goes_to(db, table) == target for db, table in names)


def _chunks(
    sides: PairSides, servers: Servers, pair: TablePair, begin: ReadUpTo | None
) -> Iterator[tuple[Chunk, bool, ReadUpTo | None]]:
    """Yield the chunks of a table, whether their rows count (not if they were counted before), and where they end.

    Ranges end at the upstream's keys; of merged tables, at those of the table that is listed first and then of
    the others. Where the servers order keys in different ways, each server's keys are listed in its own order and
    looked up on the other one.
    """
    if begin is None:
        return
    if pair.division == "whole":
        yield Chunk(), True, None
    elif pair.division == "ranges":
        for chunk in _ranges(sides, servers, pair, begin.low):
            yield chunk, True, ReadUpTo(0, chunk.high) if chunk.high else None
    else:
        tables = [*pair.sources, pair.target]
        for listed, table in list(enumerate(tables))[begin.listed :]:
            is_last = table is pair.target
            reader = sides.below if is_last else sides.above
            with servers.reading("downstream" if is_last else "upstream"):
                for chunk, low in _lists(reader, table, begin.low if listed == begin.listed else None):
                    yield chunk, not is_last, ReadUpTo(listed, low)


def _ranges(sides: PairSides, servers: Servers, pair: TablePair, low: Key | None) -> Iterator[Chunk]:
    # The table with most rows gives the bounds; the ranges cover all keys of all tables.
    size = chunk_rows(pair.sources[0])
    longest = sides.below, pair.target
    if len(pair.sources) == 1:
        longest = sides.above, pair.sources[0]
    while True:
        with servers.reading("upstream" if len(pair.sources) == 1 else "downstream"):
            high = longest[0].next_key(longest[1], low, size)
        yield Chunk(low, high)
        if high is None:
            return
        low = high


def _lists(reader: TableReader, table: ComparedTable, low: Key | None) -> Iterator[tuple[Chunk, Key]]:
    while keys := reader.keys_after(table, low, min(KEYS_OF_A_LIST, chunk_rows(table))):
        low = keys[-1]
        yield Chunk(keys=tuple(keys)), low


def _shown(pair: TablePair, settled: Settled) -> dict[Key, str]:
    shown = {}
    for key, (above, below) in sorted(settled.different.items()):
        kind = "different values" if above and below else "only upstream" if above else "only downstream"
        if pair.division == "whole":
            columns, values = pair.target.columns, (above or below)[0]
            parts = [f"{c.name}={_value(v)}" for c, v in zip(columns, values, strict=True)]
        else:
            parts = [f"{c.name}={_value(v)}" for c, v in zip(pair.target.key, key, strict=True)]
        shown[key] = f"{', '.join(parts)[:300]}  {kind}"
    return shown


def _value(value: bytes | None) -> str:
    if value is None:
        return "NULL"
    text = value.decode(errors="replace")
    return text if text.isprintable() and "\ufffd" not in text else "0x" + value.hex()


def _collations(connection: Connection[Any]) -> Collations:
    found: dict[tuple[str, str], dict[str, str]] = {}
    sql = (
        "SELECT table_schema, table_name, column_name, collation_name FROM information_schema.columns"
        " WHERE collation_name IS NOT NULL"
    )
    for row in rows(connection, sql):
        db, table, column, collation = map(_text, row)
        found.setdefault((db, table), {})[column] = collation
    return found


def _parents(connection: Connection[Any]) -> Mapping[tuple[str, str], set[tuple[str, str]]]:
    """Return the tables whose changes change rows of a table by foreign keys."""
    rules = "('CASCADE', 'SET NULL', 'SET DEFAULT')"
    sql = (
        "SELECT constraint_schema, table_name, unique_constraint_schema, referenced_table_name"
        f" FROM information_schema.referential_constraints WHERE delete_rule IN {rules} OR update_rule IN {rules}"
    )
    found: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for row in rows(connection, sql):
        db, table, other_db, other = map(_text, row)
        found.setdefault((db, table), set()).add((other_db, other))
    return found


def _ancestors(
    parents: Mapping[tuple[str, str], set[tuple[str, str]]], tables: set[tuple[str, str]]
) -> frozenset[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    new = set(tables)
    while new := {parent for table in new for parent in parents.get(table, ())} - found:
        found |= new
    return frozenset(found)


def _names(connection: Connection[Any], sql: str) -> set[QualifiedName]:
    return {(_text(db), _text(name)) for db, name in rows(connection, sql)}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _every(db: str, table: str) -> bool:
    return True


def _ignores_letter_case(connection: Connection[Any]) -> bool:
    return int(rows(connection, "SELECT @@lower_case_table_names")[0][0]) != 0
