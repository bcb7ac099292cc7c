"""MariaDB's compressed events (log_bin_compress) to the ordinary events they were made of.

Everything up to the first row image, or up to the statement's text, is stored as it is; the rest is compressed.
Source: MariaDB sql/log_event.cc, ``query_event_uncompress``, ``row_log_event_uncompress``.
"""

from __future__ import annotations

from producer.events.table_map import packed_length
from schemas.binlog import framing
from schemas.binlog.mariadb_zlib import inflate

_PLAIN = {
    framing.MARIADB_QUERY_COMPRESSED: framing.QUERY,
    framing.MARIADB_WRITE_ROWS_COMPRESSED_V1: framing.WRITE_ROWS_V1,
    framing.MARIADB_UPDATE_ROWS_COMPRESSED_V1: framing.UPDATE_ROWS_V1,
    framing.MARIADB_DELETE_ROWS_COMPRESSED_V1: framing.DELETE_ROWS_V1,
    framing.MARIADB_WRITE_ROWS_COMPRESSED: framing.WRITE_ROWS,
    framing.MARIADB_UPDATE_ROWS_COMPRESSED: framing.UPDATE_ROWS,
    framing.MARIADB_DELETE_ROWS_COMPRESSED: framing.DELETE_ROWS,
}
COMPRESSED = frozenset(_PLAIN)
COMPRESSED_ROWS = COMPRESSED - {framing.MARIADB_QUERY_COMPRESSED}
_TWO_IMAGES = {framing.UPDATE_ROWS_V1, framing.UPDATE_ROWS}
_EXTRA_DATA = {framing.WRITE_ROWS, framing.UPDATE_ROWS, framing.DELETE_ROWS}


def plain_event(event: bytes, checksum: int) -> bytes:
    """The event as it would be without compression, without a checksum.

    Args:
        checksum: bytes of checksum at its end.

    Raises:
        ValueError, IndexError: it is damaged.
    """
    head = framing.header(event)
    kind = _PLAIN[head.type]
    begin = framing.query_text_at(event) if kind == framing.QUERY else _images_at(event, kind)
    end = len(event) - checksum
    if begin >= end:
        raise ValueError("a compressed event without compressed data")
    body = event[framing.HEADER_SIZE : begin] + inflate(event[begin:end])
    size = framing.HEADER_SIZE + len(body)
    return (
        framing.HEADER.pack(head.timestamp, kind, head.server_id, size, head.end_position, head.flags) + body
    )


def _images_at(event: bytes, kind: int) -> int:
    pos = framing.HEADER_SIZE + 8  # behind table id and flags
    if kind in _EXTRA_DATA:
        pos += event[pos] | event[pos + 1] << 8
    width, pos = packed_length(event, pos)
    return pos + (width + 7) // 8 * (2 if kind in _TWO_IMAGES else 1)
