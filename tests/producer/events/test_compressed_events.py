"""MariaDB's compressed events and column values, and what is not one."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.events.compressed import plain_event
from schemas.binlog import framing
from schemas.binlog.mariadb_zlib import inflate, inflate_column
from tests.support.binlogs.relay_events import event, query


def pack(data: bytes) -> bytes:
    """As MariaDB does it for events."""
    size = max(1, (len(data).bit_length() + 7) // 8)
    return bytes((0x80 | size,)) + len(data).to_bytes(size, "big") + zlib.compress(data)


def test_values_that_mariadb_wrote() -> None:
    """REPEAT('b', 150) and X'5A' in columns of MariaDB 11.4: raw deflate, and not compressed."""
    assert inflate_column(b"\x89\x96KJ\x1a\x8c\x00\x00") == b"b" * 150
    assert inflate_column(b"\x00Z") == b"Z"
    assert inflate_column(b"") == b""


@given(st.binary(max_size=300))
def test_what_was_packed_comes_back(data: bytes) -> None:
    assert inflate(pack(data)) == data


@pytest.mark.parametrize("spoil", [
    lambda packed: b"",
    lambda packed: b"\x92" + packed[1:],
    lambda packed: packed[:-3],
    lambda packed: bytes((packed[0], packed[1] + 1)) + packed[2:],
    lambda packed: bytes((packed[0], packed[1] - 1)) + packed[2:],
    lambda packed: packed[:-1] + bytes((packed[-1] ^ 1,)),
])  # fmt: skip
def test_damage_is_found(spoil) -> None:
    with pytest.raises(ValueError, match="compressed"):
        inflate(spoil(pack(b"CREATE TABLE t (a INT)" * 10)))


def test_a_statement() -> None:
    ordinary = query(b"CREATE TABLE t (a INT)" * 20)
    text_at = framing.query_text_at(ordinary)
    packed = event(framing.MARIADB_QUERY_COMPRESSED, ordinary[19:text_at] + pack(ordinary[text_at:-4]))
    plain = plain_event(packed, 4)
    assert plain[19:] == ordinary[19:-4]
    assert (plain[4], framing.header(plain).size) == (framing.QUERY, len(plain))
    assert framing.query_text(plain, False) == b"CREATE TABLE t (a INT)" * 20


@pytest.mark.parametrize(
    ("compressed", "ordinary"), [(166, 23), (167, 24), (168, 25), (169, 30), (170, 31), (171, 32)]
)
def test_rows(compressed: int, ordinary: int) -> None:
    """Version 2 has extra data, updates have two bitmaps; ten columns fill two bytes."""
    head = struct.pack("<6sH", b"\1\0\0\0\0\0", 1)
    if ordinary >= 30:
        head += struct.pack("<H", 5) + b"abc"
    head += b"\x0a" + b"\xff\x03" * (2 if ordinary in (24, 31) else 1)
    images = bytes(range(200))
    plain = plain_event(event(compressed, head + pack(images)), 4)
    assert plain[4] == ordinary
    assert plain[19:] == head + images
