"""Avro's zig-zag variable-length integers, as tables, since every number and every string of a row has one."""

from __future__ import annotations


def encode_slow(zigzag: int) -> bytes:
    """Encode a zig-zag value of any size as variable-length bytes."""
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


_SMALL = 1 << 17
# A last group of seven bits, and one that is continued.
_LAST, _CONTINUED = ([bytes((first + z,)) for z in range(1 << 7)] for first in (0, 0x80))
# Two continued low groups (14 bits), which precede VARINT[z >> 14].
LOW = [low + high for high in _CONTINUED for low in _CONTINUED]
#: VARINT[z]: the bytes of each zig-zag value below 2^17, which are the numbers from -65536 to 65535
VARINT: list[bytes] = [
    *_LAST,
    *(low + high for high in _LAST[1:] for low in _CONTINUED),
    *(low + high for high in _LAST[1 : _SMALL >> 14] for low in LOW),
]


def encode(zigzag: int) -> bytes:
    """Encode a zig-zag value as variable-length bytes; by table look-ups up to 2^45, which includes times in ms."""
    if zigzag < _SMALL:
        return VARINT[zigzag]
    high = zigzag >> 14
    if high < _SMALL:
        return LOW[zigzag & 0x3FFF] + VARINT[high]
    if zigzag < 1 << 45:
        return LOW[zigzag & 0x3FFF] + LOW[high & 0x3FFF] + VARINT[zigzag >> 28]
    return encode_slow(zigzag)


def encode_long(number: int) -> bytes:
    """Encode an Avro ``int`` or ``long``."""
    return encode(number << 1 if number >= 0 else (~number << 1) | 1)


def encode_bytes(data: bytes) -> bytes:
    """Encode Avro ``bytes`` or ``string``: the length, then the data."""
    return encode(len(data) << 1) + data


def read_more(data: bytes, pos: int, first: int) -> tuple[int, int]:
    """Read the rest of a zig-zag value whose first byte ``first`` has its continuation bit set.

    Args:
        pos: the offset after the first byte.

    Returns:
        the zig-zag value and the offset after it.

    Raises:
        ValueError: it has more bytes than a long.
    """
    value = first & 0x7F
    shift = 7
    while shift < 70:
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
        shift += 7
    raise ValueError("a number has more bytes than a long")


def read_lines(target: str) -> list[str]:
    """Return generated lines that read a zig-zag value at ``v[p]``; those of up to three bytes without a call."""
    return [
        f"{target} = v[p]; p += 1",
        f"if {target} > 127:",
        "    _b = v[p]",
        f"    if _b < 128: {target} += (_b << 7) - 128; p += 1",
        "    else:",
        "        _c = v[p + 1]",
        f"        if _c < 128: {target} += (_b << 7) + (_c << 14) - 16512; p += 2",
        f"        else: {target}, p = read_more(v, p, {target})",
    ]


def read_long(data: bytes, pos: int) -> tuple[int, int]:
    """Read an Avro ``int`` or ``long`` at ``pos``; returns it and the offset after it."""
    z = data[pos]
    pos += 1
    if z > 0x7F:
        z, pos = read_more(data, pos, z)
    return (z >> 1) ^ -(z & 1), pos


def read_bytes(data: bytes, pos: int) -> tuple[bytes, int]:
    """Read Avro ``bytes`` or ``string`` at ``pos``; returns it and the offset after it."""
    length, pos = read_long(data, pos)
    end = pos + length
    if not pos <= end <= len(data):
        raise ValueError(f"a text has the impossible length of {length} bytes")
    return data[pos:end], end
