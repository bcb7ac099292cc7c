"""Compares two servers at rest: one validation without a channel and a log, and the structures line by line."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence, Set
from contextlib import closing
from typing import TypeVar

from schemas.access.server_url import ServerUrl
from schemas.ddl.engine import with_innodb
from schemas.ddl.lexer import Flavor
from schemas.tables import QualifiedName
from schemas.wire.epoch import SchemaChanged
from spark_consumer.rules.channel import ChannelKey
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.rules.route import Route
from tailrace.validate.catalog import (
    ComparedTable,
    column_names,
    create_statement,
    plain_structure,
    structure_lines,
)
from tailrace.validate.history import History
from tailrace.validate.protocol import Key
from tailrace.validate.result import Report
from tailrace.validate.servers import ChannelPosition, Servers, UpstreamEnd
from tailrace.validate.tables import StructureChanged, TablePair
from tailrace.validate.validator import Progress, Validator

T = TypeVar("T")

_POSITION = ChannelPosition(-1, -1, -1, frozenset(), "", None, None, "", is_new=False)
_END = UpstreamEnd("", 0, "")


def compare_servers(
    source: ServerUrl,
    target: ServerUrl,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    routes: Sequence[Route] = (),
) -> Report:
    """Compare the tables of two servers; see ``compare``. The patterns are those of ``[tables]``."""
    rules = ConsumerConfig(
        "", "", target, include=tuple(include), exclude=tuple(exclude), routes=tuple(routes)
    )
    return compare(source, rules)


def compare(source: ServerUrl, rules: ConsumerConfig, progress: Progress | None = None) -> Report:
    """Compare the rows and structures of a channel's tables on an upstream and the channel's target.

    What is written meanwhile may count as different. Raises UpstreamError or DownstreamError when a server cannot be
    read.
    """
    started = time.monotonic()
    with closing(_Resting(source, rules.target)) as servers:
        run = _Comparison(servers, rules, progress)
        run.begin()
        for name in run.names:
            run.table(name)
        run.report.seconds = time.monotonic() - started
        return run.report


class _Resting(Servers):
    """Two servers that are always at the same position."""

    def __init__(self, upstream: ServerUrl, downstream: ServerUrl) -> None:
        super().__init__(upstream, downstream, ChannelKey("", ""), patience=0)

    def position(self) -> ChannelPosition:
        return _POSITION

    def end(self) -> UpstreamEnd:
        return _END

    def passed(self, position: ChannelPosition, end: UpstreamEnd) -> bool:
        return True

    def wait_until_passed(self, end: UpstreamEnd) -> bool:
        return True

    def read_downstream(self, read: Callable[[], T]) -> tuple[T, ChannelPosition]:
        with self.reading("downstream"):
            return read(), _POSITION

    def read_upstream(self, read: Callable[[], T], behind: ChannelPosition) -> tuple[T, UpstreamEnd]:
        with self.reading("upstream"):
            return read(), _END


class _NoHistory(History):
    """A log in which nothing changes."""

    def __init__(self) -> None:
        pass

    def end(self) -> int:
        return -1

    def touched(self, pair: TablePair, keys: Collection[Key], offset: int, last: int) -> Collection[Key]:
        return ()

    def check_structure(self, concerns: Callable[[SchemaChanged], bool], offset: int) -> None:
        pass

    def check_complete(self, tables: Set[QualifiedName], epoch: int, *, is_new: bool) -> None:
        pass


class _Comparison(Validator):
    """Validates tables, and compares their structures too."""

    def __init__(self, servers: _Resting, rules: ConsumerConfig, progress: Progress | None) -> None:
        super().__init__(servers, _NoHistory(), rules, "", 0, progress or (lambda report: None))
        self._engines = rules.ddl.engines

    def begin(self, only: Sequence[str] = ()) -> None:
        """Also find the tables that only the downstream has."""
        super().begin(only)
        pairs = self._pairing.pairs(self._above, self._below)
        self._pairs = {**self._pairs, **{target: () for sources, target in pairs if not sources}}

    def table(self, name: str) -> None:
        """Validate one table and compare its structure."""
        super().table(name)
        report, target = self.report.by_name[name], self._below.get(name)
        sources = [self._above[source] for source in self._sources(name)]
        if not sources:
            report.set_problem("missing upstream", "different")
        elif target is not None:
            try:
                report.structure = self._structure(sources, target)
            except StructureChanged as change:
                report.set_problem(f"its structure changed meanwhile: {change}", "pending")
            if report.structure:
                report.set_problem(report.problem or "the structure differs", "different")

    def _structure(self, sources: Sequence[ComparedTable], target: ComparedTable) -> list[str]:
        """Return the lines in which the structures differ."""
        if len(sources) > 1:
            names = "\n".join(column_names(target))
            return [line for one in sources for line in structure_lines("\n".join(column_names(one)), names)]
        [source] = sources
        # CREATE TABLE contains the names of the table and of the tables that it references.
        if not self._servers.same_flavor or (source.db, source.name) != (target.db, target.name):
            return structure_lines(plain_structure(source), plain_structure(target))
        with self._servers.reading("upstream"):
            above = create_statement(self._servers.upstream, source)
        with self._servers.reading("downstream"):
            below = create_statement(self._servers.downstream, target)
        if self._engines == "innodb":
            flavor: Flavor = "mariadb" if self._servers.mariadb else "mysql"
            above, below = with_innodb(above, flavor), with_innodb(below, flavor)
        return structure_lines(above, below)
