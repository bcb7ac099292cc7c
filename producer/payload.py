"""TRANSACTION_PAYLOAD events: a whole transaction, compressed. Source: MySQL codecs, transaction_payload.h."""

from __future__ import annotations

import zstandard

from producer.table_map import packed_length
from schemas.errors import DecodeError

_END, _SIZE, _COMPRESSION, _UNCOMPRESSED_SIZE = 0, 1, 2, 3
_ZSTD, _NONE = 0, 255


def unpack_payload(body: bytes) -> bytes:
    """The events inside, one behind the other, without checksums.

    Raises:
        DecodeError: TR414, an unknown compression or a size that does not fit.
    """
    compression, size, pos = _ZSTD, 0, 0
    while (kind := body[pos]) != _END:
        length, value_at = packed_length(body, pos + 1)
        if kind == _COMPRESSION:
            compression, _ = packed_length(body, value_at)
        elif kind == _UNCOMPRESSED_SIZE:
            size, _ = packed_length(body, value_at)
        pos = value_at + length
    data = body[pos + 1 :]
    if compression == _NONE:
        return data
    if compression != _ZSTD:
        raise DecodeError("TR414", f"a transaction is compressed by the unknown method {compression}")
    # MySQL writes streams without a content size, so it has to be given.
    try:
        events = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    except zstandard.ZstdError as error:
        raise DecodeError("TR414", f"a compressed transaction cannot be unpacked: {error}") from error
    if size and len(events) != size:
        raise DecodeError("TR414", f"a compressed transaction has {len(events)} bytes instead of {size}")
    return events
