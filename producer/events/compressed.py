"""Compressed events to the ordinary events that they were made of: MySQL's transactions, MariaDB's single events.

MySQL's TRANSACTION_PAYLOAD has a whole transaction (source: codecs, transaction_payload.h). A few hundred
kilobytes may decompress to gigabytes, legitimately or maliciously. Events are therefore yielded in blocks and
never more bytes than the event declares; at most one block (or one larger event) is in memory.

MariaDB's (log_bin_compress) have everything up to the first row image, or up to the statement's text, as it is, and
compress the rest (source: sql/log_event.cc, ``query_event_uncompress``, ``row_log_event_uncompress``).
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import zstandard

from producer.events.table_map import packed_length
from schemas.binlog import framing
from schemas.binlog.framing import EVENT_SIZE, HEADER_SIZE, MAX_EVENT, SIZE_OFFSET
from schemas.binlog.mariadb_zlib import inflate
from schemas.errors import DecodeError

_END, _SIZE, _COMPRESSION, _UNCOMPRESSED_SIZE = 0, 1, 2, 3
_ZSTD, _NONE = 0, 255
_BLOCK = 4 << 20  # bytes

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


def unpacked(body: bytes) -> Iterator[bytes]:
    """The events inside, in blocks of whole ones, one behind the other, without checksums.

    Raises:
        DecodeError: TR414, an unknown compression, a size that does not fit, or an event that is not whole.
        ValueError, IndexError, KeyError: the payload's head is damaged.
    """
    compression, size, begin = payload_head(body)
    if compression == _NONE:
        yield from _whole_events(_pieces(io.BytesIO(body[begin:]), len(body) - begin))
        return
    if compression != _ZSTD:
        raise DecodeError("TR414", f"a transaction is compressed by the unknown method {compression}")
    if size is None:
        raise DecodeError("TR414", "a compressed transaction does not declare its size")
    # MySQL writes streams without a content size, so the reader must not ask for one.
    with zstandard.ZstdDecompressor().stream_reader(body[begin:], read_across_frames=True) as reader:
        try:
            yield from _whole_events(_pieces(reader, size))
        except zstandard.ZstdError as error:
            raise DecodeError("TR414", f"a compressed transaction cannot be unpacked: {error}") from error


def payload_head(body: bytes) -> tuple[int, int | None, int]:
    """The method of compression, the size without it where it is stated, and where the data begins."""
    compression, size, pos = _ZSTD, None, 0
    while (kind := body[pos]) != _END:
        length, value_at = packed_length(body, pos + 1)
        if kind == _COMPRESSION:
            compression, _ = packed_length(body, value_at)
        elif kind == _UNCOMPRESSED_SIZE:
            size, _ = packed_length(body, value_at)
        pos = value_at + length
    return compression, size, pos + 1


def _pieces(reader: io.BytesIO | zstandard.ZstdDecompressionReader, size: int) -> Iterator[bytes]:
    """All that is there, as long as it is no more than stated. Raises DecodeError TR414."""
    left = size
    while piece := reader.read(_BLOCK):
        left -= len(piece)
        if left < 0:
            raise DecodeError(
                "TR414", f"a compressed transaction has more than the {size} bytes that it states"
            )
        yield piece
    if left:
        raise DecodeError("TR414", f"a compressed transaction has {size - left} bytes instead of {size}")


def _whole_events(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The pieces, cut anew where events end. Raises DecodeError TR414."""
    rest: list[bytes] = []
    have = need = 0
    for piece in pieces:
        rest.append(piece)
        have += len(piece)
        # An event of many pieces is put together once.
        if have >= need:
            data = b"".join(rest)
            end, need = _end_of_events(data)
            if end:
                yield data[:end]
            rest, have, need = [data[end:]], len(data) - end, need - end
    if have:
        raise DecodeError("TR414", "a compressed transaction ends within an event")


def _end_of_events(data: bytes) -> tuple[int, int]:
    """Where the last whole event ends, and how many bytes are needed for the end of the next one."""
    at, end = 0, len(data)
    while at + HEADER_SIZE <= end:
        size = EVENT_SIZE.unpack_from(data, at + SIZE_OFFSET)[0]
        if not HEADER_SIZE <= size <= MAX_EVENT:
            raise DecodeError("TR414", f"a compressed transaction has an event of the impossible size {size}")
        if at + size > end:
            return at, at + size
        at += size
    return at, at + HEADER_SIZE


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
