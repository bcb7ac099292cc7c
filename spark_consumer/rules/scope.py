"""The tables that a channel's patterns and routes cover. Other pipelines read them in ``relay_log_info.replicates``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import product

from schemas.tables import QualifiedName, TableFilter
from spark_consumer.rules.route import Route, Router

#: pairs of a schema pattern and a table pattern, with ``*`` and ``?`` as wildcards
Patterns = set[tuple[str, str]]


@dataclass(frozen=True)
class Scope:
    """The tables that a channel may read, by the upstream's names, and write, by the downstream's names.

    Attributes:
        include, exclude: patterns of the upstream's tables.
        routes: the routes of the channel.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    routes: tuple[Route, ...] = ()
    _tables: TableFilter = field(init=False, compare=False, repr=False)
    _router: Router = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_tables", TableFilter(self.include, self.exclude))
        object.__setattr__(self, "_router", Router(self.routes))

    def to_json(self) -> str:
        """Return the JSON text for the channel's row."""
        routes = [asdict(route) for route in self.routes]
        return json.dumps({"include": self.include, "exclude": self.exclude, "routes": routes})

    @classmethod
    def from_json(cls, text: str) -> Scope:
        """The inverse of ``to_json``."""
        said = json.loads(text)
        routes = tuple(Route(**route) for route in said["routes"])
        return cls(tuple(said["include"]), tuple(said["exclude"]), routes)

    def reads(self, name: QualifiedName) -> bool:
        """Whether an upstream table is replicated."""
        return self._tables.allows(*name)

    def writes(self, name: QualifiedName) -> bool:
        """Whether the channel writes a downstream table, if the upstream has a table for it."""
        sources = self._router.sources(*name)
        return any(_wild(source) or self.reads(source) for source in sources)

    @property
    def read(self) -> Patterns:
        """Patterns of the schemas and tables that may be replicated."""
        parts = (pattern.partition(".") for pattern in self.include or ("*",))
        return {(db, table or "*") for db, _, table in parts}

    @property
    def written(self) -> Patterns:
        """Patterns of the schemas and tables that may be written."""
        routed = {(r.target_schema, r.target_table or r.table_pattern or "*") for r in self.routes}
        return self.read | routed


def common(
    one: Callable[[QualifiedName], bool],
    other: Callable[[QualifiedName], bool],
    names: Iterable[QualifiedName],
) -> QualifiedName | None:
    """Return the first table, by name, for which both functions are true; None if there is none."""
    return next((name for name in sorted(names) if one(name) and other(name)), None)


def meetings(one: Patterns, other: Patterns) -> set[QualifiedName]:
    """Return an example name for each two patterns that match a common name."""
    met = ((meet(a[0], b[0]), meet(a[1], b[1])) for a, b in product(one, other))
    # An empty name means that any name matches.
    return {(db or "x", table or "x") for db, table in met if db is not None and table is not None}


@cache
def meet(one: str, other: str) -> str | None:
    """Return an example of a name that matches both patterns with ``*`` and ``?``; None if there is none."""
    if one[:1] != "*" and other[:1] == "*":
        one, other = other, one
    if one[:1] == "*":
        if (found := meet(one[1:], other)) is not None or not other:
            return found
        first, found = other[0], meet(one, other[1:])
        return found if first == "*" or found is None else first.replace("?", "x") + found
    if not one or not other:
        return None if one or other else ""
    if one[0] != other[0] and "?" not in (one[0], other[0]):
        return None
    first = (other if one[0] == "?" else one)[0].replace("?", "x")
    return None if (found := meet(one[1:], other[1:])) is None else first + found


def _wild(name: QualifiedName) -> bool:
    return any("*" in part or "?" in part for part in name)
