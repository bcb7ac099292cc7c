"""Compares column types: whether a column of one type can store every value of another type unchanged.

``lacks`` is a function of two types. It assumes the SQL that we write: exact literals under a strict sql_mode, with
TIMESTAMP in UTC. A value that a server would round, pad or cut without an error does not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from schemas.charsets.collations import MAX_CHARACTER_BYTES
from schemas.ddl.column_types import NUMBERS, string_value
from schemas.ddl.lexer import Lexer, LexError, TokenKind, dialect_of
from schemas.structure import Column

_SYNONYMS = {
    **{word.lower(): name for word, name in NUMBERS.items()},
    **dict.fromkeys(("bool", "boolean"), "tinyint"),
    "double precision": "double",
    "character": "char",
    **dict.fromkeys(("character varying", "char varying", "varcharacter"), "varchar"),
    "geomcollection": "geometrycollection",
}
_INTEGER_BYTES = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}
_TEXT_BYTES = {"tinytext": 255, "text": 65535, "mediumtext": (1 << 24) - 1, "longtext": (1 << 32) - 1}
_BLOB_BYTES = {"tinyblob": 255, "blob": 65535, "mediumblob": (1 << 24) - 1, "longblob": (1 << 32) - 1}
_SPATIAL = frozenset({"geometry", "point", "linestring", "polygon", "geometrycollection"})
_SPATIAL |= {"multipoint", "multilinestring", "multipolygon"}
# MariaDB's types that the binlog has as bytes, with their length.
_OPAQUE = {"uuid": 16, "inet6": 16, "inet4": 4}
_UNICODE = frozenset({"utf8mb4", "utf16", "utf16le", "utf32", "gb18030"})
_FIRST_PLANE = frozenset({"utf8mb3", "utf8", "ucs2"})


@dataclass(frozen=True)
class SqlType:
    """A column's type, parsed from the text of a server, the log or an ALTER TABLE.

    In contrast, ``schemas.structure.Column`` describes how the log encodes a column's values, and ``ColumnDefinition``
    is the column in the DDL.

    Attributes:
        text: the type's text from the server or the log.
        base: the type's name without arguments; synonyms are replaced by one name.
        sizes: the numbers in parentheses.
        members: the members of an ENUM or SET.
        charset: the charset of a character type; "" if it is not known.
    """

    text: str
    base: str
    sizes: tuple[int, ...] = ()
    unsigned: bool = False
    members: tuple[str, ...] = ()
    charset: str = ""

    @property
    def shown(self) -> str:
        """The type in messages."""
        named = self.charset and self.charset != "binary"
        return f"{self.text} {self.charset}" if named else self.text


@lru_cache(maxsize=4096)
def parse_type(text: str, charset: str = "") -> SqlType:
    """Parse a type, such as ``decimal(10,2) unsigned`` or ``enum('a','b')``; attributes after it are ignored.

    A backslash in a string is an escape, as servers show strings under every sql_mode.
    """
    try:
        tokens = list(Lexer(text, dialect_of("mariadb")))
    except LexError:
        return SqlType(text, text.lower(), charset=charset)
    words = [token.text.lower() if token.kind is TokenKind.WORD else token.key for token in tokens]
    opened = words.index("(") if "(" in words else len(words)
    closed = words.index(")") if ")" in words else opened
    behind = words[closed + 1 :] if opened < closed else words[1:]
    base = " ".join(words[: 2 if words[1:2] in (["precision"], ["varying"]) else 1])
    base = _SYNONYMS.get(base, base)
    if base in ("enum", "set"):
        members = tuple(string_value(t, escapes=True) for t in tokens if t.kind is TokenKind.STRING)
        return SqlType(text, base, members=members, charset=charset)
    sizes = tuple(int(word) for word in words[opened:closed] if word.isdecimal())
    unsigned = "unsigned" in behind or "zerofill" in behind
    return SqlType(text, base, sizes, unsigned, charset=charset)


def type_of(column: Column) -> SqlType:
    """Return the type of an upstream column."""
    if column.members:
        return SqlType(column.sql_type, column.base, members=column.members, charset=column.charset)
    return parse_type(column.sql_type, column.charset)


def lacks(target: SqlType, source: SqlType) -> str:
    """Return why ``target`` cannot hold every value of ``source`` unchanged; "" if it can."""
    test = _TESTS.get(_family(source))
    if test is not None:
        return test(target, source)
    return "" if target.base == source.base else _another(target)


def _family(kind: SqlType) -> str:
    base = kind.base
    if base in _INTEGER_BYTES:
        return "integer"
    if base in _TEXT_BYTES or base in ("char", "varchar"):
        return "text"
    if base in _BLOB_BYTES or base in ("binary", "varbinary"):
        return "bytes"
    return "spatial" if base in _SPATIAL else base


def _another(target: SqlType) -> str:
    return f"a value would change in {target.base}"


# numbers --------------------------------------------------------------------------------------------


def _integers(kind: SqlType) -> tuple[int, int]:
    bits = 8 * _INTEGER_BYTES[kind.base]
    return (0, (1 << bits) - 1) if kind.unsigned else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def _digits(kind: SqlType) -> tuple[int, int]:
    """Return the digits of a DECIMAL before and after the point."""
    precision = kind.sizes[0] if kind.sizes else 10
    scale = kind.sizes[1] if len(kind.sizes) > 1 else 0
    return precision - scale, scale


def _numbers(target: SqlType, low: int, high: int, scale: int) -> str:
    """Return why ``target`` cannot hold numbers in a range with ``scale`` digits after the point; "" if it can."""
    if low < 0 and target.unsigned:
        return "it cannot be negative"
    if target.base == "decimal":
        whole, places = _digits(target)
        if places < scale:
            return "it would round"
        return "" if 10**whole > max(high, -low) else "its range is smaller"
    if scale:
        return _another(target)
    if target.base in _INTEGER_BYTES:
        least, most = _integers(target)
        return "" if least <= low and high <= most else "its range is smaller"
    if target.base in ("float", "double"):
        exact = 1 << (24 if _single(target) else 53)
        return "" if max(high, -low) <= exact else "it would round"
    return _another(target)


def _integer(target: SqlType, source: SqlType) -> str:
    return _numbers(target, *_integers(source), 0)


def _decimal(target: SqlType, source: SqlType) -> str:
    whole, scale = _digits(source)
    high = 10**whole - 1
    return _numbers(target, 0 if source.unsigned else -high, high, scale)


def _single(kind: SqlType) -> bool:
    return kind.base == "float" and not (len(kind.sizes) == 1 and kind.sizes[0] > 24)


def _floating(target: SqlType, source: SqlType) -> str:
    if target.base not in ("float", "double"):
        return _another(target)
    if target.unsigned and not source.unsigned:
        return "it cannot be negative"
    return "it would round" if _single(target) and not _single(source) else ""


def _year(target: SqlType, source: SqlType) -> str:
    return "" if target.base == "year" else _numbers(target, 0, 2155, 0)


def _bit(target: SqlType, source: SqlType) -> str:
    if target.base != "bit":
        return _another(target)
    wide, needed = (kind.sizes[0] if kind.sizes else 1 for kind in (target, source))
    return "" if wide >= needed else "it has fewer bits"


# time -----------------------------------------------------------------------------------------------


def _date(target: SqlType, source: SqlType) -> str:
    return "" if target.base in ("date", "datetime") else _another(target)


def _fractional(target: SqlType, source: SqlType) -> str:
    wider = {"timestamp": ("timestamp", "datetime")}.get(source.base, (source.base,))
    if target.base == "timestamp" and source.base == "datetime":
        return "its range is smaller"
    if target.base not in wider:
        return _another(target)
    digits, needed = (kind.sizes[0] if kind.sizes else 0 for kind in (target, source))
    return "" if digits >= needed else "it would round fractions of a second"


# text and bytes -------------------------------------------------------------------------------------


def charset_lacks(target: str, source: str) -> str:
    """Return why a charset cannot hold all characters of another; "" if it can, or if one of them is not known."""
    target, source = ("utf8mb3" if name == "utf8" else name for name in (target, source))
    if not target or not source or target == source or target in _UNICODE or source == "ascii":
        return ""
    if target in _FIRST_PLANE and source not in _UNICODE:
        return ""
    return f"charset {target} lacks characters of {source}"


def _characters(kind: SqlType) -> int:
    """Return how many characters a text may have."""
    if kind.base in _TEXT_BYTES:
        return _TEXT_BYTES[kind.base]
    return kind.sizes[0] if kind.sizes else 1


def _takes_text(target: SqlType, characters: int, charset: str, *, bare: bool = False) -> str:
    """Return why ``target`` cannot hold texts of this length; "" if it can.

    Args:
        bare: whether the texts never end in spaces.
    """
    if target.base == "char" and not bare:
        return "it would drop spaces at the end"
    if target.base in _TEXT_BYTES:
        widest = MAX_CHARACTER_BYTES.get(target.charset or charset, 1)
        if characters * widest > _TEXT_BYTES[target.base]:
            return "it is shorter"
    elif target.base not in ("char", "varchar"):
        return _another(target)
    elif _characters(target) < characters:
        return "it is shorter"
    return charset_lacks(target.charset, charset)


def _text(target: SqlType, source: SqlType) -> str:
    if source.base in _TEXT_BYTES and target.base in _TEXT_BYTES:
        # Both limits are in bytes. In another charset a text may become longer; the server refuses it then.
        shorter = _TEXT_BYTES[target.base] < _TEXT_BYTES[source.base]
        return "it is shorter" if shorter else charset_lacks(target.charset, source.charset)
    if source.base == "longtext" and target.base == "json":
        return ""  # MariaDB's JSON is LONGTEXT
    return _takes_text(target, _characters(source), source.charset, bare=source.base == "char")


def _members(target: SqlType, source: SqlType) -> str:
    if target.base == source.base:
        known = set(target.members)
        missing = [member for member in source.members if member not in known]
        return f"it lacks the member '{missing[0][:60]}'" if missing else ""
    lengths = [len(member) for member in source.members] or [0]
    longest = max(lengths) if source.base == "enum" else sum(lengths) + len(lengths) - 1
    return _takes_text(target, longest, source.charset, bare=True)


def _json(target: SqlType, source: SqlType) -> str:
    if target.base == "longtext":
        return charset_lacks(target.charset, "utf8mb4")
    return "" if target.base == "json" else _another(target)


def _length(kind: SqlType) -> int:
    return _BLOB_BYTES.get(kind.base) or (kind.sizes[0] if kind.sizes else 1)


def _bytes(target: SqlType, source: SqlType) -> str:
    if source.base == "binary" and target.base in _OPAQUE:
        return "" if _length(source) == _OPAQUE[target.base] else _another(target)
    if target.base == "binary":
        same = source.base == "binary" and _length(source) == _length(target)
        return "" if same else "it would pad or cut"
    if target.base != "varbinary" and target.base not in _BLOB_BYTES:
        return _another(target)
    return "" if _length(target) >= _length(source) else "it is shorter"


def _spatial(target: SqlType, source: SqlType) -> str:
    # The kind of geometry is not in the binlog. The server refuses a geometry of another kind.
    return "" if target.base in _SPATIAL else _another(target)


_TESTS: dict[str, Callable[[SqlType, SqlType], str]] = {
    "integer": _integer,
    "decimal": _decimal,
    "float": _floating,
    "double": _floating,
    "year": _year,
    "bit": _bit,
    "date": _date,
    "datetime": _fractional,
    "timestamp": _fractional,
    "time": _fractional,
    "text": _text,
    "bytes": _bytes,
    "enum": _members,
    "set": _members,
    "json": _json,
    "spatial": _spatial,
}
