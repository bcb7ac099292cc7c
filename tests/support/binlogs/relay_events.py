"""Builds small, valid binlog events for tests of the relay store."""

from __future__ import annotations

import struct
import zlib

from schemas.binlog import framing


def event(kind: int, body: bytes, end_of_previous: int = 0, *, timestamp: int = 1, flags: int = 0) -> bytes:
    """Return an event with a CRC32 checksum. Its end position is 0 unless `end_of_previous` is given."""
    size = framing.HEADER_SIZE + len(body) + 4
    end = end_of_previous + size if end_of_previous else 0
    data = framing.HEADER.pack(timestamp, kind, 1, size, end, flags) + body
    return data + struct.pack("<I", zlib.crc32(data))


def format_description() -> bytes:
    """Return the first event of a file, which declares CRC32."""
    body = struct.pack("<H50sIB", 4, b"9.7.0-test", 0, 19) + bytes(40) + b"\x01"
    return event(framing.FORMAT_DESCRIPTION, body, framing.FIRST_POSITION)


def gtid(number: int) -> bytes:
    return event(framing.GTID, struct.pack("<B16sq", 0, bytes(range(16)), number))


def query(text: bytes) -> bytes:
    return event(framing.QUERY, struct.pack("<IIBHH", 1, 0, 1, 0, 0) + b"d\0" + text)


def rows(size: int = 40) -> bytes:
    return event(framing.WRITE_ROWS, bytes(size))


def xid() -> bytes:
    return event(framing.XID, bytes(8))


def group(number: int, row_events: int = 2) -> list[bytes]:
    """Return a complete transaction."""
    return [gtid(number), query(b"BEGIN"), *[rows() for _ in range(row_events)], xid()]
