"""MySQL's binary JSON to MySQL's own JSON text. Source: MySQL sql-common/json_binary.h, json_dom.cc."""

from __future__ import annotations

import json
from base64 import b64encode
from struct import unpack_from
from typing import TypeAlias

from schemas.types.decimals import NEWDECIMAL, packed_size, unpacker

#: an object, an array, or a scalar's text
Tree: TypeAlias = "dict[bytes, Tree] | list[Tree] | str"

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY = 0, 1, 2, 3
_LITERAL, _STRING, _OPAQUE = 4, 12, 15
_NUMBERS = {5: ("<h", 2), 6: ("<H", 2), 7: ("<i", 4), 8: ("<I", 4), 9: ("<q", 8), 10: ("<Q", 8)}
_DOUBLE = 11
_LITERALS = {0: "null", 1: "true", 2: "false"}
_TIMESTAMP, _DATE, _TIME, _DATETIME = 7, 10, 11, 12
# MySQL's F format reaches this far; source: MySQL strings/dtoa.cc, MAX_DECPT_FOR_F_FORMAT and my_gcvt
_F_FORMAT_DIGITS = 15


def json_text(data: bytes) -> bytes:
    """The UTF-8 text of a binary JSON document; an empty one is JSON null.

    Raises:
        ValueError, IndexError, KeyError, struct.error: the document is damaged.
    """
    if not data:
        return b"null"
    return _value(data[0], data, 1).encode("utf-8", "surrogateescape")


def _value(kind: int, data: bytes, pos: int) -> str:
    if kind <= _LARGE_ARRAY:
        return _container(kind, data, pos)
    if kind == _LITERAL:
        return _LITERALS[data[pos]]
    if kind in _NUMBERS:
        return str(unpack_from(_NUMBERS[kind][0], data, pos)[0])
    if kind == _DOUBLE:
        return double_text(unpack_from("<d", data, pos)[0])
    if kind == _STRING:
        length, pos = _length(data, pos)
        return _quoted(data[pos : pos + length])
    if kind == _OPAQUE:
        field_type = data[pos]
        length, pos = _length(data, pos + 1)
        return _opaque(field_type, data[pos : pos + length])
    raise ValueError(f"JSON value type {kind}")


def _container(kind: int, data: bytes, pos: int) -> str:
    keys, entries = _children(kind, data, pos)
    items = [_value(child, data, at) for child, at in entries]
    if keys is None:
        return f"[{', '.join(items)}]"
    return "{" + ", ".join(f"{_quoted(k)}: {v}" for k, v in zip(keys, items, strict=True)) + "}"


def _children(kind: int, data: bytes, pos: int) -> tuple[list[bytes] | None, list[tuple[int, int]]]:
    """An object's keys (None for an array), and the kind and place of each value."""
    large = kind in (_LARGE_OBJECT, _LARGE_ARRAY)
    form, size = ("<I", 4) if large else ("<H", 2)
    count = unpack_from(form, data, pos)[0]
    is_object = kind in (_SMALL_OBJECT, _LARGE_OBJECT)
    keys_at = pos + 2 * size
    entries_at = keys_at + (count * (size + 2) if is_object else 0)
    entries = [_entry(data, pos, entries_at + i * (1 + size), large) for i in range(count)]
    if not is_object:
        return None, entries
    return [_key(data, pos, keys_at + i * (size + 2), form, size) for i in range(count)], entries


def _entry(data: bytes, start: int, at: int, large: bool) -> tuple[int, int]:
    kind = data[at]
    # Small numbers and literals stand in the entry itself instead of an offset.
    inlined = kind in (_LITERAL, 5, 6) or (large and kind in (7, 8))
    if inlined:
        return kind, at + 1
    return kind, start + unpack_from("<I" if large else "<H", data, at + 1)[0]


def _key(data: bytes, start: int, at: int, form: str, size: int) -> bytes:
    offset = unpack_from(form, data, at)[0]
    length = unpack_from("<H", data, at + size)[0]
    return data[start + offset : start + offset + length]


def json_tree(data: bytes) -> Tree:
    """A binary JSON document as containers that can be changed, with the text of each scalar.

    Raises: as ``json_text``.
    """
    return _tree(data[0], data, 1) if data else "null"


def _tree(kind: int, data: bytes, pos: int) -> Tree:
    if kind > _LARGE_ARRAY:
        return _value(kind, data, pos)
    keys, entries = _children(kind, data, pos)
    values = [_tree(child, data, at) for child, at in entries]
    return values if keys is None else dict(zip(keys, values, strict=True))


def tree_text(tree: Tree) -> bytes:
    """The inverse of ``json_tree``, as ``json_text`` would have it."""
    return _tree_text(tree).encode("utf-8", "surrogateescape")


def _tree_text(tree: Tree) -> str:
    if isinstance(tree, str):
        return tree
    if isinstance(tree, list):
        return f"[{', '.join(map(_tree_text, tree))}]"
    # MySQL keeps an object's keys by length, then by bytes.
    members = sorted(tree.items(), key=lambda member: (len(member[0]), member[0]))
    return "{" + ", ".join(f"{_quoted(key)}: {_tree_text(value)}" for key, value in members) + "}"


def _length(data: bytes, pos: int) -> tuple[int, int]:
    length = shift = 0
    while True:
        byte = data[pos]
        pos += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            return length, pos
        shift += 7


def _quoted(text: bytes) -> str:
    # JSON strings are utf8mb4; escapes as MySQL writes them are those of json.dumps, save for DEL.
    return json.dumps(text.decode(), ensure_ascii=False)


def double_text(number: float) -> str:
    """A double as MySQL's JSON text shows it: always recognisable as a double."""
    mantissa, _, exponent = f"{number!r}".partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    if not digits:
        return f"{sign}0.0"
    # A number with digits behind its point keeps them there, however large it is.
    if _F_FORMAT_DIGITS < point >= len(digits) or point < 1 - _F_FORMAT_DIGITS:
        tail = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{tail}e{point - 1}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    whole, fraction = digits[:point].ljust(point, "0"), digits[point:]
    return f"{sign}{whole}.{fraction or '0'}"


def _opaque(field_type: int, data: bytes) -> str:
    if field_type == NEWDECIMAL:
        precision, scale = data[0], data[1]
        number = unpacker(precision, scale)(data[2 : 2 + packed_size(precision, scale)])
        digits = str(abs(number)).rjust(scale + 1, "0")
        text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
        return f"-{text}" if number < 0 else text
    if field_type in (_DATE, _TIME, _DATETIME, _TIMESTAMP):
        return f'"{_temporal(field_type, int.from_bytes(data[:8], "little", signed=True))}"'
    return f'"base64:type{field_type}:{b64encode(data).decode()}"'


def _temporal(field_type: int, packed: int) -> str:
    sign = "-" if packed < 0 else ""
    packed = abs(packed)
    whole, micro = packed >> 24, packed & 0xFFFFFF
    hms = whole & 0x1FFFF
    if field_type == _TIME:
        return f"{sign}{whole >> 12 & 1023:02}:{whole >> 6 & 63:02}:{whole & 63:02}.{micro:06}"
    ymd = whole >> 17
    day = f"{(ymd >> 5) // 13:04}-{(ymd >> 5) % 13:02}-{ymd & 31:02}"
    if field_type == _DATE:
        return day
    return f"{day} {hms >> 12:02}:{hms >> 6 & 63:02}:{hms & 63:02}.{micro:06}"
