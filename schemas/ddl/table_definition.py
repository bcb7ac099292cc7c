"""A table as its DDL defines it, tracked along the log: the details that TABLE_MAP has only with full metadata."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from schemas.charsets.collations import MAX_CHARACTER_BYTES

#: the invisible columns of type TIMESTAMP(6) that MariaDB adds to a system-versioned table
PERIOD = ("row_start", "row_end")
_LONGEST_KEY = 3072  # bytes, InnoDB's
#: maximum number of columns of a table, in both servers
MAX_COLUMNS = 4096
#: maximum number of keys, including those of single columns and of foreign keys; the servers allow 64 and 128
MAX_KEYS = 1024

#: types that have a character set
CHARACTER = frozenset({"char", "varchar", "text", "enum", "set"})


@dataclass(frozen=True)
class ColumnDefinition:
    """A column as DDL defines it; ``schemas.structure.Column`` is the column as the log describes it.

    Attributes:
        type: the normalized type: ``int`` for INTEGER, ``text`` and ``blob`` in all sizes, ``geometry`` for all
            its kinds. CHAR, VARCHAR and TEXT in the character set ``binary`` are binary, varbinary and blob.
        length: characters, bytes, digits, or fraction digits; for text and blob the size of a value's length in
            bytes, 0 if the definition is not clear; None if the type has no length.
        scale: of decimal.
        charset: None if unknown; ``""`` if the type has none.
        nullable: None if unknown.
        generated: ``virtual``, ``stored`` or ``""``.
    """

    name: str
    type: str
    length: int | None = None
    scale: int | None = None
    unsigned: bool = False
    charset: str | None = ""
    members: tuple[str, ...] = ()
    nullable: bool | None = True
    generated: str = ""
    invisible: bool = False
    compressed: bool = False


@dataclass(frozen=True)
class KeyPart:
    """A column of a key, with the length of its prefix; the name is empty for an expression."""

    name: str
    prefix: int | None = None


@dataclass(frozen=True)
class KeyDefinition:
    """A key of a table.

    Attributes:
        named: False if the server generated the name.
        hash: whether it has USING HASH.
    """

    name: str
    kind: Literal["primary", "unique", "other"]
    parts: tuple[KeyPart, ...]
    named: bool = True
    hash: bool = False


@dataclass(frozen=True)
class TableDefinition:
    """A table's columns and keys in the server's order.

    Attributes:
        charset: the default for new columns; None if unknown.
        foreign: whether it has or had foreign keys, which add keys.
        whole: whether ``keys`` has all keys; False if only a TABLE_MAP is known.
        versioned: whether it is system-versioned, with ``PERIOD`` after the columns and in the row's key.
    """

    columns: tuple[ColumnDefinition, ...]
    keys: tuple[KeyDefinition, ...] = ()
    charset: str | None = None
    foreign: bool = False
    whole: bool = True
    versioned: bool = False

    def column(self, name: str) -> ColumnDefinition | None:
        """Return a column by its name, ignoring case."""
        return next((c for c in self.columns if same_name(c.name, name)), None)

    def row_key(self) -> tuple[str, ...]:
        """Return the columns of the primary key, or of the unique key that the servers use instead."""
        for key in self.keys:
            if key.kind == "primary" or (key.kind == "unique" and self._identifies(key)):
                names = [self.column(part.name) for part in key.parts]
                end = PERIOD[1:] if self.versioned else ()
                return (*(column.name for column in names if column is not None), *end)
        return ()

    def _identifies(self, key: KeyDefinition) -> bool:
        """Whether a key is NOT NULL and has whole columns: TABLE_SHARE::primary_key in both servers."""
        columns = [self.column(part.name) for part in key.parts]
        plain = not self.hashed(key) and not any(part.prefix for part in key.parts)
        return plain and all(c is not None and c.nullable is False for c in columns)

    def hashed(self, key: KeyDefinition) -> bool:
        """Whether MariaDB implements a unique key by a hidden hash column, because it is too long or has USING HASH."""
        if key.hash:
            return True
        columns = [(self.column(part.name), part.prefix) for part in key.parts]
        whole = [column for column, prefix in columns if column is not None and not prefix]
        text = [c for c in whole if c.type in ("char", "varchar", "binary", "varbinary")]
        size = sum((c.length or 0) * MAX_CHARACTER_BYTES.get(c.charset or "", 1) for c in text)
        return any(c.type in ("text", "blob") for c in whole) or size > _LONGEST_KEY

    def nullable_keys(self) -> tuple[str, ...]:
        """Return the names of the keys that may have NULL."""
        return tuple(key.name for key in self.keys if self._nullable(key))

    def _nullable(self, key: KeyDefinition) -> bool:
        columns = [self.column(part.name) for part in key.parts]
        return any(column is None or column.nullable is not False for column in columns)

    def sorted(self, nullable: Collection[str] = ()) -> TableDefinition:
        """Return it with the keys in the order of both servers (``sort_keys`` in sql/sql_table.cc).

        Args:
            nullable: names of keys that count as such that may have NULL.
        """

        def rank(key: KeyDefinition) -> tuple[bool, ...]:
            return (
                key.kind == "other",
                key.kind != "primary",
                self.hashed(key) or key.name in nullable or self._nullable(key),
                self.hashed(key),
                any(part.prefix for part in key.parts),
            )

        return replace(self, keys=tuple(sorted(self.keys, key=rank)))

    def with_columns(self, change: Callable[[ColumnDefinition], ColumnDefinition]) -> TableDefinition:
        """Return it with ``change`` applied to each column."""
        return replace(self, columns=tuple(change(column) for column in self.columns))

    def not_null(self, names: Iterable[str]) -> TableDefinition:
        """Return it with these columns NOT NULL."""
        wanted = tuple(names)
        return self.with_columns(lambda c: replace(c, nullable=False) if index_of(wanted, c.name) >= 0 else c)

    def without_hash(self) -> TableDefinition:
        """Return it with all keys without USING HASH."""
        return replace(self, keys=tuple(replace(key, hash=False) for key in self.keys))

    def hash_column_count(self) -> int:
        """Return the number of hidden columns that MariaDB appends for unique keys too long for an index."""
        return sum(key.kind == "unique" and self.hashed(key) for key in self.keys)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, in a twentieth of the time of ``asdict``, which copies each value."""
        keys = [{**vars(key), "parts": [dict(vars(part)) for part in key.parts]} for key in self.keys]
        return {**vars(self), "columns": [dict(vars(column)) for column in self.columns], "keys": keys}

    def to_json(self) -> str:
        """Canonical JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> TableDefinition:
        """Convert from ``to_dict``'s data. Raises ValueError, LookupError, TypeError for other data."""
        columns = (ColumnDefinition(**{**c, "members": tuple(c["members"])}) for c in data["columns"])
        keys = (
            KeyDefinition(**{**key, "parts": tuple(KeyPart(**part) for part in key["parts"])})
            for key in data["keys"]
        )
        made = cls(**{**data, "columns": tuple(columns), "keys": tuple(keys)})
        if not made._has_its_types():
            raise ValueError("a field has a wrong type")
        return made

    def _has_its_types(self) -> bool:
        parts = [part for key in self.keys for part in key.parts]
        texts = [key.name for key in self.keys] + [part.name for part in parts] + [self.charset or ""]
        flags: list[object] = [self.foreign, self.whole, self.versioned]
        flags += [flag for key in self.keys for flag in (key.named, key.hash)]
        numbers: list[object] = [part.prefix for part in parts]
        for column in self.columns:
            texts += (column.name, column.type, column.charset or "", column.generated, *column.members)
            flags += (column.unsigned, column.invisible, column.compressed)
            flags += [] if column.nullable is None else [column.nullable]
            numbers += (column.length, column.scale)
        return (
            all(isinstance(text, str) and "\0" not in text for text in texts)
            and all(type(flag) is bool for flag in flags)
            and all(n is None or (type(n) is int and 0 <= n < 1 << 32) for n in numbers)
            and all(key.kind in ("primary", "unique", "other") for key in self.keys)
        )


def number_bytes(column: ColumnDefinition) -> int:
    """Return the size in bytes of an ENUM's or a SET's number."""
    count = len(column.members)
    if column.type == "enum":
        return 1 if count < 256 else 2
    size = (count + 7) // 8
    return size if size <= 4 else 8


def same_name(one: str, other: str) -> bool:
    """Whether two names of columns or keys are equal, ignoring case."""
    return one == other or one.lower() == other.lower()


def index_of(names: Iterable[str], name: str) -> int:
    """Return the index of a name, or -1."""
    return next((i for i, known in enumerate(names) if same_name(known, name)), -1)
