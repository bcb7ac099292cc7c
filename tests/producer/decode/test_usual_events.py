"""Events that are known by being like the last of their kind: what is nearly like it is looked at anew."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.binlog import framing
from schemas.tables import TableFilter
from schemas.wire.rows import key_table
from tests.support.binlogs.binlog_rows import rows_of
from tests.support.binlogs.decoder import NOW, new_decoder, run
from tests.support.binlogs.relay_events import event, format_description, gtid, query, xid

_TRIGGERS = 0x4000


def _map(table_id: int, name: bytes, columns: int = 1, flags: int = 1) -> bytes:
    """A TABLE_MAP of ``d.<name>`` with INT columns, the first being the key, and full metadata."""
    names = b"".join(b"\1" + bytes((97 + i,)) for i in range(columns))
    optional = b"\1\1\0" + bytes((4, len(names))) + names + b"\x08\1\0"
    body = b"\1d\0" + bytes((len(name),)) + name + b"\0" + bytes((columns,)) + b"\3" * columns + b"\0\xff"
    return event(
        framing.TABLE_MAP, table_id.to_bytes(6, "little") + struct.pack("<H", flags) + body + optional
    )


def _insert(table_id: int, number: int, columns: int = 1, flags: int = 1, extra: bytes = b"") -> bytes:
    """A WRITE_ROWS event of one row."""
    head = struct.pack("<HH", flags, 2 + len(extra)) + extra + bytes((columns, (1 << columns) - 1))
    image = b"\0" + struct.pack("<i", number) * columns
    return event(framing.WRITE_ROWS, table_id.to_bytes(6, "little") + head + image)


def _decoded(*groups: list[bytes], tables: TableFilter | None = None) -> list[tuple[str, int, int, int]]:
    """For each row its table, number of columns, value and flags."""
    decoder = new_decoder(tables=tables)
    events = [e for n, inside in enumerate(groups, 1) for e in (gtid(n), query(b"BEGIN"), *inside, xid())]
    data = b"".join((format_description(), *events))
    decoder.leave_file_for("", "mysql-bin.000001")
    assert run(decoder, data) == len(data)
    assert decoder.state.epoch.transactions == len(groups)
    found = []
    for row in rows_of(decoder.state.epoch):
        value = row.avro()
        after = value["after"]
        assert value["source"]["table"] == key_table(row.key)[1]
        found.append((value["source"]["table"], len(after), after["a"], value["source"]["flags"]))
    return found


_EVENTS = st.tuples(
    st.integers(1, 3),  # table id
    st.sampled_from([b"t", b"tt", b"u", b"left_out"]),
    st.integers(1, 3),  # columns
    st.sampled_from([1, 1 | _TRIGGERS]),  # flags of TABLE_MAP
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from([b"", b"", b"\0x"])), min_size=1, max_size=3),
)


@settings(max_examples=60)
@given(st.lists(st.lists(_EVENTS, min_size=1, max_size=4), min_size=1, max_size=6))
def test_each_row_goes_to_the_table_that_its_id_means_just_then(groups: list[Any]) -> None:
    """Ids that come to mean another table or structure, beginnings that differ in flags or extra data."""
    made, expected, number = [], [], 0
    for group in groups:
        inside: list[bytes] = []
        for table_id, name, columns, map_flags, rows in group:
            inside.append(_map(table_id, name, columns, map_flags))
            for flags, extra in rows:
                number += 1
                inside.append(_insert(table_id, number, columns, flags, extra))
                expected.append((name.decode(), columns, number, flags))
        made.append(inside)
    found = _decoded(*made, tables=TableFilter(exclude=("d.left_out",)))
    assert found == [row for row in expected if row[0] != "left_out"]


def test_what_only_looks_like_the_last_begin_is_a_statement() -> None:
    """The same bytes with another statement's length, and a name that ends in BEGIN."""
    for text, kind in ((b"DROP TABLE d.BEGIN", "DROP TABLE"), (b"BEGIN ", None)):
        decoder = new_decoder()
        data = b"".join((format_description(), gtid(1), query(text)))
        decoder.leave_file_for("", "mysql-bin.000001")
        run(decoder, b"".join((format_description(), gtid(9), query(b"BEGIN"), xid())))
        decoder.end_epoch(NOW)
        run(decoder, data)
        assert (decoder.state.epoch.ddl and decoder.state.epoch.ddl.kind) == kind
