"""Routing: the downstream's name of each upstream schema and table.

A rule with a table pattern overrides one with only a schema pattern, as in DM. Two rules of the same
strength that send one table to two places are a mistake, and raise an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, TypeVar

from pydantic import Field

from schemas.errors import ConfigError, DownstreamError, Where
from schemas.letter_case import lowered
from schemas.tables import QualifiedName, compile_pattern, never_replicated

T = TypeVar("T")


@dataclass(frozen=True)
class Route:
    """One rule of ``[[routes]]``."""

    schema_pattern: Annotated[
        str, Field(min_length=1, description="schemas, with * and ? as wildcards", examples=["shop_*"])
    ]
    target_schema: Annotated[str, Field(min_length=1, description="the schema downstream", examples=["shop"])]
    table_pattern: Annotated[
        str | None,
        Field(
            min_length=1,
            description="tables; without it the rule renames whole schemas",
            examples=["orders_*"],
        ),
    ] = None
    target_table: Annotated[
        str | None,
        Field(
            min_length=1,
            description="the table downstream; without it tables keep their names",
            examples=["orders"],
        ),
    ] = None


@dataclass(frozen=True)
class Router:
    """All routes of a channel.

    Attributes:
        folded: if the downstream stores all names in lower case, the upstream's known tables; otherwise None.

    Raises:
        ConfigError: TR131, a rule is not valid; TR132, rules contradict each other about a table.
        DownstreamError: TR618, two upstream tables have the same name on the downstream without a route.
    """

    routes: tuple[Route, ...] = ()
    folded: tuple[QualifiedName, ...] | None = None
    _known: dict[QualifiedName, QualifiedName] = field(default_factory=dict, compare=False, repr=False)
    _unfolded: dict[QualifiedName, QualifiedName] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.folded is not None:
            object.__setattr__(self, "routes", tuple(map(_folded_route, self.routes)))
        for route in self.routes:
            if never_replicated(route.target_schema):
                raise ConfigError(
                    "TR131",
                    f"routes: {route.target_schema} is a system schema",
                    hint="choose another schema",
                )
            if route.target_table is not None and route.table_pattern is None:
                raise ConfigError(
                    "TR131",
                    f"routes: target-table {route.target_table} without a table-pattern",
                    hint='write table-pattern = "*" to send all tables of the schema into one',
                )
        for name in self.folded or ():
            self.table(*name)

    def table(self, db: str, table: str) -> QualifiedName:
        """Return the downstream's name of an upstream table."""
        known = self._known.get((db, table))
        if known is None:
            known = self._known[db, table] = self._there(self._table(db, table))
        return known

    def _there(self, name: QualifiedName) -> QualifiedName:
        """Return a name in the downstream's letter case. Raises DownstreamError TR618."""
        if self.folded is None:
            return name
        there = (lowered(name[0]), lowered(name[1]))
        if (other := self._unfolded.setdefault(there, name)) != name:
            raise DownstreamError(
                "TR618",
                f"{'.'.join(other)} and {'.'.join(name)} are one table on the downstream, which stores all names in"
                " lower case (lower_case_table_names)",
                where=Where(table=".".join(name)),
                hint="give one of them another name with [[routes]], or leave it out with [tables] exclude",
            )
        return there

    def database(self, db: str) -> str:
        """Return the downstream's name of an upstream schema. Only rules without a table pattern rename a schema."""
        return self._as_there(self._schema(db))

    def _schema(self, db: str) -> str:
        targets = {r.target_schema for r in self._for_schemas(db)}
        return self._one(targets, db) if targets else db

    def name(self, db: str, table: str | None) -> tuple[str, str | None]:
        """Return the downstream's name of a table, or of a schema if ``table`` is None."""
        return (self.database(db), None) if table is None else self.table(db, table)

    def merges(self, db: str, table: str) -> bool:
        """Whether the rules may send several upstream tables to this downstream table.

        Upstream tables that keep their names are not considered, because only the log shows whether they exist.
        """
        here = [r for r in self.routes if r.target_schema == db]
        named = {(r.schema_pattern, r.table_pattern or "") for r in here if r.target_table == table}
        keeping = {
            r.schema_pattern
            for r in here
            if r.target_table is None and fits(self._as_there(r.table_pattern or "*"), table)
        }
        wild = any(map(_wild, (*keeping, *(pattern for name in named for pattern in name))))
        return wild or len(named) > 1 or len(keeping) > 1

    def sources(self, db: str, table: str) -> Iterator[tuple[str, str]]:
        """Yield patterns of schema and table of all upstream tables that may go into this downstream table.

        The table with the same name is one of them if no rule renames it.
        """
        here = [r for r in self.routes if self._as_there(r.target_schema) == db]
        for route in here:
            if route.target_table is not None:
                if self._as_there(route.target_table) == table:
                    yield route.schema_pattern, route.table_pattern or "*"
            elif route.table_pattern is None or fits(self._as_there(route.table_pattern), table):
                yield route.schema_pattern, table
        if not any(self._fits_there(route, db, table) for route in self.routes):
            yield db, table

    def _fits_there(self, route: Route, db: str, table: str) -> bool:
        schema, name = (
            self._as_there(pattern) for pattern in (route.schema_pattern, route.table_pattern or "*")
        )
        return fits(schema, db) and fits(name, table)

    def _as_there(self, pattern: str) -> str:
        return pattern if self.folded is None else lowered(pattern)

    def is_merged_schema(self, db: str) -> bool:
        """Whether the rules may send several upstream schemas, or tables of other schemas, to this schema."""
        counts = (
            2 if _wild(r.schema_pattern) or r.table_pattern else 1
            for r in self.routes
            if r.target_schema == db
        )
        return sum(counts) > 1

    def affects_schema(self, db: str) -> bool:
        """Whether a rule may rename this upstream schema or a table in it."""
        return any(fits(r.schema_pattern, db) for r in self.routes)

    def splits_schema(self, db: str) -> bool:
        """Whether the rules may send tables of this upstream schema to a schema other than its own target."""
        target = self.database(db)
        return any(
            r.table_pattern is not None and fits(r.schema_pattern, db) and r.target_schema != target
            for r in self.routes
        )

    def _table(self, db: str, table: str) -> QualifiedName:
        exact = {
            (r.target_schema, r.target_table or table)
            for r in self.routes
            if r.table_pattern is not None and fits(r.schema_pattern, db) and fits(r.table_pattern, table)
        }
        return self._one(exact, f"{db}.{table}") if exact else (self._schema(db), table)

    def _for_schemas(self, db: str) -> Iterable[Route]:
        return (r for r in self.routes if r.table_pattern is None and fits(r.schema_pattern, db))

    @staticmethod
    def _one(targets: set[T], name: str) -> T:
        if len(targets) > 1:
            raise ConfigError(
                "TR132",
                f"routes: {name} is routed to several targets: {', '.join(map(str, sorted(targets, key=str)))}",
                hint="narrow the patterns so that only one rule matches",
            )
        return next(iter(targets))


def _folded_route(route: Route) -> Route:
    table = route.target_table
    return replace(
        route,
        target_schema=lowered(route.target_schema),
        target_table=None if table is None else lowered(table),
    )


def fits(pattern: str, name: str) -> bool:
    """Whether a pattern with ``*`` and ``?`` matches the whole name."""
    return compile_pattern(pattern).fullmatch(name) is not None


def _wild(pattern: str) -> bool:
    return "*" in pattern or "?" in pattern
