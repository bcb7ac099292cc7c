"""Converts MySQL's binary JSON to MySQL's own JSON text. Source: MySQL sql-common/json_binary.h, json_dom.cc.

A document made from SQL values may have scalars whose type is not clear from the text: DECIMAL, UNSIGNED, times,
bytes. Their types are returned separately, by path.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from json.encoder import encode_basestring as _quote
from math import isfinite
from struct import Struct, unpack_from
from typing import Final, NamedTuple, TypeAlias

from schemas.errors import DecodeError
from schemas.types.decimals import NEWDECIMAL, check_digits, packed_size, unpacker

#: an object, an array, or a scalar's text
Tree: TypeAlias = "dict[bytes, Tree] | list[Tree] | str"

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY = 0, 1, 2, 3
_LITERAL, _STRING, _OPAQUE = 4, 12, 15
_INT16, _UINT16, _INT32, _UINT32 = 5, 6, 7, 8
_NUMBERS = {_INT16: "<h", _UINT16: "<H", _INT32: "<i", _UINT32: "<I", 9: "<q", 10: "<Q"}
_DOUBLE = 11
#: levels of nested containers that servers allow in a document; source: MySQL sql-common/json_dom.h
MAX_DEPTH = 100
_LITERALS = {0: "null", 1: "true", 2: "false"}
_UNSIGNED, _MAX_READ_SIGNED = {_UINT16, _UINT32, 10}, (1 << 32) - 1
# A value's kind, and its offset or the value itself; a key's offset and length.
_SMALL_ENTRY, _LARGE_ENTRY, _SMALL_KEY, _LARGE_KEY = map(Struct, ("<BH", "<BI", "<HH", "<IH"))
_read_double = Struct("<d").unpack_from
_TIMESTAMP, _DATE, _TIME, _DATETIME = 7, 10, 11, 12
_TEMPORAL = {_TIMESTAMP: "timestamp(6)", _DATE: "date", _TIME: "time(6)", _DATETIME: "datetime(6)"}
#: types of bytes in a document: VARBINARY, BIT, MEDIUMBLOB, LONGBLOB, BLOB, BINARY
OPAQUE = (15, 16, 250, 251, 252, 254)
# The limit of MySQL's F format; source: MySQL strings/dtoa.cc, MAX_DECPT_FOR_F_FORMAT and my_gcvt
_F_FORMAT_DIGITS = 15


class TypedText(str):
    """A scalar's text, with its SQL type, which is not clear from the text: ``types`` in docs/TYPES.md."""

    __slots__ = ("sql_type",)

    def __new__(cls, text: str, sql_type: str) -> TypedText:
        """Create it from text and type."""
        made = super().__new__(cls, text)
        made.sql_type = sql_type
        return made

    sql_type: str


def json_text(data: bytes) -> tuple[bytes, bool]:
    """Return the UTF-8 text of a binary JSON document, and whether it has typed scalars; an empty one is JSON null.

    Raises:
        ValueError, IndexError, KeyError, struct.error: the document is damaged.
        DecodeError: TR417, bytes of a type that SQL cannot create again.
    """
    if not data:
        return b"null", False
    typed: list[str] = []
    text = _value(data[0], data, 1, typed, [len(data)], 0)
    return text.encode("utf-8", "surrogateescape"), bool(typed)


def _value(kind: int, data: bytes, pos: int, typed: list[str], left: list[int], depth: int) -> str:
    """Return a value's text, and append the types of typed scalars to ``typed``.

    Args:
        left: number of bytes of the document that were not read yet. Each byte belongs to one part, so reading takes
            time proportional to the size although offsets may point anywhere.
        depth: of the container that has the value.
    """
    if kind <= _LARGE_ARRAY:
        return _container(kind, data, pos, typed, left, depth + 1)
    if kind == _STRING:
        return quoted(_counted(data, pos, left))
    if kind == _LITERAL:
        return _LITERALS[data[pos]]
    if kind in _NUMBERS:
        number = unpack_from(_NUMBERS[kind], data, pos)[0]
        # When the server reads the text, a number of up to 32 bits becomes signed, a larger one unsigned.
        if (kind in _UNSIGNED) != (number > _MAX_READ_SIGNED):
            typed.append("unsigned" if kind in _UNSIGNED else "signed")
        return str(number)
    if kind == _DOUBLE:
        return double_text(_read_double(data, pos)[0])
    if kind == _OPAQUE:
        text, sql_type = _opaque(data[pos], _counted(data, pos + 1, left))
        typed.append(sql_type)
        return text
    raise ValueError(f"unknown JSON value type {kind}")


def _container(kind: int, data: bytes, start: int, typed: list[str], left: list[int], depth: int) -> str:
    keys, entries, entries_at = _children(kind, data, start, left, depth)
    items: list[str] = []
    add = items.append
    for child, offset in entries:
        # Documents have mostly these, so they do not take the way through _value.
        if child == _STRING:
            add(_quote(str(_counted(data, start + offset, left), "utf-8")))
        elif child == _DOUBLE:
            add(double_text(_read_double(data, start + offset)[0]))
        elif child == _INT16:
            add(str((offset & 0xFFFF ^ 0x8000) - 0x8000))
        elif child <= _LARGE_ARRAY:
            add(_container(child, data, start + offset, typed, left, depth + 1))
        else:
            at = _position(kind, child, start + offset, entries_at, len(items))
            add(_value(child, data, at, typed, left, depth))
    return keys.template % tuple(items) if keys is not None else f"[{', '.join(items)}]"


def _counted(data: bytes, pos: int, left: list[int]) -> bytes:
    """The bytes behind their length at ``data[pos]``."""
    length = data[pos]
    if length < 0x80:
        pos += 1
    else:
        length, pos = _length(data, pos)
    _consume(left, length)
    content = data[pos : pos + length]
    if len(content) != length:
        raise ValueError("a JSON document ends within a value")
    return content


def _consume(left: list[int], size: int) -> None:
    left[0] -= size
    if left[0] < 0:
        raise ValueError("parts of a JSON document overlap")


class _Keys(NamedTuple):
    """An object's keys.

    Attributes:
        names: as they are.
        template: the object's text with %s for each value.
        size: bytes of all names.
    """

    names: tuple[bytes, ...]
    template: str
    size: int


_NO_KEYS = _Keys((), "{}", 0)
#: keys of objects by their bytes: the entries, and the names; as many, with as many bytes each, are remembered
_known_keys: Final[dict[tuple[bool, bytes, bytes], _Keys]] = {}
_MOST_KNOWN, _MOST_KNOWN_BYTES = 1000, 4096


def _children(
    kind: int, data: bytes, start: int, left: list[int], depth: int
) -> tuple[_Keys | None, Iterator[tuple[int, int]], int]:
    """Return an object's keys (None for an array), each value's kind and number, and where these begin.

    The number is the value's offset from ``start``, or the value itself; see ``_position``.

    Args:
        left: see ``_value``.
        depth: of the container; 1 for the outermost one.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"a JSON document is more than {MAX_DEPTH} levels deep")
    large, is_object = kind in (_LARGE_OBJECT, _LARGE_ARRAY), kind in (_SMALL_OBJECT, _LARGE_OBJECT)
    size, entry = (4, _LARGE_ENTRY) if large else (2, _SMALL_ENTRY)
    count = unpack_from("<I" if large else "<H", data, start)[0]
    _consume(left, 2 * size + count * (1 + size + (size + 2 if is_object else 0)))
    keys_at = start + 2 * size
    entries_at = keys_at + (count * (size + 2) if is_object else 0)
    entries_end = entries_at + count * (1 + size)
    if entries_end > len(data):
        raise ValueError("a JSON document ends within a container")
    keys = None
    if is_object:
        keys = _keys(data, start, (keys_at, entries_at, entries_end), large)
        _consume(left, keys.size)
    return keys, entry.iter_unpack(data[entries_at:entries_end]), entries_at


def _keys(data: bytes, start: int, places: tuple[int, int, int], large: bool) -> _Keys:
    """Return an object's keys; ``places`` are where they, the values' entries, and what is behind those begin."""
    keys_at, entries_at, names_at = places
    entries = data[keys_at:entries_at]
    form = _LARGE_KEY if large else _SMALL_KEY
    if not entries:
        return _NO_KEYS
    offset, length = form.unpack_from(entries, len(entries) - form.size)
    names_end = start + offset + length
    # The servers write the names behind the entries, so the documents of a table mostly have the same bytes here.
    is_short = 0 <= names_end - names_at <= _MOST_KNOWN_BYTES and len(entries) <= _MOST_KNOWN_BYTES
    known = (large, entries, data[names_at:names_end]) if is_short else None
    if known is not None and (found := _known_keys.get(known)) is not None:
        return found
    spans = [(start + offset, start + offset + length) for offset, length in form.iter_unpack(entries)]
    names = tuple(data[begin:end] for begin, end in spans)
    if any(end > len(data) for _, end in spans):
        raise ValueError("a JSON document ends within a key")
    members = ", ".join(f"{quoted(name).replace('%', '%%')}: %s" for name in names)
    keys = _Keys(names, f"{{{members}}}", sum(map(len, names)))
    if known is not None and all(names_at <= begin and end <= names_end for begin, end in spans):
        if len(_known_keys) >= _MOST_KNOWN:
            _known_keys.clear()
        _known_keys[known] = keys
    return keys


def _position(kind: int, child: int, place: int, entries_at: int, index: int) -> int:
    """Where a value of a container is: at ``place``, or in its entry, as literals and small numbers are."""
    large = kind in (_LARGE_OBJECT, _LARGE_ARRAY)
    if child in (_LITERAL, _INT16, _UINT16) or (large and child in (_INT32, _UINT32)):
        return entries_at + index * (5 if large else 3) + 1
    return place


def json_tree(data: bytes, depth: int = 0) -> Tree:
    """Read a binary JSON document as containers that can be changed, with the text of each scalar.

    Args:
        depth: of the container that it will be inserted into.

    Raises: like ``json_text``.
    """
    return _tree(data[0], data, 1, [len(data)], depth) if data else "null"


def _tree(kind: int, data: bytes, pos: int, left: list[int], depth: int) -> Tree:
    if kind > _LARGE_ARRAY:
        typed: list[str] = []
        text = _value(kind, data, pos, typed, left, depth)
        return TypedText(text, typed[0]) if typed else text
    keys, entries, entries_at = _children(kind, data, pos, left, depth + 1)
    values: list[Tree] = []
    for child, offset in entries:
        at = _position(kind, child, pos + offset, entries_at, len(values))
        values.append(_tree(child, data, at, left, depth + 1))
    return values if keys is None else dict(zip(keys.names, values, strict=True))


def has_types(tree: Tree) -> bool:
    """Whether there are typed scalars, which documents seldom have; quicker than their paths."""
    if isinstance(tree, str):
        return isinstance(tree, TypedText)
    return any(map(has_types, tree.values() if isinstance(tree, dict) else tree))


def tree_types(tree: Tree, path: str = "$") -> Iterator[tuple[str, str]]:
    """Yield path and type of each typed scalar. A path has ``[n]`` for an element and ``."key"`` for a member."""
    if isinstance(tree, TypedText):
        yield path, tree.sql_type
    elif isinstance(tree, list):
        for i, value in enumerate(tree):
            yield from tree_types(value, f"{path}[{i}]")
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from tree_types(value, f"{path}.{quoted(key)}")


def tree_text(tree: Tree) -> str:
    """Convert a tree to the text that ``json_text`` returns for its document."""
    if isinstance(tree, str):
        return tree
    if isinstance(tree, list):
        return f"[{', '.join(map(tree_text, tree))}]"
    # MySQL sorts an object's keys by length, then by bytes.
    members = sorted(tree.items(), key=lambda member: (len(member[0]), member[0]))
    return "{" + ", ".join(f"{quoted(key)}: {tree_text(value)}" for key, value in members) + "}"


def _length(data: bytes, pos: int) -> tuple[int, int]:
    length = shift = 0
    while shift < 35:
        byte = data[pos]
        pos += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            return length, pos
        shift += 7
    raise ValueError("a length in a JSON document has too many bytes")


def quoted(text: bytes) -> str:
    """Quote a string as in MySQL's JSON text."""
    # JSON strings are utf8mb4; MySQL's escapes are those of json.dumps(ensure_ascii=False).
    return _quote(text.decode())


def double_text(number: float) -> str:
    """Format a double as in MySQL's JSON text, where it is always recognizable as a double."""
    if -1e15 < number < 1e15 and "e" not in (text := repr(number)):
        return text
    if not isfinite(number):
        raise ValueError(f"a JSON document contains {number}")
    mantissa, _, exponent = f"{number!r}".partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    if not digits:
        return f"{sign}0.0"
    # A number with digits after the point keeps them, however large it is.
    if _F_FORMAT_DIGITS < point >= len(digits) or point < 1 - _F_FORMAT_DIGITS:
        tail = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{tail}e{point - 1}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    whole, fraction = digits[:point].ljust(point, "0"), digits[point:]
    return f"{sign}{whole}.{fraction or '0'}"


def _opaque(field_type: int, data: bytes) -> tuple[str, str]:
    """Return text and type of a scalar that was made by SQL."""
    if field_type == NEWDECIMAL:
        precision, scale = data[0], data[1]
        check_digits(precision, scale)
        number = unpacker(precision, scale)(data[2 : 2 + packed_size(precision, scale)])
        digits = str(abs(number)).rjust(scale + 1, "0")
        text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
        return f"-{text}" if number < 0 else text, decimal_type(number, scale)
    if field_type in _TEMPORAL:
        packed = int.from_bytes(data[:8], "little", signed=True)
        return f'"{_temporal(field_type, packed)}"', _TEMPORAL[field_type]
    return f'"base64:type{field_type}:{b64encode(data).decode()}"', opaque_type(field_type)


def decimal_type(number: int, scale: int) -> str:
    """Return the type of a DECIMAL by its unscaled number.

    The document's own precision may be larger than necessary, depending on how the value was computed.
    """
    return f"decimal({max(len(str(abs(number))), scale, 1)},{scale})"


def opaque_type(field_type: int) -> str:
    """Return the type of bytes. Raises DecodeError TR417 if SQL cannot create them again."""
    if field_type not in OPAQUE:
        raise DecodeError(
            "TR417",
            f"a JSON document contains bytes of MySQL's type {field_type}, which SQL cannot create again",
            hint="store such values as text, for example with TO_BASE64(), or exclude the table",
        )
    return f"opaque({field_type})"


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
