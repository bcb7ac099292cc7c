"""Pairs the tables of two servers by the channel's routes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from spark_consumer.rules.route import Router
from tailrace.compare.catalog import Table


@dataclass(frozen=True)
class Pairing:
    """Which tables are replicated, by their names upstream, and what they are called downstream."""

    replicated: Callable[[str, str], bool]
    router: Router

    def pairs(self, left: Mapping[str, Table], right: Mapping[str, Table]) -> Iterator[tuple[list[str], str]]:
        """Yield each target table with its source tables (none, one or several), by ``db.table``, in order."""
        sources: dict[str, list[str]] = {}
        for name in sorted(left):
            table = left[name]
            if self.replicated(table.db, table.name):
                target = ".".join(self.router.table(table.db, table.name))
                sources.setdefault(target, []).append(name)
        # A replicated table that only the target has, and that no route renames, is extra.
        extra = {
            name
            for name, table in right.items()
            if name not in sources
            and self.replicated(table.db, table.name)
            and self.router.table(table.db, table.name) == (table.db, table.name)
        }
        for target in sorted(sources.keys() | extra):
            yield sources.get(target, []), target
