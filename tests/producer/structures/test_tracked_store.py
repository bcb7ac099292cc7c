"""When a structure that was read from the upstream is in force: from its position on; before, if no DDL is between."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from producer.decode.rows_events import DecodedTable
from producer.events.table_map import read_table_map
from producer.structures.forms import matched, predicted
from producer.structures.interpret import Tracked, Unresolved, created
from producer.structures.store import (
    BinlogPosition,
    ReadPosition,
    Structures,
    UpstreamSnapshot,
    encode_entry,
    loaded_entry,
)
from producer.upstream.structures import shown_table
from relay_store.layout.directory import RelayPosition
from schemas.ddl.classify import classify
from schemas.ddl.column_types import DdlContext
from schemas.errors import DecodeError
from schemas.gtid.sets import empty_gtid_set
from schemas.tables import QualifiedName, TableFilter
from schemas.wire.epoch import SchemaChanged, TableChanged

_T = ("d", "t")
_LONG = 3


def _table(columns: str) -> Tracked:
    return created(f"CREATE TABLE t ({columns})", DdlContext("mysql", "d"), "utf8mb4")


def _body(columns: int, table: bytes = b"t") -> bytes:
    """A TABLE_MAP of so many INT columns, without any optional metadata."""
    nulls = ((1 << columns) - 1).to_bytes((columns + 7) // 8, "little")
    return (
        b"\x01d\0"
        + bytes([len(table)])
        + table
        + b"\0"
        + bytes([columns])
        + bytes([_LONG]) * columns
        + b"\0"
        + nulls
    )


def _here(pos: int) -> ReadPosition:
    return ReadPosition(RelayPosition("uuid.000001", "bin.000001", pos), empty_gtid_set("mysql").tracker())


def _position(pos: int) -> BinlogPosition:
    return BinlogPosition("uuid", 1, pos)


@dataclass
class _Upstream:
    tables: dict[QualifiedName, Tracked]
    since: int
    position: int
    between: set[QualifiedName] = field(default_factory=set)

    def read(self) -> UpstreamSnapshot:
        return UpstreamSnapshot(
            _position(self.since), _position(self.position), dict(self.tables), {"d": "utf8mb4"}, True
        )

    def read_one(self, name: QualifiedName) -> UpstreamSnapshot:
        return self.read()

    def is_current_server(self, position: BinlogPosition) -> bool:
        return position.server == "uuid"

    def engine(self, name: QualifiedName) -> str | None:
        raise AssertionError(f"nobody asks for the engine of {name}")

    def touched(self, since: ReadPosition, until: BinlogPosition) -> set[QualifiedName]:
        return set() if since.binlog_position.reached(until) else self.between


def _ddl(structures: Structures, text: str, pos: int) -> None:
    found = classify(text, "d", "mysql")
    tables = tuple(TableChanged(*table) for table in found.tables)
    change: Any = SchemaChanged(text, "d", found.kind, tables, "mysql", 0)
    structures.apply(change, found, _here(pos))


def _names(structures: Structures, columns: int, pos: int) -> list[str]:
    return [column.name for column in structures.structure(_body(columns), _here(pos)).columns]


def _seeded(upstream: _Upstream) -> Structures:
    structures = Structures("mysql", TableFilter(), {}, upstream)
    structures.seed()
    return structures


def test_it_holds_before_its_position_if_nothing_is_between() -> None:
    assert _names(_seeded(_Upstream({_T: _table("a INT, b INT")}, 500, 600)), 2, 100) == ["a", "b"]


@pytest.mark.parametrize("touched", [_T, ("d", ""), ("", "")])
def test_it_does_not_hold_before_its_position_if_ddl_is_between(touched: QualifiedName) -> None:
    structures = _seeded(_Upstream({_T: _table("a INT, b INT")}, 500, 600, {touched}))
    with pytest.raises(DecodeError) as caught:
        _names(structures, 2, 100)
    assert caught.value.code == "TR418"
    # After its position it does, DDL before the reading and all.
    _ddl(structures, "ALTER TABLE t ADD b INT", 200)
    assert _names(structures, 2, 600) == ["a", "b"]


def test_what_ddl_makes_holds_up_to_there() -> None:
    upstream = _Upstream({_T: _table("a INT, c INT")}, 500, 600, {_T})
    structures = _seeded(upstream)
    _ddl(structures, "CREATE TABLE t (a INT)", 100)
    assert _names(structures, 1, 110) == ["a"]
    _ddl(structures, "ALTER TABLE t ADD b INT", 120)
    assert _names(structures, 2, 130) == ["a", "b"]
    _ddl(structures, "ALTER TABLE t RENAME COLUMN b TO c", 140)
    assert _names(structures, 2, 150) == ["a", "c"]


def test_ddl_while_it_was_read_makes_it_worthless() -> None:
    upstream = _Upstream({_T: _table("a INT")}, 500, 600, {_T})
    structures = _seeded(upstream)
    _ddl(structures, "ALTER TABLE t ADD b INT", 550)
    upstream.tables[_T], upstream.since, upstream.position, upstream.between = (
        _table("a INT, b INT"),
        700,
        700,
        set(),
    )
    assert _names(structures, 2, 610) == ["a", "b"]


def test_a_position_of_another_server_says_nothing() -> None:
    upstream = _Upstream({_T: _table("x INT")}, 500, 600)
    structures = Structures("mysql", TableFilter(), {}, upstream)
    structures.seed()
    changes = {k: v.replace(b'"uuid"', b'"other"') for k, v in structures.take_changes() if v}
    upstream.tables[_T] = _table("y INT")
    assert _names(Structures("mysql", TableFilter(), changes, upstream), 1, 100) == ["y"]


def test_the_records_bring_all_of_it_back() -> None:
    structures = _seeded(_Upstream({_T: _table("a INT"), ("d", "u"): Unresolved("why")}, 500, 600))
    _names(structures, 1, 100)
    _ddl(structures, "ALTER TABLE t ADD b INT", 650)
    records = {key: value for key, value in structures.take_changes() if value is not None}
    again = Structures("mysql", TableFilter(), records, None)
    assert again.seeded
    assert _names(again, 2, 700) == ["a", "b"]
    assert all(encode_entry(*loaded_entry(v)) == v for k, v in records.items() if k.count(b",") == 1)
    _ddl(again, "DROP TABLE t", 710)
    assert dict(again.take_changes())[b'["d","t"]'] is None


def test_another_number_of_columns_stops() -> None:
    with pytest.raises(DecodeError) as caught:
        _names(_seeded(_Upstream({_T: _table("a INT")}, 500, 600)), 2, 650)
    assert caught.value.code == "TR419"
    assert "schema set d.t" in caught.value.hint


def test_a_type_that_is_not_decoded_stops_by_its_name_with_full_metadata_too() -> None:
    """DECIMAL from before MySQL 5.0 is type 0."""
    names = b"\x04\x02\x01a"
    body = b"\x01d\0\x01t\0\x01" + b"\0" + b"\0" + b"\x01" + names
    structure = Structures("mysql", TableFilter(), {}, None).structure(body, _here(100))
    with pytest.raises(DecodeError) as caught:
        DecodedTable(structure)
    assert caught.value.code == "TR401"


def test_a_copy_takes_over_what_was_read_of_a_table_without_events() -> None:
    upstream = _Upstream({_T: _table("a INT, b INT")}, 500, 600)
    structures = _seeded(upstream)
    _ddl(structures, "CREATE TABLE u LIKE t", 700)
    upstream.tables.clear()
    columns = structures.structure(_body(2, b"u"), _here(710)).columns
    assert [column.name for column in columns] == ["a", "b"]


@pytest.mark.parametrize(("charset", "known"), [("utf8mb4", False), ("utf16", False), ("latin1", True)])
def test_a_question_mark_may_be_any_character_that_is_not_shown(charset: str, known: bool) -> None:
    """Servers show 😀 in a member as ?; to take it for one would publish another value than the row's."""
    for kind in ("enum", "set"):
        text = f"CREATE TABLE `t` (`e` {kind}('a','?') CHARACTER SET {charset}) ENGINE=InnoDB"
        assert isinstance(shown_table(text, "d", "mysql"), Unresolved) is not known
        assert not isinstance(shown_table(text.replace("?", "é"), "d", "mysql"), Unresolved)


def test_a_table_map_without_the_columns_of_a_versioned_table_does_not_fit() -> None:
    """MariaDB puts them between the columns and those of keys by hash."""
    table = created(
        "CREATE TABLE t (a INT PRIMARY KEY) WITH SYSTEM VERSIONING", DdlContext("mariadb", "d"), "utf8mb4"
    )
    event = read_table_map(_body(3), "mariadb")
    with pytest.raises(DecodeError, match=r"TR419.*system-versioned"):
        matched(event, table, "mariadb")
    period = (17, 6, False)
    right = replace(event, columns=((_LONG, 0, False), period, period))
    found = matched(right, table, "mariadb")
    assert [column.name for column in found.columns] == ["a", "row_start", "row_end"]
    assert (found.key, predicted("d", "t", table, "mariadb")) == (("a", "row_end"), found)
