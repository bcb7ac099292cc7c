"""MariaDB's compressed events (log_bin_compress) to the ordinary events they were made of.

Everything up to the first row image, or up to the statement's text, is stored as it is; the rest is compressed.
Source: MariaDB sql/log_event.cc, ``query_event_uncompress``, ``row_log_event_uncompress``.
"""

from __future__ import annotations

from producer.events.table_map import packed_length
from schemas.binlog import framing as binlog
from schemas.binlog.mariadb_zlib import inflate

_PLAIN = {
    binlog.MARIADB_QUERY_COMPRESSED: binlog.QUERY,
    binlog.MARIADB_WRITE_ROWS_COMPRESSED_V1: binlog.WRITE_ROWS_V1,
    binlog.MARIADB_UPDATE_ROWS_COMPRESSED_V1: binlog.UPDATE_ROWS_V1,
    binlog.MARIADB_DELETE_ROWS_COMPRESSED_V1: binlog.DELETE_ROWS_V1,
    binlog.MARIADB_WRITE_ROWS_COMPRESSED: binlog.WRITE_ROWS,
    binlog.MARIADB_UPDATE_ROWS_COMPRESSED: binlog.UPDATE_ROWS,
    binlog.MARIADB_DELETE_ROWS_COMPRESSED: binlog.DELETE_ROWS,
}
COMPRESSED = frozenset(_PLAIN)
COMPRESSED_ROWS = COMPRESSED - {binlog.MARIADB_QUERY_COMPRESSED}
_TWO_IMAGES = {binlog.UPDATE_ROWS_V1, binlog.UPDATE_ROWS}
_EXTRA_DATA = {binlog.WRITE_ROWS, binlog.UPDATE_ROWS, binlog.DELETE_ROWS}


def plain_event(event: bytes, checksum: int) -> bytes:
    """The event as it would be without compression, without a checksum.

    Args:
        checksum: bytes of checksum at its end.

    Raises:
        ValueError, IndexError: it is damaged.
    """
    head = binlog.header(event)
    kind = _PLAIN[head.type]
    begin = binlog.query_text_at(event) if kind == binlog.QUERY else _images_at(event, kind)
    end = len(event) - checksum
    if begin >= end:
        raise ValueError("a compressed event without compressed data")
    body = event[binlog.HEADER_SIZE : begin] + inflate(event[begin:end])
    size = binlog.HEADER_SIZE + len(body)
    return (
        binlog.HEADER.pack(head.timestamp, kind, head.server_id, size, head.end_position, head.flags) + body
    )


def _images_at(event: bytes, kind: int) -> int:
    pos = binlog.HEADER_SIZE + 8  # behind table id and flags
    if kind in _EXTRA_DATA:
        pos += event[pos] | event[pos + 1] << 8
    width, pos = packed_length(event, pos)
    return pos + (width + 7) // 8 * (2 if kind in _TWO_IMAGES else 1)
