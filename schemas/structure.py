"""A table's structure at one position of the log, as the decoder, the tracker and the consumer use it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

#: prefix of the names of columns that MariaDB adds for unique keys too long for an index
ROW_HASH = "DB_ROW_HASH_"


@dataclass(frozen=True)
class Column:
    """A column as the upstream's binlog describes it.

    Attributes:
        name: the column's name.
        sql_type: MySQL's type text without attributes, e.g. ``decimal(10,2)``, ``int unsigned``,
            ``datetime(6)``, ``enum('a','b')``.
        code: the binlog's column type code (``MYSQL_TYPE_*``), ENUM and SET already resolved from STRING.
        meta: the binlog's metadata for that code, as one integer (see ``producer/events/table_map.py``).
        nullable: whether the column may hold NULL.
        unsigned: for numeric types.
        charset: MySQL's character set name for text, ENUM and SET; ``binary`` for bytes; ``""`` otherwise.
        members: the members of ENUM and SET, in definition order.
    """

    name: str
    sql_type: str
    code: int
    meta: int
    nullable: bool
    unsigned: bool = False
    charset: str = ""
    members: tuple[str, ...] = ()

    @property
    def base(self) -> str:
        """The type's first word: ``decimal`` of ``decimal(10,2)``."""
        return self.sql_type.split("(", 1)[0].split(" ", 1)[0]

    @property
    def is_row_hash(self) -> bool:
        """Whether it is a hidden column that the server added for a key."""
        return self.name.startswith(ROW_HASH) and self.sql_type == "bigint unsigned"


@dataclass(frozen=True)
class WrittenColumn(Column):
    """An ENUM or SET whose values are not written downstream as the text of their members.

    Attributes:
        numbers: the number of each member downstream, from 1; None if the downstream column is text.
    """

    numbers: tuple[int, ...] | None = None

    @property
    def by_number(self) -> bool:
        """Whether the downstream column is an ENUM or SET."""
        return self.numbers is not None


@dataclass(frozen=True)
class TableStructure:
    """A table's columns in order, and the key that identifies a row.

    Attributes:
        key: the primary key's column names, or those of the first NOT NULL unique key; empty if the
            table has neither, which makes its rows unidentifiable (full-row match, in order).
        before_columns: for rows whose images lack columns, the names of the columns in the before image, in the
            table's order; ``()`` for INSERTs; None means all columns.
        after_columns: the same for the after image; ``()`` for DELETEs.
    """

    db: str
    table: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    before_columns: tuple[str, ...] | None = None
    after_columns: tuple[str, ...] | None = None

    @property
    def is_full(self) -> bool:
        """Whether every row image has all columns."""
        return self.before_columns is None and self.after_columns is None

    @cached_property
    def before_image(self) -> tuple[Column, ...]:
        """The columns of a before image."""
        return self._image(self.before_columns)

    @cached_property
    def after_image(self) -> tuple[Column, ...]:
        """The columns of an after image."""
        return self._image(self.after_columns)

    @property
    def known_columns(self) -> tuple[Column, ...]:
        """The columns that every image has."""
        images = [names for names in (self.before_columns, self.after_columns) if names]
        return tuple(c for c in self.columns if all(c.name in names for names in images))

    def _image(self, names: tuple[str, ...] | None) -> tuple[Column, ...]:
        return self.columns if names is None else tuple(c for c in self.columns if c.name in names)

    @property
    def name(self) -> str:
        """``db.table``, for messages and topic keys."""
        return f"{self.db}.{self.table}"

    @cached_property
    def key_columns(self) -> tuple[Column, ...]:
        """The key's columns, in the key's order."""
        by_name = {c.name: c for c in self.columns}
        return tuple(by_name[name] for name in self.key)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        images = {"before_columns": self.before_columns, "after_columns": self.after_columns}
        return {
            "db": self.db,
            "table": self.table,
            "columns": [dict(vars(c)) for c in self.columns],
            "key": list(self.key),
            # Full images leave these out, so their text is as short as possible.
            **{side: list(names) for side, names in images.items() if names is not None},
        }

    def to_json(self) -> str:
        """Canonical JSON: equal structures give equal text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> TableStructure:
        """Read the text that ``to_json`` writes, and no other text.

        Raises:
            ValueError, LookupError, TypeError, RecursionError: ``to_json`` cannot have written the text.
        """
        data = json.loads(text)
        columns = tuple(Column(**{**c, "members": tuple(c["members"])}) for c in data["columns"])
        images = [data.get(side) for side in ("before_columns", "after_columns")]
        before, after = (None if names is None else tuple(names) for names in images)
        made = cls(data["db"], data["table"], columns, tuple(data["key"]), before, after)
        made._check()
        if made.to_json() != text:
            raise ValueError("it is not canonical")
        return made

    def _check(self) -> None:
        """Raise ValueError for fields of wrong types, and for impossible or unknown names of columns."""
        names = [column.name for column in self.columns]
        texts = [
            self.db,
            self.table,
            *names,
            *self.key,
            *(self.before_columns or ()),
            *(self.after_columns or ()),
        ]
        for column in self.columns:
            texts += (column.sql_type, column.charset, *column.members)
            if type(column.code) is not int or type(column.meta) is not int:
                raise ValueError(f"column {column.name!r} has a type that is not a number")
            if type(column.nullable) is not bool or type(column.unsigned) is not bool:
                raise ValueError(f"column {column.name!r} has a flag that is not a boolean")
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("a name is not text")
        if not all((self.db, self.table, *names)) or any(
            "\0" in name for name in (self.db, self.table, *names)
        ):
            raise ValueError("a name is empty or contains a NUL")
        for listed in (names, self.key, self.before_columns or (), self.after_columns or ()):
            if len(set(listed)) < len(listed) or not set(listed) <= set(names):
                raise ValueError("a column is listed twice or does not exist")


def has_full_images(structure: str) -> bool:
    """Whether a structure is full (``is_full``), from its canonical JSON."""
    # Quotes within a name would be escaped.
    return '_columns":[' not in structure
