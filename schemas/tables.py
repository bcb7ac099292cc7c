"""Chooses the replicated tables: by the operator's patterns, and without the schemas that are never replicated."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from schemas.errors import ConfigError
from schemas.letter_case import lowered

#: a table's schema and its name
QualifiedName = tuple[str, str]

#: the servers' own schemas and Tailrace's
NEVER_REPLICATED = frozenset({"mysql", "sys", "information_schema", "performance_schema", "tailrace"})
# These two belong to the server in any letter case; `Sys` and `Mysql` may be a user's databases.
_CASELESS = frozenset({"information_schema", "performance_schema"})

# Names may contain nearly any character, but in a pattern these are nearly always a quoting mistake.
_SUSPECT = re.compile(r"[`'\",;\s]")


class TableFilter:
    """Include and exclude patterns ``db.table``, with ``*`` and ``?``; a bare ``db`` means all its tables.

    Exclude wins; an empty include means everything. The schemas in ``NEVER_REPLICATED`` are excluded whatever the
    patterns are.

    Args:
        fields: what an error calls ``include`` and ``exclude``.
        folds: whether the server has all names in lower case (``lower_case_table_names`` other than 0), so that
            patterns are meant so too; else names are compared exactly.

    Raises:
        ConfigError: TR130, an invalid pattern.
    """

    def __init__(
        self,
        include: Iterable[str] = (),
        exclude: Iterable[str] = (),
        *,
        folds: bool = False,
        fields: tuple[str, str] = ("tables.include", "tables.exclude"),
    ) -> None:
        self.folds = folds
        self.include, self.exclude = (
            tuple(map(lowered, one)) if folds else tuple(one) for one in (include, exclude)
        )
        self._include = [_Pattern(p, fields[0]) for p in self.include]
        self._exclude = [_Pattern(p, fields[1]) for p in self.exclude]
        # Row events look up the same few tables millions of times.
        self._known: dict[tuple[str, str], bool] = {}

    def allows(self, db: str, table: str) -> bool:
        """Whether a table's rows and DDL are replicated."""
        known = self._known.get((db, table))
        if known is None:
            known = self._known[db, table] = self._decide(db, table)
        return known

    def allows_database(self, db: str) -> bool:
        """Whether CREATE, ALTER and DROP DATABASE are replicated, because a table of it may be."""
        if never_replicated(db) or any(p.matches_all(db) for p in self._exclude):
            return False
        return not self._include or any(p.matches_db(db) for p in self._include)

    def allows_whole(self, db: str) -> bool:
        """Whether every possible table of a database is replicated."""
        if never_replicated(db) or any(p.matches_db(db) for p in self._exclude):
            return False
        return not self._include or any(p.matches_all(db) for p in self._include)

    def _decide(self, db: str, table: str) -> bool:
        if never_replicated(db) or any(p.matches(db, table) for p in self._exclude):
            return False
        return not self._include or any(p.matches(db, table) for p in self._include)


def never_replicated(db: str) -> bool:
    """Whether a schema belongs to the server or to Tailrace."""
    return db in NEVER_REPLICATED or db.lower() in _CASELESS


class _Pattern:
    """One ``db.table`` pattern."""

    def __init__(self, pattern: str, field: str) -> None:
        db, dot, table = pattern.partition(".")
        table = table if dot else "*"
        if not db or not table or "." in table or _SUSPECT.search(pattern):
            raise ConfigError(
                "TR130",
                f"{field}: {pattern!r} is not a table pattern",
                hint="write db, db.* or db.table, unquoted, with * and ? as wildcards; one pattern per item",
            )
        self._db = compile_pattern(db)
        self._table = compile_pattern(table)
        self._all_tables = not table.strip("*")

    def matches(self, db: str, table: str) -> bool:
        return bool(self._db.fullmatch(db) and self._table.fullmatch(table))

    def matches_db(self, db: str) -> bool:
        return self._db.fullmatch(db) is not None

    def matches_all(self, db: str) -> bool:
        return self._all_tables and self.matches_db(db)


@cache
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern with ``*`` and ``?`` that matches a whole name."""
    # Not fnmatch, which reads [ as a character class: MySQL allows [ in names.
    text = "".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in pattern)
    return re.compile(text, re.DOTALL)
