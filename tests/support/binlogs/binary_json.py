"""Writes MySQL's binary JSON, from Python's values. Source of the form: MySQL sql-common/json_binary.h."""

from __future__ import annotations

import struct
from typing import Any

_LITERALS: dict[Any, int] = {None: 0, True: 1, False: 2}


def document(value: Any, large: bool = False) -> bytes:
    """The document of a value; ``large``: its containers have offsets of four bytes."""
    kind, content = _encoded(value, large)
    return bytes((kind,)) + content


def _encoded(value: Any, large: bool) -> tuple[int, bytes]:
    if value is None or isinstance(value, bool):
        return 4, bytes((_LITERALS[value],))
    if isinstance(value, float):
        return 11, struct.pack("<d", value)
    if isinstance(value, int):
        for kind, form, bits in ((5, "<h", 15), (7, "<i", 31), (9, "<q", 63)):
            if -(1 << bits) <= value < 1 << bits:
                return kind, struct.pack(form, value)
        return 10, struct.pack("<Q", value)
    if isinstance(value, str):
        text = value.encode("utf-8", "surrogateescape")
        return 12, _length(len(text)) + text
    return _container(value, large)


def _container(value: Any, large: bool) -> tuple[int, bytes]:
    is_object = isinstance(value, dict)
    number, size = ("<I", 4) if large else ("<H", 2)
    names = [name.encode() for name in value] if is_object else []
    children = [_encoded(child, large) for child in (value.values() if is_object else value)]
    at = 2 * size + len(names) * (size + 2) + len(children) * (1 + size)
    keys = b""
    for name in names:
        keys += struct.pack(number + "H", at, len(name))
        at += len(name)
    entries, contents = b"", b""
    for kind, content in children:
        if kind in (4, 5, 6) or (large and kind in (7, 8)):
            entries += bytes((kind,)) + content.ljust(size, b"\0")
        else:
            entries += bytes((kind,)) + struct.pack(number, at)
            contents += content
            at += len(content)
    head = struct.pack(number, len(children)) + struct.pack(number, at)
    return (0 if is_object else 2) + large, head + keys + entries + b"".join(names) + contents


def _length(length: int) -> bytes:
    made = b""
    while length > 127:
        made += bytes((length & 127 | 128,))
        length >>= 7
    return made + bytes((length,))
