"""How tables are paired and divided, and how the log's values and a server's are told to be one key."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tailrace.validate.catalog import ComparedColumn, ComparedTable
from tailrace.validate.history import _UNKNOWN, _InQuestion, _key_part, _of_log, _of_server
from tailrace.validate.protocol import Rows
from tailrace.validate.tables import Division, TablePair, pair_tables

INT = ComparedColumn("id", "int", "", False)
TEXT = ComparedColumn("w", "varchar", "utf8mb4", False)
MEMBERS = ComparedColumn("e", "enum", "utf8mb4", False, "enum('a','b')")


def _table(*columns: ComparedColumn, key: tuple[ComparedColumn, ...] = ()) -> ComparedTable:
    return ComparedTable("d", "t", columns, key, 100)


def _pair(source: ComparedTable, target: ComparedTable, **options: Any) -> TablePair | str:
    collations = (
        {("d", "t"): {"w": options.pop("above", "c")}},
        {("d", "t"): {"w": options.pop("below", "c")}},
    )
    return pair_tables([source], target, collations, same_flavor=options.pop("same_flavor", True))


@pytest.mark.parametrize(
    ("key", "options", "division"),
    [
        (INT, {}, "ranges"),
        (INT, {"same_flavor": False}, "ranges"),
        (TEXT, {}, "ranges"),
        (TEXT, {"same_flavor": False}, "keys"),
        (TEXT, {"below": "other"}, "keys"),
        (MEMBERS, {"same_flavor": False}, "ranges"),
        (ComparedColumn("u", "uuid", "", False), {}, "whole"),
    ],
)
def test_division(key: ComparedColumn, options: dict[str, Any], division: Division) -> None:
    table = _table(key, ComparedColumn("v", "int", "", True), key=(key,))
    pair = _pair(table, table, **options)
    assert isinstance(pair, TablePair)
    assert pair.division == division


def test_columns_that_only_the_downstream_has() -> None:
    more = ComparedColumn("more", "int", "", True)
    pair = _pair(_table(INT, TEXT, key=(INT,)), _table(more, TEXT, INT))
    assert isinstance(pair, TablePair)
    assert [column.name for column in pair.target.columns] == ["id", "w"]
    assert pair.target.key == (INT,)
    assert _pair(_table(INT, more), _table(INT)) == "the downstream lacks the columns more"


@pytest.mark.parametrize(
    ("kind", "charset", "server", "log", "other"),
    [
        ("int", "", b"42", 42, 43),
        ("bigint", "", b"18446744073709551615", Decimal("18446744073709551615"), 1),
        ("decimal", "", b"-1.500", Decimal("-1.5"), Decimal("1.5")),
        ("double", "", b"1e300", 1e300, 1e299),
        ("float", "", b"0.10000000149011612", 0.10000000149011612, 0.1),
        ("datetime", "", b"2024-01-01 00:00:00.123", "2024-01-01 00:00:00.123", "2024-01-01 00:00:00.124"),
        ("bit", "", b"\x00\x27", b"\x00\x27", b"\x01\x27"),
        ("varbinary", "", b"a ", b"a ", b"a"),
        ("varchar", "utf8mb4", "é".encode(), "é", "e"),
        ("char", "ascii", b"a", "a", "A"),
    ],
)
def test_keys_of_log_and_server(kind: str, charset: str, server: bytes, log: Any, other: Any) -> None:
    column = ComparedColumn("k", kind, charset, False)
    assert _of_server(column, server) == _of_log(column, log)
    assert _of_server(column, server) != _of_log(column, other)


@pytest.mark.parametrize(
    ("kind", "padding", "log", "server"),
    [
        ("datetime", ".00", "2024-01-01 00:00:00", b"2024-01-01 00:00:00.00"),
        ("time", "0", "-01:02:03.5", b"-01:02:03.50"),
        ("int", ".0", -10, b"-10.0"),
        ("decimal", "00", Decimal("1.50"), b"1.5000"),
    ],
)
def test_keys_of_changed_rows_have_the_other_sides_digits(
    kind: str, padding: str, log: Any, server: bytes
) -> None:
    column = ComparedColumn("k", kind, "", False, padding=padding)
    assert _key_part(column, log) == server
    assert _of_log(column, log) == _of_server(column, server)


def test_parts_that_cannot_be_compared_fit_everything() -> None:
    unknown = ComparedColumn("k", "varchar", "gbk", False)
    assert _of_server(unknown, b"a") is _of_log(unknown, "a") is _UNKNOWN
    table = _table(INT, unknown, key=(INT, unknown))
    pair = TablePair((table,), table, "ranges")
    found = _InQuestion(pair, dict.fromkeys([(b"1", b"a"), (b"1", b"b"), (b"2", b"a")], ()))
    found.changed({}, {"id": 1, "k": "c"})
    assert found.keys == {(b"2", b"a")}
    found.changed({}, {"k": "c"})
    assert not found.keys


def test_rows_without_a_key_are_told_apart_by_their_values() -> None:
    double = ComparedColumn("d", "double", "", True)
    table = _table(INT, TEXT, double)
    rows: Rows = {
        (b"a",): ((b"1", None, b"0.5"),),
        (b"b",): ((b"1", b"x", b"0.5"),),
        (b"c",): ((b"2", b"x", b"0.5"),),
    }
    found = _InQuestion(TablePair((table,), table, "whole"), rows)
    found.changed({}, {"id": 3, "w": "x", "d": 0.5})
    found.changed({}, {"id": 1, "w": "y", "d": 0.5})
    assert found.keys == rows.keys()
    found.changed({}, {"id": 1, "w": None, "d": 0.7})
    assert found.keys == {(b"b",), (b"c",)}
    found.changed({}, {"w": "x"})
    assert not found.keys
