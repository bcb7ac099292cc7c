"""A downstream's table: its columns, unique keys, triggers and foreign keys."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from schemas.tables import QualifiedName
from spark_consumer.target.type_capacity import SqlType


@dataclass(frozen=True)
class TargetColumn:
    """One column of a downstream table.

    Attributes:
        fills: whether an INSERT may leave it out: it has a default, may be NULL, or makes its values itself.
        generated: whether the server computes it and takes no value.
        collation: of a text column, "" of others.
        default: the default's text as ``information_schema`` has it; None without one.
        default_sql: the SQL text of what an INSERT that does not name it writes into it; None if nobody can know.
        touched: whether the server itself sets it in an UPDATE that does not name it.
        period: whether it says since when, or until when, MariaDB has the row in its history.
    """

    name: str
    type: SqlType
    nullable: bool = False
    fills: bool = False
    generated: bool = False
    collation: str = ""
    default: str | None = None
    default_sql: bytes | None = None
    touched: bool = False
    period: bool = False

    @property
    def key(self) -> str:
        """Its name in lower case: names of columns are compared so."""
        return self.name.lower()


@dataclass(frozen=True)
class TargetKeyPart:
    """One part of a unique key.

    Attributes:
        column: its name in lower case; None for an expression.
        length: how many characters or bytes of it count, None: all.
        nullable: whether it may be NULL, which conflicts with nothing.
    """

    column: str | None
    length: int | None = None
    nullable: bool = False


@dataclass(frozen=True)
class UniqueKey:
    """A primary or unique key."""

    name: str
    parts: tuple[TargetKeyPart, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Its columns' names in lower case, expressions left out."""
        return tuple(part.column for part in self.parts if part.column is not None)

    @property
    def plain(self) -> bool:
        """Whether equal columns mean equal keys: no part is an expression."""
        return all(part.column is not None for part in self.parts)

    @property
    def nullable(self) -> bool:
        """Whether rows with a NULL in it may be there any number of times."""
        return any(part.nullable for part in self.parts)


@dataclass(frozen=True)
class Trigger:
    """A trigger: ``BEFORE`` or ``AFTER``, and ``INSERT``, ``UPDATE`` or ``DELETE``."""

    name: str
    timing: str
    event: str
    body: str = ""
    sql_mode: str = ""


@dataclass(frozen=True)
class TargetTable:
    """One downstream table.

    Attributes:
        keys: its unique keys, the primary key first.
        in_family: whether it hangs, over any number of foreign keys, together with one that cascades.
        definition: ``SHOW CREATE TABLE`` without its counter, and its triggers: another text, another table.
        versioned: whether it is one of MariaDB's system-versioned tables.
        engine: its storage engine.
        transactional: whether what is written to it goes with its transaction.
        is_view: whether it is a view.
    """

    name: QualifiedName
    columns: tuple[TargetColumn, ...]
    keys: tuple[UniqueKey, ...] = ()
    in_family: bool = False
    triggers: tuple[Trigger, ...] = ()
    definition: str = ""
    versioned: bool = False
    engine: str = "InnoDB"
    transactional: bool = True
    is_view: bool = False

    @cached_property
    def _by_key(self) -> dict[str, TargetColumn]:
        return {column.key: column for column in self.columns}

    def column(self, name: str) -> TargetColumn | None:
        """The column of a name, in any case of letters."""
        return self._by_key.get(name.lower())

    @cached_property
    def writable(self) -> frozenset[str]:
        """Names, in lower case, of the columns that take values."""
        return frozenset(column.key for column in self.columns if not column.generated)

    @cached_property
    def generated(self) -> frozenset[str]:
        """Names, in lower case, of those that the server computes itself."""
        return frozenset(column.key for column in self.columns if column.generated)

    @cached_property
    def collations(self) -> tuple[tuple[str, str], ...]:
        """Of its text columns, by their names in lower case."""
        return tuple((column.key, column.collation) for column in self.columns if column.collation)


@dataclass(frozen=True)
class ForeignKey:
    """A foreign key, over which rows of two tables belong together; all names are in lower case."""

    columns: tuple[str, ...]
    parent: QualifiedName
    referenced: tuple[str, ...]


ForeignKeys = dict[QualifiedName, tuple[ForeignKey, ...]]
