"""Compares two servers' tables chunk by chunk; differences are read again before they are reported.

Replication may be running, so a difference counts only if several reads show it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any, TypeVar

import pymysql
from pymysql.connections import Connection

from schemas.access.server_url import ServerUrl
from schemas.ddl.engine import with_innodb
from schemas.ddl.lexer import Flavor
from schemas.errors import DownstreamError, UpstreamError
from schemas.tables import TableFilter
from spark_consumer.epochs.letter_case import lower_route
from spark_consumer.rules.route import Router
from tailrace.compare import chunks
from tailrace.compare.catalog import (
    ComparedTable,
    Pairing,
    align_enum_comparison,
    column_names,
    create_statement,
    plain_structure,
    read_catalog,
    structure_lines,
)
from tailrace.compare.result import (
    DIFFERENT,
    MAX_KEYS,
    ONLY_SOURCE,
    ONLY_TARGET,
    CompareResult,
    RowDifference,
    TableResult,
)
from tailrace.servers import Side, is_mariadb, message, rows

T = TypeVar("T")
EachTable = Callable[[TableResult], None]

READS = 5


def compare_servers(
    source: ServerUrl,
    target: ServerUrl,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    *,
    router: Router | None = None,
    progress: EachTable | None = None,
    reads: int = READS,
    engines: bool = True,
) -> CompareResult:
    """Compare all replicated tables of two servers, structure and rows.

    Args:
        include, exclude: patterns as in ``[tables]``.
        router: gives the target's names of the source's tables; tables with one target are compared as one.
        progress: called with a table's result after each chunk and at the end.
        reads: how many reads in a row must show a difference before it counts.
        engines: whether a storage engine without transactions differs from InnoDB.

    Raises UpstreamError or DownstreamError when a server cannot be read.
    """
    with ExitStack() as stack:
        sides = (_open_side(stack, source, "upstream"), _open_side(stack, target, "downstream"))
        pool = stack.enter_context(ThreadPoolExecutor(2))
        pairing = _pairing(sides, include, exclude, router or Router())
        return _Comparison(sides, pool, pairing, progress, reads, engines).run()


def _pairing(
    sides: tuple[_Side, _Side], include: Sequence[str], exclude: Sequence[str], router: Router
) -> Pairing:
    """Pair the tables by the servers' rules for letter case."""
    upstream, downstream = (side.call(_ignores_letter_case) for side in sides)
    routes = tuple(map(lower_route, router.routes)) if upstream else router.routes
    tables = TableFilter(include, exclude, folds=upstream)
    return Pairing(tables.allows, Router(routes, () if downstream else None))


def _ignores_letter_case(connection: Connection[Any]) -> bool:
    """Return whether a server ignores letter case in names of tables."""
    return int(rows(connection, "SELECT @@lower_case_table_names")[0][0]) != 0


@dataclass(frozen=True)
class _Side:
    """One server's connection; errors name its side."""

    url: ServerUrl
    side: Side
    connection: Connection[Any]
    mariadb: bool

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        try:
            return function(self.connection, *arguments)
        except (pymysql.MySQLError, OSError) as error:
            if isinstance(error, pymysql.MySQLError) and chunks.table_is_gone(error):
                raise _TableGone from None
            code, kind = ("TR203", UpstreamError) if self.side == "upstream" else ("TR603", DownstreamError)
            raise kind(code, f"reading the {self.side} {self.url} failed: {message(error)}") from error


def _open_side(stack: ExitStack, url: ServerUrl, side: Side) -> _Side:
    connection = stack.enter_context(closing(chunks.connect_raw(url, side)))
    return _Side(url, side, connection, is_mariadb(connection))


class _TableGone(Exception):
    """A table vanished between the catalog and the SELECT."""


class _Comparison:
    def __init__(
        self,
        sides: tuple[_Side, _Side],
        pool: ThreadPoolExecutor,
        pairing: Pairing,
        progress: EachTable | None,
        reads: int,
        engines: bool,
    ) -> None:
        self._most_reads, self._engines = reads, engines
        self._sides = sides
        self._pool = pool
        self._pairing = pairing
        self._progress = progress or (lambda result: None)
        self._same_flavor = sides[0].mariadb == sides[1].mariadb

    def run(self) -> CompareResult:
        source_tables, target_tables = self._on_both(read_catalog, _every)
        results = []
        for sources, target in self._pairing.pairs(source_tables, target_tables):
            if len(sources) > 1:
                merged = [source_tables[name] for name in sources]
                result = self._compare_merged(merged, target, target_tables.get(target))
            else:
                source = sources[0] if sources else ""
                result = self._compare(source, target, source_tables.get(source), target_tables.get(target))
            self._progress(result)
            results.append(result)
        return CompareResult(tuple(result for result in results if result.problem != _GONE))

    def _read_again(self) -> Iterator[int]:
        """Count the reads of something that differs, with growing pauses between them."""
        yield 0
        for attempt in range(1, self._most_reads):
            time.sleep(min(2.0, 0.2 * 2**attempt))
            yield attempt
        # One difference is certain now, so later ones are read only twice.
        self._most_reads = min(self._most_reads, 2)

    def _on_both(self, function: Callable[..., T], *arguments: Any) -> tuple[T, T]:
        return self._on_each(function, arguments, arguments)

    def _on_each(
        self, function: Callable[..., T], for_source: Iterable[Any], for_target: Iterable[Any]
    ) -> tuple[T, T]:
        source = self._pool.submit(self._sides[0].call, function, *for_source)
        target = self._pool.submit(self._sides[1].call, function, *for_target)
        # Wait for both, so that no connection is closed while a query runs on it.
        error = source.exception() or target.exception()
        if error:
            raise error
        return source.result(), target.result()

    def _compare_merged(
        self, sources: list[ComparedTable], name: str, target: ComparedTable | None
    ) -> TableResult:
        """Compare several tables of the source with the table that they are merged into, by sums of row digests."""
        title = f"{' + '.join(f'{t.db}.{t.name}' for t in sources)} → {name}"
        if target is None:
            return TableResult(title, problem="missing in target")
        for source in sources:
            if column_names(source) != column_names(target):
                return TableResult(title, problem="structure differs")
        *sources, target = align_enum_comparison([*sources, target])
        source_count = target_count = 0
        for _ in self._read_again():
            digests = [self._sides[0].call(chunks.digest_table, source) for source in sources]
            source_count = sum(rows for rows, _ in digests)
            source_sums = [sum(bucket) for bucket in zip(*(sums for _, sums in digests), strict=True)]
            target_count, target_sums = self._sides[1].call(chunks.digest_table, target)
            if (source_count, source_sums) == (target_count, target_sums):
                return TableResult(title, rows=source_count)
        differing = abs(source_count - target_count)
        return TableResult(title, rows=source_count, problem="rows differ", differing=differing, more=True)

    def _compare(
        self, source_name: str, target_name: str, source: ComparedTable | None, target: ComparedTable | None
    ) -> TableResult:
        """Compare one table; read its structures again if they change meanwhile."""
        name = target_name if source_name in ("", target_name) else f"{source_name} → {target_name}"
        detail: tuple[str, ...] = ()
        for attempt in self._read_again():
            if attempt:
                sources, targets = self._on_each(read_catalog, (_only(source_name),), (_only(target_name),))
                source, target = sources.get(source_name), targets.get(target_name)
            if source is None and target is None:
                return TableResult(name, problem=_GONE)
            if source is None or target is None:
                continue
            try:
                detail = self._compare_structure(source, target)
                if not detail:
                    return self._compare_rows(name, source, target, detail)
            except _TableGone:
                source = None
        if source is None or target is None:
            return TableResult(name, problem=f"missing in {'source' if source is None else 'target'}")
        if column_names(source) == column_names(target):
            return self._compare_rows(name, source, target, detail)
        return TableResult(name, problem="structure differs", detail=detail)

    def _compare_structure(self, source: ComparedTable, target: ComparedTable) -> tuple[str, ...]:
        # CREATE TABLE contains the names of the table and of the tables that it references.
        if not self._same_flavor or (source.db, source.name) != (target.db, target.name):
            return structure_lines(plain_structure(source), plain_structure(target))
        statements = self._on_each(create_statement, (source,), (target,))
        if self._engines:
            return structure_lines(*statements)
        flavor: Flavor = "mariadb" if self._sides[0].mariadb else "mysql"
        return structure_lines(*(with_innodb(statement, flavor) for statement in statements))

    def _compare_rows(
        self, name: str, source: ComparedTable, target: ComparedTable, detail: tuple[str, ...]
    ) -> TableResult:
        start = TableResult(name, problem="structure differs" if detail else "", detail=detail)
        source, target = align_enum_comparison([source, target])
        if source.key and target.key:
            return self._compare_by_key(source, target, start)
        return self._compare_by_digests(source, target, start)

    def _compare_by_key(
        self, source: ComparedTable, target: ComparedTable, result: TableResult
    ) -> TableResult:
        low: chunks.Key | None = None
        size = chunks.chunk_rows(source)
        while True:
            # Both sides read the same number of rows at once. If the rows differ, the range is read again by
            # its bounds.
            source_rows, target_rows = self._on_each(
                chunks.read_range, (source, low, None, size), (target, low, None, size)
            )
            high = chunks.key_of(source, source_rows[-1]) if len(source_rows) == size else None
            found: list[RowDifference] = []
            more = False
            if source_rows != target_rows:
                found, more = self._confirmed_differences(source, target, low, high, 4 * size + 1000)
            result = result.with_rows(len(source_rows), found, more)
            self._progress(result)
            if high is None:
                return result
            low = high

    def _confirmed_differences(
        self,
        source: ComparedTable,
        target: ComparedTable,
        low: chunks.Key | None,
        high: chunks.Key | None,
        limit: int,
    ) -> tuple[list[RowDifference], bool]:
        """Return the rows of a range that differ in every read, and whether the range has more rows than ``limit``."""
        confirmed: dict[chunks.Key, RowDifference] | None = None
        more = False
        for _ in self._read_again():
            source_rows, target_rows = self._on_each(
                chunks.read_range, (source, low, high, limit), (target, low, high, limit)
            )
            more = len(source_rows) != len(target_rows) and limit in (len(source_rows), len(target_rows))
            now = _differences(source, target, source_rows, target_rows)
            confirmed = now if confirmed is None else {k: d for k, d in now.items() if k in confirmed}
            if not confirmed and not more:
                return [], False
        return list((confirmed or {}).values()), more

    def _compare_by_digests(
        self, source: ComparedTable, target: ComparedTable, result: TableResult
    ) -> TableResult:
        """Compare tables without a key by sums of row digests, which do not depend on the rows' order."""
        for _ in self._read_again():
            (source_count, source_sums), (target_count, target_sums) = self._on_each(
                chunks.digest_table, (source,), (target,)
            )
            if (source_count, source_sums) == (target_count, target_sums):
                return result.with_rows(source_count)
        sums = enumerate(zip(source_sums, target_sums, strict=True))
        buckets = frozenset(i for i, (in_source, in_target) in sums if in_source != in_target)
        arguments = (buckets, 50 * MAX_KEYS)
        source_rows, target_rows = self._on_each(
            chunks.rows_in_buckets, (source, *arguments), (target, *arguments)
        )
        rows = [
            RowDifference(_row_text(source, r), ONLY_SOURCE) for r in (source_rows - target_rows).elements()
        ]
        rows += [
            RowDifference(_row_text(source, r), ONLY_TARGET) for r in (target_rows - source_rows).elements()
        ]
        more = abs(source_count - target_count) > len(rows) or not rows
        return result.with_rows(source_count, rows, more)


_GONE = "gone"


def _every(db: str, table: str) -> bool:
    return True


def _only(name: str) -> Callable[[str, str], bool]:
    return lambda db, table: f"{db}.{table}" == name


def _differences(
    source: ComparedTable, target: ComparedTable, source_rows: list[chunks.Row], target_rows: list[chunks.Row]
) -> dict[chunks.Key, RowDifference]:
    in_source = {chunks.key_of(source, r): r for r in chunks.canonical_rows(source, target, source_rows)}
    in_target = {chunks.key_of(target, r): r for r in chunks.canonical_rows(source, target, target_rows)}
    found = {}
    for key in in_source.keys() | in_target.keys():
        if in_source.get(key) != in_target.get(key):
            kind = ONLY_SOURCE if key not in in_target else ONLY_TARGET if key not in in_source else DIFFERENT
            found[key] = RowDifference(_key_text(source, key), kind)
    return dict(sorted(found.items()))


def _key_text(table: ComparedTable, key: chunks.Key) -> str:
    return ", ".join(f"{c.name}={_value_text(v)}" for c, v in zip(table.key, key, strict=True))


def _row_text(table: ComparedTable, row: chunks.Row) -> str:
    return ", ".join(f"{c.name}={_value_text(v)}" for c, v in zip(table.columns, row, strict=True))[:300]


def _value_text(value: bytes | None) -> str:
    if value is None:
        return "NULL"
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return "0x" + value.hex()
    return text if text.isprintable() else repr(text)
