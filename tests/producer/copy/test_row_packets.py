"""Packets of rows, from a server, and as no server sends them."""

from __future__ import annotations

import io
import ssl
import tracemalloc
from typing import Any, cast

import pymysql
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymysql.connections import Connection

from compose.databases import Database
from producer.copy.row_encoder import MAX_PACKET, RowEncoder, session_setup
from producer.copy.row_packets import RowPackets
from schemas.errors import DecodeError
from schemas.structure import Column, TableStructure
from schemas.types.binary import BLOB
from schemas.types.integer import LONG
from schemas.types.temporal import DATE, DATETIME2, TIME2, YEAR
from schemas.wire.rows import key_prefix

_STRUCTURE = TableStructure(
    "d",
    "t",
    (Column("id", "int", LONG, 0, False), Column("v", "blob", BLOB, 4, True, charset="binary")),
    ("id",),
)
_END = b"\x05\0\0\x09\xfe\0\0\x02\0"


class _Input:
    """What a connection has received, in pieces."""

    def __init__(self, data: bytes, piece: int) -> None:
        self._data, self._piece = io.BytesIO(data), piece

    def read1(self, size: int) -> bytes:
        return self._data.read(min(size, self._piece))

    def read(self, size: int) -> bytes:
        return self._data.read(size)


class _Connection:
    """A connection on which a SELECT is answered with these bytes behind the columns."""

    def __init__(self, data: bytes, piece: int = 1 << 20, fields: int = 2) -> None:
        self._rfile, self._fields, self.is_closed = _Input(data, piece), fields, False
        self._result: Any = None

    def query(self, sql: str, unbuffered: bool) -> None:
        self._result = type("Result", (), {"field_count": self._fields})

    def _force_close(self) -> None:
        self.is_closed = True


def _field(value: bytes | None) -> bytes:
    if value is None:
        return b"\xfb"
    size = len(value)
    if size < 251:
        return bytes((size,)) + value
    for first, width in ((252, 2), (253, 3), (254, 8)):
        if size < 1 << 8 * width:
            return bytes((first,)) + size.to_bytes(width, "little") + value
    raise AssertionError


def _packets(*fields: bytes | None) -> bytes:
    content, packets = b"".join(map(_field, fields)), b""
    while True:
        part, content = content[:MAX_PACKET], content[MAX_PACKET:]
        packets += len(part).to_bytes(3, "little") + b"\1" + part
        if len(part) < MAX_PACKET:
            return packets


def _read(connection: _Connection, **limits: int) -> list[tuple[bytes, bytes]]:
    keys: list[bytes] = []
    afters: list[bytes] = []
    rows = RowPackets.select(cast(Any, connection), RowEncoder(_STRUCTURE), "SELECT", **limits)
    while rows.read(keys.append, afters.append):
        pass
    assert not rows.read(keys.append, afters.append)
    return list(zip(keys, afters, strict=True))


_VALUES = st.none() | st.binary(max_size=300) | st.integers(250, 70_000).map(lambda size: b"x" * size)


@given(st.lists(_VALUES, max_size=20), st.integers(1, 5000))
def test_rows_in_pieces(values: list[bytes | None], piece: int) -> None:
    data = b"".join(_packets(b"%d" % number, value) for number, value in enumerate(values))
    connection = _Connection(data + _END, piece)
    whole = _read(_Connection(data + _END))
    assert _read(connection) == whole
    assert not connection.is_closed
    prefix = key_prefix(_STRUCTURE)
    assert [key for key, _ in whole] == [prefix + bytes((2 * number,)) for number in range(len(values))]
    for (_, after), value in zip(whole, values, strict=True):
        assert after.endswith(value or b"\0")


@pytest.mark.parametrize("more", [-7, -6, -1, 0, 100, MAX_PACKET])
@pytest.mark.parametrize("piece", [1 << 20, 1000])
def test_a_row_in_several_packets(more: int, piece: int) -> None:
    """Also with an empty last packet, and behind and before other rows."""
    value = b"x" * (MAX_PACKET + more)
    small = _packets(b"1", b"y")
    rows = _read(_Connection(small + _packets(b"2", value) + small + _END, piece))
    assert [after[-1:] for _, after in rows] == [b"y", b"x", b"y"]
    assert rows[1][1].endswith(value)
    assert len(rows[1][1]) == len(value) + 7


def test_an_error_between_rows() -> None:
    """It is the server's own, and the connection can be used again."""
    connection = _Connection(_packets(b"1", None) + _packet(b"\xff\x25\x05#70100Query was interrupted"))
    with pytest.raises(pymysql.err.OperationalError, match=r"1317.*interrupted"):
        _read(connection)
    assert not connection.is_closed


def _packet(content: bytes) -> bytes:
    return len(content).to_bytes(3, "little") + b"\1" + content


_ROW = _packets(b"1", b"y")


@pytest.mark.parametrize(
    "data",
    [
        b"", _ROW, _ROW[:-1], _ROW + _END[:-1],  # the connection is lost
        _packet(b""),
        _packet(b"\xfe" + bytes(100)), _packet(b"\xfe"), _packet(b"\xff" + bytes(70_000)),
        _END + _ROW,
    ],
)  # fmt: skip
def test_packets_that_no_server_sends(data: bytes) -> None:
    connection = _Connection(data)
    with pytest.raises(pymysql.err.OperationalError, match=r"Malformed|Lost"):
        _read(connection)
    assert connection.is_closed


@pytest.mark.parametrize(
    "data",
    [
        _packet(b""), _packets(b"1"), _packets(b"1", b"y", b"z"),
        _packets(b"x", b"y"), _packets(None, b"y"), _packets(b"", b"y"),
        _packet(b"\x011\xff"), _packet(b"\x011\xfc\xff\xff12"), _packet(b"\x011\xfd"), _packet(b"\x05\x31"),
        _packet(b"\x011\xfe" + b"\xff" * 8 + b"12"), _packets(b"1" * 200, b"y" * 9)[:100] + bytes(120),
    ],
)  # fmt: skip
def test_rows_that_were_not_selected(data: bytes) -> None:
    connection = _Connection(data + _END)
    with pytest.raises(DecodeError, match="TR405"):
        _read(connection)
    assert connection.is_closed


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (DATE, b"2024-02-2"), (DATE, b"2024-02-2'"), (DATE, b"2024-02\xff29"), (TIME2, b"-838:59:59.0000000"),
        (TIME2, b"10:00:0\xff"), (DATETIME2, b"2024-02-29 10:00:00.1"), (YEAR, b"99"),
    ],
)  # fmt: skip
def test_texts_that_are_no_times(code: int, text: bytes) -> None:
    structure = TableStructure("d", "t", (Column("v", "", code, 0, False),))
    keys: list[bytes] = []
    with pytest.raises(DecodeError, match="column v has the text"):
        RowEncoder(structure).row(_field(text), keys.append, keys.append)


@given(st.binary(max_size=400))
def test_any_bytes(data: bytes) -> None:
    """Rows, or one of two kinds of errors."""
    try:
        _read(_Connection(data))
    except (pymysql.err.MySQLError, DecodeError):
        return
    raise AssertionError("bytes without an end were read")


def test_limits() -> None:
    rows = _packets(b"1", b"x" * (2 * MAX_PACKET))
    with pytest.raises(pymysql.err.OperationalError, match="more than 20000000 bytes"):
        _read(_Connection(rows + _END), max_row=20_000_000)
    with pytest.raises(pymysql.err.OperationalError, match="3 columns"):
        _read(_Connection(_END, fields=3))


def test_memory_is_that_of_a_row() -> None:
    data = b"".join(_packets(b"%d" % number, b"x" * 1_000_000) for number in range(50)) + _END
    rows = RowPackets.select(cast(Any, _Connection(data)), RowEncoder(_STRUCTURE), "SELECT")
    count = 0

    def add(after: bytes) -> None:
        nonlocal count
        count += 1

    tracemalloc.start()
    try:
        while rows.read(bytes, add):
            pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 50
    assert peak < 10 << 20


@pytest.mark.servers
# The embedded MariaDB has no TLS.
@pytest.mark.parametrize(("flavor", "encrypted"), [("mysql", False), ("mysql", True), ("mariadb", False)])
def test_a_server_that_stops_in_the_middle(upstream: Database, flavor: str, encrypted: bool) -> None:
    """All rows; then an error behind some rows, after which the connection reads all rows again. With TLS too."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    options = {"ssl": context} if encrypted else {"ssl_disabled": True}
    upstream.execute(
        "DROP DATABASE IF EXISTS packets",
        "CREATE DATABASE packets",
        "CREATE TABLE packets.t (id INT PRIMARY KEY, v BLOB)",
        "INSERT INTO packets.t VALUES (0, REPEAT('x', 300))",
        *(f"INSERT INTO packets.t SELECT id + {1 << n}, v FROM packets.t" for n in range(13)),
    )
    encoder = RowEncoder(_STRUCTURE)
    with upstream.connect(**options) as connection:
        assert isinstance(cast(Any, connection)._sock, ssl.SSLSocket) is encrypted
        with connection.cursor() as cursor:
            for statement in session_setup("mysql" if flavor == "mysql" else "mariadb"):
                cursor.execute(statement)
        failing = "SELECT IF(id < 8000, id, (SELECT 1 UNION SELECT 2)), v FROM packets.t ORDER BY id"
        for _ in range(2):
            assert len(_all(connection, encoder, f"SELECT {encoder.expressions} FROM packets.t")) == 1 << 13
            with pytest.raises(pymysql.err.MySQLError, match="more than 1 row"):
                _all(connection, encoder, failing)
            with pytest.raises(pymysql.err.ProgrammingError, match="1146"):
                _all(connection, encoder, "SELECT 1 FROM packets.nothing")
    upstream.execute("DROP DATABASE packets")


def _all(connection: Connection[Any], encoder: RowEncoder, sql: str) -> list[bytes]:
    keys: list[bytes] = []
    rows = RowPackets.select(connection, encoder, sql)
    while rows.read(keys.append, lambda after: None):
        pass
    return keys
