"""The form in which MariaDB compresses statements, rows and column values.

One byte: 8 (zlib) in bits 4–7, raw deflate without zlib's frame in bit 3, the size of the length in bits 0–2. Then
the length, big-endian unlike all else in a binlog, then the data.
Sources: MariaDB sql/log_event.cc, ``binlog_buf_compress``; sql/field.cc, ``compress_zlib``.
"""

from __future__ import annotations

import zlib

# Bytes: what one packet may hold, so no value, row or statement is longer.
_MOST = 1 << 30


def inflate(data: bytes) -> bytes:
    """The bytes that ``data`` was made of.

    Raises:
        ValueError: another method, damaged data, or another length than stated; or a length that nothing has. What
            is taken of memory is what is there, not what is stated.
    """
    if not data or data[0] >> 4 != 8:
        raise ValueError("compressed by an unknown method")
    begin = 1 + (data[0] & 7)
    length = int.from_bytes(data[1:begin], "big")
    if length > _MOST:
        raise ValueError(f"compressed data that states {length} bytes")
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS if data[0] & 8 else zlib.MAX_WBITS)
    try:
        # One byte more than stated, so that neither too long nor endless data is taken for right.
        plain = unpacker.decompress(data[begin:], length + 1)
    except zlib.error as error:
        raise ValueError(f"damaged compressed data: {error}") from error
    if len(plain) != length or not unpacker.eof:
        raise ValueError("compressed data of another length than stated")
    return plain


def inflate_column(data: bytes) -> bytes:
    """A value of a COMPRESSED column: nothing, or a zero byte and the value, or the compressed value."""
    if data and data[0]:
        return inflate(data)
    return data[1:]
