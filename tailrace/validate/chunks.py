"""Reads one table of one server in chunks of bounded memory; values are the bytes that the server sends."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from pymysql.connections import Connection
from pymysql.cursors import Cursor

from schemas.access.server_url import ServerUrl
from tailrace.servers import Side, connect
from tailrace.validate.catalog import ComparedColumn, ComparedTable

Row = tuple[bytes | None, ...]
Key = tuple[bytes, ...]

_CHUNK_BYTES = 8 << 20
_CHUNK_ROWS = 20_000


def connect_raw(url: ServerUrl, side: Side) -> Connection[Any]:
    """Open a connection on which neither the server nor the driver converts values."""
    raw: dict[str, Any] = {"use_unicode": False, "conv": {}}
    # Modes like PAD_CHAR_TO_FULL_LENGTH would change the values; TIMESTAMPs are compared in UTC.
    session = "SET character_set_results = NULL, sql_mode = '', time_zone = '+00:00', net_write_timeout = 600"
    return connect(url, side, init_command=session, **raw)


def chunk_rows(table: ComparedTable) -> int:
    """Return how many rows of a table make a chunk of bounded memory."""
    return max(50, min(_CHUNK_ROWS, _CHUNK_BYTES // max(table.average_row_bytes, 64)))


def in_order(
    connection: Connection[Any],
    table: ComparedTable,
    selected: Sequence[str],
    condition: str,
    limit: int,
    offset: int = 0,
) -> list[Row]:
    """Return at most ``limit`` rows behind the first ``offset`` of those with a condition, in the key's order.

    No rows means that there are none: MariaDB answers a killed SELECT with a range and LIMIT now and then with no rows
    and no error, but not a killed COUNT.
    """
    there = f"FROM {table.quoted}{f' WHERE {condition}' if condition else ''}"
    order = ", ".join(column.ordered for column in table.key)
    with connection.cursor(Cursor) as cursor:
        while True:
            cursor.execute(
                f"SELECT {', '.join(selected)} {there} ORDER BY {order} LIMIT {limit} OFFSET {offset}"
            )
            if found := list(cursor.fetchall()):
                return found
            cursor.execute(f"SELECT COUNT(*) {there}")
            [(count,)] = cursor.fetchall()
            if int(count) <= offset:
                return []


def key_condition(key: Sequence[ComparedColumn], values: Key, operator: str, last: str) -> str:
    """Return a comparison with a key, column by column: servers use no index range for a row constructor."""
    alternatives = []
    for i, column in enumerate(key):
        equal = [f"{c.ordered} = {c.literal(v)}" for c, v in zip(key[:i], values, strict=False)]
        sign = last if i == len(key) - 1 else operator
        alternatives.append(" AND ".join([*equal, f"{column.ordered} {sign} {column.literal(values[i])}"]))
    return "(" + " OR ".join(f"({a})" for a in alternatives) + ")"


def json_columns(source: ComparedTable, target: ComparedTable) -> list[int]:
    """Return the indexes of the columns that are JSON on one side and text on the other."""
    pairs = enumerate(zip(source.columns, target.columns, strict=True))
    return [i for i, (a, b) in pairs if (a.data_type == "json") != (b.data_type == "json")]


def canonical_rows(source: ComparedTable, target: ComparedTable, rows: Iterable[Row]) -> Iterable[Row]:
    """Return the rows with such JSON in a canonical form; all other values stay the servers' bytes.

    MySQL stores a parsed value, and MariaDB the text.
    """
    positions = json_columns(source, target)
    if not positions:
        return rows
    return [_canonical(row, positions) for row in rows]


def _canonical(row: Row, positions: list[int]) -> Row:
    values = list(row)
    for i in positions:
        values[i] = _canonical_json(values[i])
    return tuple(values)


def _whole(digits: str) -> int | float:
    """Return a whole number as MySQL has it: as a double if it does not fit into 64 bits."""
    number = int(digits)
    return number if -(1 << 63) <= number < 1 << 64 else float(number)


def _canonical_json(text: bytes | None) -> bytes | None:
    try:
        return (
            None if text is None else json.dumps(json.loads(text, parse_int=_whole), sort_keys=True).encode()
        )
    except (ValueError, OverflowError):
        return text
