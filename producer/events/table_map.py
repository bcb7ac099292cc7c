"""TABLE_MAP events to table structures. Source: MySQL libs/mysql/binlog/event/rows_event.h, Table_map_event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from schemas.charsets.collations import CHARSETS, MAX_CHARACTER_BYTES
from schemas.charsets.text import text_of
from schemas.ddl.table_definition import MAX_COLUMNS
from schemas.errors import DecodeError, Where
from schemas.gtid.sets import Flavor
from schemas.structure import Column, TableStructure
from schemas.types import MOST_MEMBERS, check_column
from schemas.types.binary import (
    BIT,
    BLOB,
    BLOB_COMPRESSED,
    GEOMETRY,
    STRING,
    VAR_STRING,
    VARCHAR,
    VARCHAR_COMPRESSED,
    VECTOR,
)
from schemas.types.decimals import NEWDECIMAL
from schemas.types.enum_set import ENUM, SET
from schemas.types.floating import DOUBLE, FLOAT
from schemas.types.integer import INT24, LONG, LONGLONG, SHORT, TINY
from schemas.types.json_type import JSON
from schemas.types.temporal import (
    DATE,
    DATETIME,
    DATETIME2,
    NEWDATE,
    TIME,
    TIME2,
    TIMESTAMP,
    TIMESTAMP2,
    YEAR,
)

_SIGNEDNESS, _DEFAULT_CHARSET, _COLUMN_CHARSET, _COLUMN_NAME = 1, 2, 3, 4
_SET_MEMBERS, _ENUM_MEMBERS, _GEOMETRY_TYPE, _SIMPLE_KEY, _PREFIX_KEY = 5, 6, 7, 8, 9
_ENUM_DEFAULT_CHARSET, _ENUM_COLUMN_CHARSET = 10, 11

# Both servers count YEAR in (and mark it unsigned), and leave BIT out: seen in their binlogs.
_NUMERIC = {TINY, SHORT, INT24, LONG, LONGLONG, NEWDECIMAL, FLOAT, DOUBLE, YEAR}
#: types to which a collation belongs
CHARACTER = {STRING, VAR_STRING, VARCHAR, BLOB, VARCHAR_COMPRESSED, BLOB_COMPRESSED}
# Those that TABLE_MAP counts when it lists collations; what is not of CHARACTER is listed as binary.
# Source: MySQL sql/log_event.cc, is_character_type; MariaDB sql/log_event_server.cc, is_character_field.
_WITH_COLLATION: dict[Flavor, set[int]] = {
    "mysql": CHARACTER | {VECTOR},
    "mariadb": CHARACTER | {GEOMETRY},
}
_INTEGER_NAMES = {TINY: "tinyint", SHORT: "smallint", INT24: "mediumint", LONG: "int", LONGLONG: "bigint"}
_BLOB_SIZES = {1: "tiny", 2: "", 3: "medium", 4: "long"}
_PLAIN_NAMES = {
    FLOAT: "float",
    DOUBLE: "double",
    DATE: "date",
    NEWDATE: "date",
    YEAR: "year",
    JSON: "json",
    GEOMETRY: "geometry",
    VECTOR: "vector",
}
_FRACTIONAL_NAMES = {
    TIME2: "time",
    DATETIME2: "datetime",
    TIMESTAMP2: "timestamp",
    TIME: "time",
    DATETIME: "datetime",
    TIMESTAMP: "timestamp",
}
#: MariaDB gives these a fraction too, and its binlog does not say of how many digits
OLD_TEMPORAL = frozenset({TIME, DATETIME, TIMESTAMP})
# With the columns that MariaDB adds for unique keys by hash.
_MAX_COLUMNS = MAX_COLUMNS + 64
_MAX_BODY = 16 << 20  # bytes; the members of its ENUMs are most of it
_TWO_BYTE_META = {VARCHAR, BIT, NEWDECIMAL, STRING, VAR_STRING, ENUM, SET, VARCHAR_COMPRESSED}
_ONE_BYTE_META = {FLOAT, DOUBLE, BLOB, GEOMETRY, JSON, VECTOR, TIME2, DATETIME2, TIMESTAMP2, BLOB_COMPRESSED}


@dataclass(frozen=True)
class TableMap:
    """A parsed TABLE_MAP event; how much metadata it has depends on the upstream's settings.

    Attributes:
        columns: type code, metadata and nullability of each.
        optional: what it says besides, by kind.
        flavor: of the server that wrote it.
    """

    db: str
    table: str
    columns: tuple[tuple[int, int, bool], ...]
    optional: Mapping[int, bytes]
    flavor: Flavor

    @property
    def full(self) -> bool:
        """Whether it has full metadata (column names and the rest)."""
        return _COLUMN_NAME in self.optional or not self.columns

    @property
    def old_temporal(self) -> bool:
        """Whether it has columns of which no TABLE_MAP says how many digits their fractions have."""
        return any(code in OLD_TEMPORAL for code, _, _ in self.columns)

    @property
    def where(self) -> Where:
        """The table."""
        return Where(table=f"{self.db}.{self.table}")


_LENGTH_SIZES = {252: 2, 253: 3, 254: 8}


def packed_length(data: bytes, pos: int) -> tuple[int, int]:
    """MySQL's length-encoded integer and the offset behind it."""
    first = data[pos]
    if first < 251:
        return first, pos + 1
    size = _LENGTH_SIZES.get(first)
    if size is None:
        raise ValueError(f"a length that begins with {first}")
    return int.from_bytes(data[pos + 1 : pos + 1 + size], "little"), pos + 1 + size


def table_names(body: bytes) -> tuple[str, str, int]:
    """Schema, table and the offset behind them. ``body`` starts behind table id and flags."""
    end = 1 + body[0]
    db = body[1:end].decode()
    pos = end + 1
    table_end = pos + 1 + body[pos]
    table = body[pos + 1 : table_end].decode()
    if not db or not table or "\0" in db + table:
        raise ValueError(f"invalid table name {db!r}.{table!r}")
    return db, table, table_end + 1


def read_table_map(body: bytes, flavor: Flavor) -> TableMap:
    """A TABLE_MAP event.

    Args:
        body: the event behind header, table id and flags, without its checksum.

    Raises:
        DecodeError: TR405, more columns than a server's table has, or none.
        ValueError, IndexError, KeyError: it is damaged.
    """
    db, table, pos = table_names(body)
    count, pos = packed_length(body, pos)
    if len(body) > _MAX_BODY or not 1 <= count <= _MAX_COLUMNS:
        raise DecodeError(
            "TR405",
            f"a TABLE_MAP of {len(body)} bytes and {count} columns, which no server has",
            where=Where(table=f"{db}.{table}"),
        )
    codes = body[pos : pos + count]
    if len(codes) != count:
        raise IndexError("it ends within the column types")
    meta_size, pos = packed_length(body, pos + count)
    metas = list(_metadata(codes, body[pos : pos + meta_size]))
    pos += meta_size
    null_size = (count + 7) // 8
    nulls = int.from_bytes(body[pos : pos + null_size], "little")
    columns = tuple((*column, bool(nulls >> i & 1)) for i, column in enumerate(metas))
    return TableMap(db, table, columns, dict(_optional(body, pos + null_size)), flavor)


def full_structure(event: TableMap) -> TableStructure:
    """The structure that a TABLE_MAP with full metadata describes.

    Raises:
        DecodeError: TR403, a character set that is not known.
    """
    optional, where = event.optional, event.where
    names = list(_strings(optional.get(_COLUMN_NAME, b"")))
    if not all(names) or len(set(names)) < len(names):
        raise ValueError("duplicate or empty column name")
    listed = _WITH_COLLATION[event.flavor]
    columns = [Column(name, "", *column) for name, column in zip(names, event.columns, strict=True)]
    _set_signs(columns, optional.get(_SIGNEDNESS, b""))
    _set_charsets(columns, listed, optional, _DEFAULT_CHARSET, _COLUMN_CHARSET, where)
    _set_charsets(columns, {ENUM, SET}, optional, _ENUM_DEFAULT_CHARSET, _ENUM_COLUMN_CHARSET, where)
    _set_members(columns, ENUM, optional.get(_ENUM_MEMBERS, b""), where)
    _set_members(columns, SET, optional.get(_SET_MEMBERS, b""), where)
    key_columns = _key(optional)
    if len(set(key_columns)) < len(key_columns):
        raise ValueError("a column is in the key twice")
    key = tuple(columns[i].name for i in key_columns)
    for column in columns:
        check_column(column)
    typed = tuple(replace(c, sql_type=sql_type(c)) for c in columns)
    return TableStructure(event.db, event.table, typed, key)


def table_structure(body: bytes, flavor: Flavor) -> TableStructure:
    """The structure that a TABLE_MAP event describes by itself.

    Raises:
        DecodeError: TR402, it does not describe all of it.
    """
    event = read_table_map(body, flavor)
    if not event.full or event.old_temporal:
        raise DecodeError(
            "TR402",
            "the TABLE_MAP does not name the columns, or not the fractions of old temporal ones",
            where=event.where,
            hint="only the producer, which tracks table structures, can decode these rows",
        )
    return full_structure(event)


def stated_columns(event: TableMap) -> tuple[list[Column], bool, bool]:
    """The columns of a TABLE_MAP without names, and whether it says their signs and their character sets.

    Raises:
        DecodeError: TR403, a collation that is not known.
    """
    optional = event.optional
    columns = [Column("", "", *column) for column in event.columns]
    signs = _SIGNEDNESS in optional
    if signs:
        _set_signs(columns, optional[_SIGNEDNESS])
    charsets = _DEFAULT_CHARSET in optional or _COLUMN_CHARSET in optional
    if charsets:
        listed = _WITH_COLLATION[event.flavor]
        _set_charsets(columns, listed, optional, _DEFAULT_CHARSET, _COLUMN_CHARSET, event.where)
    return columns, signs, charsets


def _metadata(codes: bytes, meta: bytes) -> Iterator[tuple[int, int]]:
    """(type code, metadata) of each column, with ENUM and SET brought out of STRING."""
    pos = 0
    for code in codes:
        if code in _ONE_BYTE_META:
            yield code, meta[pos]
            pos += 1
        elif code in _TWO_BYTE_META:
            yield _two_bytes(code, meta[pos], meta[pos + 1])
            pos += 2
        else:
            yield code, 0


def _two_bytes(code: int, first: int, second: int) -> tuple[int, int]:
    if code == NEWDECIMAL:
        return code, first << 8 | second
    if code == BIT:
        return code, second * 8 + first
    if code in (VARCHAR, VARCHAR_COMPRESSED):
        return code, first | second << 8
    if first in (ENUM, SET):
        return first, second
    # The top two bits of a CHAR's length hide, inverted, in the type byte.
    # Source: MySQL sql/field.cc, Field_string::do_save_field_metadata.
    return STRING, second | ((first & 0x30) ^ 0x30) << 4


def _optional(body: bytes, pos: int) -> Iterator[tuple[int, bytes]]:
    while pos < len(body):
        kind = body[pos]
        length, pos = packed_length(body, pos + 1)
        yield kind, body[pos : pos + length]
        pos += length


def _numbers(data: bytes) -> list[int]:
    numbers, pos = [], 0
    while pos < len(data):
        number, pos = packed_length(data, pos)
        numbers.append(number)
    return numbers


def _raw_strings(data: bytes, pos: int, count: int) -> tuple[list[bytes], int]:
    strings = []
    for _ in range(count):
        length, pos = packed_length(data, pos)
        strings.append(data[pos : pos + length])
        pos += length
    return strings, pos


def _strings(data: bytes) -> Iterator[str]:
    pos = 0
    while pos < len(data):
        (raw,), pos = _raw_strings(data, pos, 1)
        yield raw.decode()


def _set_signs(columns: list[Column], bits: bytes) -> None:
    numeric = [i for i, c in enumerate(columns) if c.code in _NUMERIC]
    for n, i in enumerate(numeric):
        if bits[n >> 3] >> (7 - (n & 7)) & 1 and columns[i].code != YEAR:
            columns[i] = replace(columns[i], unsigned=True)


def _set_charsets(
    columns: list[Column],
    codes: set[int],
    optional: Mapping[int, bytes],
    default: int,
    each: int,
    where: Where,
) -> None:
    """Collations come as one default with exceptions, or one for each character column."""
    wanted = [i for i, c in enumerate(columns) if c.code in codes]
    if default in optional:
        first, *exceptions = _numbers(optional[default])
        collations = dict.fromkeys(range(len(wanted)), first)
        collations |= dict(zip(exceptions[::2], exceptions[1::2], strict=True))
    else:
        collations = dict(enumerate(_numbers(optional.get(each, b""))))
    if any(n >= len(wanted) for n in collations):
        # Which is whose cannot be told then, and the wrong one would make other text of the same bytes.
        raise DecodeError(
            "TR403",
            f"TABLE_MAP lists more collations than the {len(wanted)} that its columns should have",
            where=where,
            hint="the upstream counts columns in a way that is not known here: report it with the relay file",
        )
    for n, i in enumerate(wanted):
        charset = CHARSETS.get(collations.get(n, -1))
        if charset is None:
            raise DecodeError(
                "TR403",
                f"column {columns[i].name} has the unknown collation {collations.get(n)}",
                where=where,
            )
        if columns[i].code not in (VECTOR, GEOMETRY):
            columns[i] = replace(columns[i], charset=charset)


def _set_members(columns: list[Column], code: int, data: bytes, where: Where) -> None:
    pos = 0
    for i, column in enumerate(columns):
        if column.code != code:
            continue
        count, pos = packed_length(data, pos)
        if count > MOST_MEMBERS[code]:
            raise ValueError(f"column {column.name} has {count} members")
        raw, pos = _raw_strings(data, pos, count)
        try:
            members = tuple(_member(member, column.charset) for member in raw)
        except (UnicodeDecodeError, LookupError) as error:
            raise DecodeError(
                "TR403",
                f"the members of {column.name} cannot be read in charset {column.charset}: {error}",
                where=where,
                hint="convert the column to utf8mb4, or exclude the table",
            ) from error
        columns[i] = replace(column, members=members)


def _member(data: bytes, charset: str) -> str:
    """A member of ENUM or SET as the servers show it, who take bytes without a character set for UTF-8."""
    if charset == "binary":
        return data.decode()
    text = text_of(data, charset)
    # Both servers make 0x815F of a backslash, and a backslash of it.
    return text.replace("＼", "\\") if charset == "sjis" else text


def _key(optional: Mapping[int, bytes]) -> list[int]:
    if _SIMPLE_KEY in optional:
        return _numbers(optional[_SIMPLE_KEY])
    return _numbers(optional.get(_PREFIX_KEY, b""))[::2]


def sql_type(column: Column) -> str:
    """MySQL's type text of a column, as far as the binlog tells it."""
    code, meta = column.code, column.meta
    sign = " unsigned" if column.unsigned else ""
    if code in _INTEGER_NAMES:
        return _INTEGER_NAMES[code] + sign
    if code == NEWDECIMAL:
        return f"decimal({meta >> 8},{meta & 0xFF}){sign}"
    if code in _PLAIN_NAMES:
        return _PLAIN_NAMES[code] + sign
    if code in _FRACTIONAL_NAMES:
        return _FRACTIONAL_NAMES[code] + (f"({meta})" if meta else "")
    if code == BIT:
        return f"bit({meta})"
    if code in (ENUM, SET):
        members = ",".join("'" + m.replace("'", "''") + "'" for m in column.members)
        return f"{'enum' if code == ENUM else 'set'}({members})"
    if code in (BLOB, BLOB_COMPRESSED):
        return _BLOB_SIZES[meta] + ("blob" if column.charset == "binary" else "text")
    if code in (VARCHAR, VAR_STRING, STRING, VARCHAR_COMPRESSED):
        return _string_type(column)
    return f"type {code}"


def _string_type(column: Column) -> str:
    variable = "var" if column.code != STRING else ""
    # What a COMPRESSED column may hold is longer by the byte that says how it is compressed.
    length = column.meta - (column.code == VARCHAR_COMPRESSED)
    if column.charset == "binary":
        return f"{variable}binary({length})"
    return f"{variable}char({length // MAX_CHARACTER_BYTES.get(column.charset, 1)})"
