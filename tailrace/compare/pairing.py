"""Which tables of the two servers belong together: by the channel's routes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from spark_consumer.rules.route import Router
from tailrace.compare.catalog import Table


@dataclass(frozen=True)
class Pairing:
    """The tables that are replicated, by their names upstream, and their names downstream."""

    replicated: Callable[[str, str], bool]
    router: Router

    def pairs(self, left: Mapping[str, Table], right: Mapping[str, Table]) -> Iterator[tuple[list[str], str]]:
        """The source's tables, none or several, of each table of the target, by ``db.table``, in order."""
        sources: dict[str, list[str]] = {}
        for name in sorted(left):
            table = left[name]
            if self.replicated(table.db, table.name):
                target = ".".join(self.router.table(table.db, table.name))
                sources.setdefault(target, []).append(name)
        # What is there alone, under a name that is nobody's but its own, should not be there.
        alone = {
            name
            for name, table in right.items()
            if name not in sources
            and self.replicated(table.db, table.name)
            and self.router.table(table.db, table.name) == (table.db, table.name)
        }
        for target in sorted(sources.keys() | alone):
            yield sources.get(target, []), target
