"""The protocol's numbers, which ``schemas`` and ``producer`` have of their own so as to import nothing: they are those
of mysql-replication."""

from __future__ import annotations

from types import ModuleType

from pymysqlreplication.constants import BINLOG, FIELD_TYPE
from pymysqlreplication.row_event import MetadataFieldType

from producer.events import table_map
from schemas.binlog import framing
from schemas.types import binary, decimals, enum_set, floating, integer, json_type, temporal

_EVENT_NAMES = {
    "HEARTBEAT_LOG": "HEARTBEAT", "ROWS_QUERY_LOG": "ROWS_QUERY", "GTID_LOG": "GTID", "PREVIOUS_GTIDS_LOG":
    "PREVIOUS_GTIDS", "ANONYMOUS_GTID_LOG": "ANONYMOUS_GTID", "MARIADB_GTID_GTID_LIST": "MARIADB_GTID_LIST",
}  # fmt: skip
_METADATA_NAMES = {
    "SIGNEDNESS": "_SIGNEDNESS", "DEFAULT_CHARSET": "_DEFAULT_CHARSET", "COLUMN_CHARSET": "_COLUMN_CHARSET",
    "COLUMN_NAME": "_COLUMN_NAME", "SET_STR_VALUE": "_SET_MEMBERS", "ENUM_STR_VALUE": "_ENUM_MEMBERS",
    "GEOMETRY_TYPE": "_GEOMETRY_TYPE", "SIMPLE_PRIMARY_KEY": "_SIMPLE_KEY", "PRIMARY_KEY_WITH_PREFIX": "_PREFIX_KEY",
    "ENUM_AND_SET_DEFAULT_CHARSET": "_ENUM_DEFAULT_CHARSET", "ENUM_AND_SET_COLUMN_CHARSET": "_ENUM_COLUMN_CHARSET",
}  # fmt: skip


def _numbers(*modules: ModuleType) -> dict[str, int]:
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, int)
    }


def test_event_types() -> None:
    ours, compared = _numbers(framing), 0
    for name, number in _numbers(BINLOG).items():
        base = name.removesuffix("_V2").replace("_EVENT", "")
        base = _EVENT_NAMES.get(base, base)
        if base in ours:
            assert ours[base] == number, name
            compared += 1
    assert compared == 33


def test_column_types() -> None:
    ours = _numbers(binary, decimals, enum_set, floating, integer, json_type, temporal)
    theirs = _numbers(FIELD_TYPE)
    named = ours.keys() & theirs.keys()
    assert {name: ours[name] for name in named} == {name: theirs[name] for name in named}
    # The library has neither MariaDB's compressed columns nor MySQL's VECTOR.
    types = {name for name, number in ours.items() if name in table_map.__dict__ and number > 0}
    assert types - named == {"BLOB_COMPRESSED", "VARCHAR_COMPRESSED", "VECTOR"}


def test_metadata_of_table_map() -> None:
    for theirs, ours in _METADATA_NAMES.items():
        assert getattr(table_map, ours) == MetadataFieldType[theirs].value
