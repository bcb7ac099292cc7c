"""Reads one table of one server in chunks of bounded memory; values are the bytes that the server sends."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import Cursor, SSCursor

from schemas.access.server_url import ServerUrl
from tailrace.compare.catalog import ComparedColumn, ComparedTable
from tailrace.servers import Side, connect

Row = tuple[bytes | None, ...]
Key = tuple[bytes, ...]

_BUCKETS = 4096
_CHUNK_BYTES = 8 << 20
_CHUNK_ROWS = 20_000


def connect_raw(url: ServerUrl, side: Side) -> Connection[Any]:
    """Open a connection on which neither the server nor the driver converts values."""
    raw: dict[str, Any] = {"use_unicode": False, "conv": {}}
    # Modes like PAD_CHAR_TO_FULL_LENGTH would change the values; TIMESTAMPs are compared in UTC.
    session = "SET character_set_results = NULL, sql_mode = '', time_zone = '+00:00', net_write_timeout = 600"
    return connect(url, side, init_command=session, **raw)


def select_list(table: ComparedTable) -> list[str]:
    """Return the expressions that select a row: the exact values of all columns, then the key's to order by."""
    return [c.selected for c in table.columns] + [c.ordered for c in table.key]


def chunk_rows(table: ComparedTable) -> int:
    """Return how many rows of a table make a chunk of bounded memory."""
    return max(50, min(_CHUNK_ROWS, _CHUNK_BYTES // max(table.average_row_bytes, 64)))


def key_of(table: ComparedTable, row: Row) -> Key:
    """Return the key of a row that ``select_list`` selected; no part of a key is NULL."""
    return tuple(part or b"" for part in row[len(table.columns) :])


def read_range(
    connection: Connection[Any], table: ComparedTable, low: Key | None, high: Key | None, limit: int
) -> list[Row]:
    """Return the rows with ``low < key <= high`` in the key's order, at most ``limit``."""
    conditions = []
    if low is not None:
        conditions.append(key_condition(table.key, low, ">", ">"))
    if high is not None:
        conditions.append(key_condition(table.key, high, "<", "<="))
    return in_order(connection, table, select_list(table), " AND ".join(conditions), limit)


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


def _stream(connection: Connection[Any], table: ComparedTable) -> Iterator[Row]:
    with connection.cursor(SSCursor) as cursor:
        cursor.execute(f"SELECT {', '.join(c.selected for c in table.columns)} FROM {table.quoted}")
        yield from cursor


def row_digest(row: Row) -> int:
    """Return a digest of 128 bits. It includes the values' lengths, so that different rows have different texts."""
    parts = [b"N" if value is None else b"%d:" % len(value) + value for value in row]
    return int.from_bytes(hashlib.blake2b(b"".join(parts), digest_size=16).digest(), "big")


def digest_table(connection: Connection[Any], table: ComparedTable) -> tuple[int, list[int]]:
    """Return the row count and the sums of row digests by bucket, which do not depend on the rows' order."""
    sums, count = [0] * _BUCKETS, 0
    for row in _stream(connection, table):
        digest = row_digest(row)
        sums[digest % _BUCKETS] += digest
        count += 1
    return count, sums


def rows_in_buckets(
    connection: Connection[Any], table: ComparedTable, buckets: frozenset[int], limit: int
) -> Counter[Row]:
    """Return the rows of ``buckets`` and how often each occurs, at most ``limit`` distinct rows."""
    found: Counter[Row] = Counter()
    for row in _stream(connection, table):
        if row_digest(row) % _BUCKETS in buckets and (row in found or len(found) < limit):
            found[row] += 1
    return found


NO_SUCH_TABLE = 1146


def table_is_gone(error: pymysql.MySQLError) -> bool:
    """Return whether a statement failed because a DDL has dropped or renamed the table."""
    return bool(error.args) and error.args[0] == NO_SUCH_TABLE


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
