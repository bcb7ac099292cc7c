"""A downstream table: its columns, unique keys, triggers and foreign keys."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from schemas.ddl.lexer import Flavor
from schemas.tables import QualifiedName
from spark_consumer.target.type_capacity import SqlType

#: the value of a NOT NULL column without a default, where sql_mode allows to omit the column, by type
IMPLICIT = {
    **dict.fromkeys(
        ("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double"), b"0"
    ),
    **dict.fromkeys(("bit", "year"), b"0"),
    **dict.fromkeys(("char", "varchar", "binary", "varbinary", "set"), b"''"),
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext"), b"''"),
    **dict.fromkeys(("tinyblob", "blob", "mediumblob", "longblob"), b"''"),
    "enum": b"1",
    "json": b"'null'",
    "date": b"'0000-00-00'",
    "time": b"'00:00:00'",
    **dict.fromkeys(("datetime", "timestamp"), b"'0000-00-00 00:00:00'"),
}


@dataclass(frozen=True)
class TargetColumn:
    """One column of a downstream table.

    Attributes:
        fills: whether an INSERT may omit it: it has a default, may be NULL, or gets its value from the server.
        generated: whether the server computes it and accepts no value.
        collation: a text column's collation; "" for other columns.
        default: the default's text from ``information_schema``; None without one.
        default_sql: SQL text of the value that an INSERT without this column writes; None if it is not known.
        touched: whether the server sets it in an UPDATE that does not name it.
        period: whether it is the start or end of the row's period in a MariaDB system-versioned table.
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
        """The name in lower case: column names are not case-sensitive."""
        return self.name.lower()

    @property
    def any_value(self) -> bytes | None:
        """SQL text of a value that the column accepts; None if none is known."""
        if self.nullable:
            return b"NULL"
        # MariaDB's JSON is a LONGTEXT with a check.
        return b"'0'" if self.type.base == "longtext" else IMPLICIT.get(self.type.base)


@dataclass(frozen=True)
class TargetKeyPart:
    """One part of a unique key.

    Attributes:
        column: the column's name in lower case; None for an expression.
        length: the prefix length in characters or bytes; None if the whole column is in the key.
        nullable: whether it may be NULL; NULLs never conflict.
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
        """The names of its columns in lower case, without expressions."""
        return tuple(part.column for part in self.parts if part.column is not None)

    @property
    def plain(self) -> bool:
        """Whether equal columns mean equal keys: no part is an expression."""
        return all(part.column is not None for part in self.parts)

    @property
    def nullable(self) -> bool:
        """Whether a part may be NULL; such rows may exist any number of times."""
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
        keys: the unique keys, the primary key first.
        in_family: whether a chain of foreign keys connects it with one that cascades.
        referred: the columns, in lower case, to which foreign keys refer that act on a DELETE, and on an UPDATE; None
            if they are not known.
        definition: ``SHOW CREATE TABLE`` without AUTO_INCREMENT, and the triggers. It changes if the table changes.
        versioned: whether it is a MariaDB system-versioned table.
        engine: the storage engine.
        transactional: whether a rollback undoes writes to it.
        is_view: whether it is a view.
        flavor: the kind of server that has it.
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
    referred: tuple[frozenset[str], frozenset[str]] | None = None
    flavor: Flavor = "mysql"

    @cached_property
    def _by_key(self) -> dict[str, TargetColumn]:
        return {column.key: column for column in self.columns}

    def column(self, name: str) -> TargetColumn | None:
        """Return the column with this name in any letter case, None if there is none."""
        return self._by_key.get(name.lower())

    @cached_property
    def writable(self) -> frozenset[str]:
        """Names in lower case of the columns that accept values."""
        return frozenset(column.key for column in self.columns if not column.generated)

    @cached_property
    def generated(self) -> frozenset[str]:
        """Names in lower case of the columns that the server computes."""
        return frozenset(column.key for column in self.columns if column.generated)

    @cached_property
    def collations(self) -> tuple[tuple[str, str], ...]:
        """Name in lower case and collation of each text column."""
        return tuple((column.key, column.collation) for column in self.columns if column.collation)


@dataclass(frozen=True)
class ForeignKey:
    """A foreign key, over which rows of two tables belong together; all names are in lower case."""

    columns: tuple[str, ...]
    parent: QualifiedName
    referenced: tuple[str, ...]


ForeignKeys = dict[QualifiedName, tuple[ForeignKey, ...]]
