"""Which columns a TABLE_MAP counts when it lists collations: each server has its own idea of that."""

from __future__ import annotations

import pytest

from producer.events.table_map import full_structure, read_table_map, stated_columns
from schemas.errors import DecodeError
from schemas.gtid.sets import Flavor

VARCHAR, VECTOR, GEOMETRY, JSON = 15, 242, 255, 245
BINARY, LATIN1, UTF8MB4, SJIS = 63, 8, 45, 13


def _table_map(middle: int, *optional: tuple[int, bytes], named: bool = True) -> bytes:
    """``t (a VARCHAR, m <middle>, b VARCHAR)``, as both servers write it behind table id and flags."""
    meta = b"\x0c\0" + b"\4" + b"\x0c\0"
    body = b"\1d\0\1t\0\3" + bytes((VARCHAR, middle, VARCHAR)) + bytes((len(meta),)) + meta + b"\7"
    fields = [*optional, (4, b"\1a\1m\1b")] if named else optional
    return body + b"".join(bytes((kind, len(data))) + data for kind, data in fields)


# As seen: each column's collation, and a default with exceptions by the column's number among those listed.
LISTED = [
    ("mysql", VECTOR, (3, bytes((LATIN1, BINARY, UTF8MB4)))),
    ("mysql", VECTOR, (2, bytes((BINARY, 0, LATIN1, 2, UTF8MB4)))),
    ("mysql", GEOMETRY, (3, bytes((LATIN1, UTF8MB4)))),
    ("mysql", JSON, (2, bytes((LATIN1, 1, UTF8MB4)))),
    ("mariadb", GEOMETRY, (3, bytes((LATIN1, BINARY, UTF8MB4)))),
    ("mariadb", GEOMETRY, (2, bytes((UTF8MB4, 0, LATIN1, 1, BINARY)))),
]


@pytest.mark.parametrize(("flavor", "middle", "collations"), LISTED)
def test_each_column_gets_its_own_collation(
    flavor: Flavor, middle: int, collations: tuple[int, bytes]
) -> None:
    structure = full_structure(read_table_map(_table_map(middle, collations), flavor))
    assert [column.charset for column in structure.columns] == ["latin1", "", "utf8mb4"]
    stated, _, charsets = stated_columns(read_table_map(_table_map(middle, collations, named=False), flavor))
    assert charsets
    assert [column.charset for column in stated] == ["latin1", "", "utf8mb4"]


@pytest.mark.parametrize("collations", [(3, bytes((LATIN1, BINARY, UTF8MB4))), (2, bytes((LATIN1, 2, SJIS)))])
def test_more_collations_than_columns_are_refused(collations: tuple[int, bytes]) -> None:
    """A server that counts otherwise: text of another character set would be published without a word."""
    with pytest.raises(DecodeError, match="TR403") as caught:
        full_structure(read_table_map(_table_map(JSON, collations), "mysql"))
    assert caught.value.hint


def test_fewer_collations_than_columns_are_refused() -> None:
    with pytest.raises(DecodeError, match="TR403"):
        full_structure(read_table_map(_table_map(VECTOR, (3, bytes((LATIN1, UTF8MB4)))), "mysql"))
