"""A table's structure at one point of the log: the contract between decoder, tracker and apply."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Column:
    """One column as the upstream's binlog describes it.

    Attributes:
        name: the column's name.
        sql_type: MySQL's type text without attributes, e.g. ``decimal(10,2)``, ``int unsigned``,
            ``datetime(6)``, ``enum('a','b')``.
        code: the binlog's column type code (``MYSQL_TYPE_*``), ENUM and SET already resolved from STRING.
        meta: the binlog's metadata for that code, as one integer (see ``producer/table_map.py``).
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


@dataclass(frozen=True)
class TableStructure:
    """A table's columns in order, and the key that identifies a row.

    Attributes:
        key: the primary key's column names, or those of the first NOT NULL unique key; empty if the
            table has neither, which makes its rows unidentifiable (full-row match, in order).
    """

    db: str
    table: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()

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
        return {
            "db": self.db,
            "table": self.table,
            "columns": [asdict(c) for c in self.columns],
            "key": list(self.key),
        }

    def to_json(self) -> str:
        """Canonical JSON: equal structures give equal text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TableStructure:
        """The inverse of ``to_dict``."""
        columns = tuple(Column(**{**c, "members": tuple(c["members"])}) for c in data["columns"])
        return cls(data["db"], data["table"], columns, tuple(data["key"]))

    @classmethod
    def from_json(cls, text: str) -> TableStructure:
        """The inverse of ``to_json``."""
        return cls.from_dict(json.loads(text))
