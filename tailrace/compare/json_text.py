"""Compares JSON of MySQL, which stores a parsed value, with JSON of MariaDB, which stores the text."""

from __future__ import annotations

import json
from collections.abc import Iterable

from tailrace.compare.catalog import Table
from tailrace.compare.chunks import Row


def json_columns(left: Table, right: Table) -> list[int]:
    """Return the indexes of the columns that are JSON on one side and text on the other."""
    pairs = enumerate(zip(left.columns, right.columns, strict=True))
    return [i for i, (a, b) in pairs if (a.data_type == "json") != (b.data_type == "json")]


def canonical_rows(left: Table, right: Table, rows: Iterable[Row]) -> Iterable[Row]:
    """Return the rows with these columns in a canonical form; all other values stay the servers' bytes."""
    positions = json_columns(left, right)
    if not positions:
        return rows
    return [_canonical(row, positions) for row in rows]


def _canonical(row: Row, positions: list[int]) -> Row:
    values = list(row)
    for i in positions:
        values[i] = _canonical_json(values[i])
    return tuple(values)


def _canonical_json(text: bytes | None) -> bytes | None:
    try:
        return None if text is None else json.dumps(json.loads(text), sort_keys=True).encode()
    except ValueError:
        return text
