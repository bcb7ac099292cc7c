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
from schemas.ddl.engine import in_innodb
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
    Difference,
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
        names = _pairing(sides, include, exclude, router or Router())
        return _Comparison(sides, pool, names, progress, reads, engines).run()


def _pairing(
    sides: tuple[_Side, _Side], include: Sequence[str], exclude: Sequence[str], router: Router
) -> Pairing:
    """Pair the tables by the servers' rules for letter case."""
    upstream, downstream = (side.call(_folds) for side in sides)
    routes = tuple(map(lower_route, router.routes)) if upstream else router.routes
    tables = TableFilter(include, exclude, folds=upstream)
    return Pairing(tables.allows, Router(routes, () if downstream else None))


def _folds(connection: Connection[Any]) -> bool:
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
        names: Pairing,
        progress: EachTable | None,
        reads: int,
        engines: bool,
    ) -> None:
        self._most_reads, self._engines = reads, engines
        self._sides = sides
        self._pool = pool
        self._pairing = names
        self._progress = progress or (lambda result: None)
        self._same_flavor = sides[0].mariadb == sides[1].mariadb

    def run(self) -> CompareResult:
        left, right = self._on_both(read_catalog, _every)
        results = []
        for sources, target in self._pairing.pairs(left, right):
            if len(sources) > 1:
                result = self._merged([left[name] for name in sources], target, right.get(target))
            else:
                source = sources[0] if sources else ""
                result = self._table(source, target, left.get(source), right.get(target))
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

    def _on_each(self, function: Callable[..., T], left: Iterable[Any], right: Iterable[Any]) -> tuple[T, T]:
        source = self._pool.submit(self._sides[0].call, function, *left)
        target = self._pool.submit(self._sides[1].call, function, *right)
        # Wait for both, so that no connection is closed while a query runs on it.
        error = source.exception() or target.exception()
        if error:
            raise error
        return source.result(), target.result()

    def _merged(self, sources: list[ComparedTable], name: str, target: ComparedTable | None) -> TableResult:
        """Compare several tables of the source with the table that they are merged into, by sums of row digests."""
        title = f"{' + '.join(f'{t.db}.{t.name}' for t in sources)} → {name}"
        if target is None:
            return TableResult(title, problem="missing in target")
        for source in sources:
            if _names(source) != _names(target):
                return TableResult(title, problem="structure differs")
        *sources, target = align_enum_comparison([*sources, target])
        count = theirs = 0
        for _ in self._read_again():
            found = [self._sides[0].call(chunks.digest_table, source) for source in sources]
            theirs, sums = self._sides[1].call(chunks.digest_table, target)
            count = sum(rows for rows, _ in found)
            total = [sum(bucket) for bucket in zip(*(digests for _, digests in found), strict=True)]
            if (count, total) == (theirs, sums):
                return TableResult(title, rows=count)
        return TableResult(title, rows=count, problem="rows differ", differing=abs(count - theirs), more=True)

    def _table(
        self, source: str, target: str, left: ComparedTable | None, right: ComparedTable | None
    ) -> TableResult:
        """Compare one table; read its structures again if they change meanwhile."""
        name = target if source in ("", target) else f"{source} → {target}"
        detail: tuple[str, ...] = ()
        for attempt in self._read_again():
            if attempt:
                ours, theirs = self._on_each(read_catalog, (_only(source),), (_only(target),))
                left, right = ours.get(source), theirs.get(target)
            if left is None and right is None:
                return TableResult(name, problem=_GONE)
            if left is None or right is None:
                continue
            try:
                detail = self._structure(left, right)
                if not detail:
                    return self._rows(name, left, right, detail)
            except _TableGone:
                left = None
        if left is None or right is None:
            return TableResult(name, problem=f"missing in {'source' if left is None else 'target'}")
        if _names(left) == _names(right):
            return self._rows(name, left, right, detail)
        return TableResult(name, problem="structure differs", detail=detail)

    def _structure(self, left: ComparedTable, right: ComparedTable) -> tuple[str, ...]:
        # CREATE TABLE contains the names of the table and of the tables that it references.
        if not self._same_flavor or (left.db, left.name) != (right.db, right.name):
            return structure_lines(plain_structure(left), plain_structure(right))
        source, target = self._on_each(create_statement, (left,), (right,))
        if not self._engines:
            flavor: Flavor = "mariadb" if self._sides[0].mariadb else "mysql"
            source, target = (in_innodb(text, flavor) for text in (source, target))
        return structure_lines(source, target)

    def _rows(
        self, name: str, left: ComparedTable, right: ComparedTable, detail: tuple[str, ...]
    ) -> TableResult:
        start = TableResult(name, problem="structure differs" if detail else "", detail=detail)
        left, right = align_enum_comparison([left, right])
        if left.key and right.key:
            return self._by_key(left, right, start)
        return self._as_multiset(left, right, start)

    def _by_key(self, left: ComparedTable, right: ComparedTable, result: TableResult) -> TableResult:
        low: chunks.Key | None = None
        size = chunks.chunk_rows(left)
        while True:
            # Both sides read the same number of rows at once. If the rows differ, the range is read again by
            # its bounds.
            source, target = self._on_each(
                chunks.read_range, (left, low, None, size), (right, low, None, size)
            )
            high = chunks.key_of(left, source[-1]) if len(source) == size else None
            found, more = self._confirmed(left, right, (low, high, size), source, target)
            result = result.with_rows(len(source), found, more)
            self._progress(result)
            if high is None:
                return result
            low = high

    def _confirmed(
        self,
        left: ComparedTable,
        right: ComparedTable,
        bounds: tuple[chunks.Key | None, chunks.Key | None, int],
        source: list[chunks.Row],
        target: list[chunks.Row],
    ) -> tuple[list[Difference], bool]:
        """Return the rows of a range that differ in every read, and whether the range has more rows than the limit."""
        if source == target:
            return [], False
        low, high, size = bounds
        limit = 4 * size + 1000
        suspects: dict[chunks.Key, Difference] | None = None
        more = False
        for _ in self._read_again():
            source, target = self._on_each(
                chunks.read_range, (left, low, high, limit), (right, low, high, limit)
            )
            more = len(source) != len(target) and limit in (len(source), len(target))
            now = _differences(left, right, source, target)
            suspects = now if suspects is None else {k: d for k, d in now.items() if k in suspects}
            if not suspects and not more:
                return [], False
        return list((suspects or {}).values()), more

    def _as_multiset(self, left: ComparedTable, right: ComparedTable, result: TableResult) -> TableResult:
        """Compare tables without a key by sums of row digests, which do not depend on the rows' order."""
        for _ in self._read_again():
            (count, ours), (theirs_count, theirs) = self._on_each(chunks.digest_table, (left,), (right,))
            if (count, ours) == (theirs_count, theirs):
                return result.with_rows(count)
        buckets = frozenset(i for i, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1])
        arguments = (buckets, 50 * MAX_KEYS)
        source, target = self._on_each(chunks.rows_in_buckets, (left, *arguments), (right, *arguments))
        rows = [Difference(_row_text(left, row), ONLY_SOURCE) for row in (source - target).elements()]
        rows += [Difference(_row_text(left, row), ONLY_TARGET) for row in (target - source).elements()]
        return result.with_rows(count, rows, more=abs(count - theirs_count) > len(rows) or not rows)


_GONE = "gone"


def _names(table: ComparedTable) -> list[str]:
    return [column.name for column in table.columns]


def _every(db: str, table: str) -> bool:
    return True


def _only(name: str) -> Callable[[str, str], bool]:
    return lambda db, table: f"{db}.{table}" == name


def _differences(
    left: ComparedTable, right: ComparedTable, source: list[chunks.Row], target: list[chunks.Row]
) -> dict[chunks.Key, Difference]:
    ours = {chunks.key_of(left, row): row for row in chunks.canonical_rows(left, right, source)}
    theirs = {chunks.key_of(right, row): row for row in chunks.canonical_rows(left, right, target)}
    found = {}
    for key in ours.keys() | theirs.keys():
        if ours.get(key) != theirs.get(key):
            kind = ONLY_SOURCE if key not in theirs else ONLY_TARGET if key not in ours else DIFFERENT
            found[key] = Difference(_key_text(left, key), kind)
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
