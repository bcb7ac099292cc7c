"""MariaDB's format of compressed statements, rows and column values.

One byte has 8 (zlib) in bits 4–7, raw deflate without zlib's frame in bit 3, and the size of the length in bits 0–2.
Then follow the length, big-endian unlike everything else in a binlog, and the data.
Sources: MariaDB sql/log_event.cc, ``binlog_buf_compress``; sql/field.cc, ``compress_zlib``.
"""

from __future__ import annotations

import zlib

# Bytes: the largest packet, so no value, row or statement is longer.
_MOST = 1 << 30


def inflate(data: bytes) -> bytes:
    """Decompress ``data``. Uses memory only for actual data, whatever the stated length is.

    Raises:
        ValueError: an unknown method, damaged data, a wrong length, or an impossible length.
    """
    if not data or data[0] >> 4 != 8:
        raise ValueError("compressed by an unknown method")
    start = 1 + (data[0] & 7)
    length = int.from_bytes(data[1:start], "big")
    if length > _MOST:
        raise ValueError(f"compressed data has the impossible length of {length} bytes")
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS if data[0] & 8 else zlib.MAX_WBITS)
    try:
        # One byte more than stated, to detect data that is too long or endless.
        plain = unpacker.decompress(data[start:], length + 1)
    except zlib.error as error:
        raise ValueError(f"damaged compressed data: {error}") from error
    if len(plain) != length or not unpacker.eof:
        raise ValueError("compressed data has another length than stated")
    return plain


def inflate_column(data: bytes) -> bytes:
    """Read a value of a COMPRESSED column: empty, a zero byte and the value, or the compressed value."""
    if data and data[0]:
        return inflate(data)
    return data[1:]
