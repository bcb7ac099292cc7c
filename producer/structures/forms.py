"""Converts column definitions to the type code and metadata of a TABLE_MAP, and back."""

from __future__ import annotations

from dataclasses import replace

from producer.events.table_map import CHARACTER as CHARACTER_CODES
from producer.events.table_map import OLD_TEMPORAL, TableMap, sql_type, stated_columns
from schemas.charsets.collations import MAX_CHARACTER_BYTES
from schemas.ddl.lexer import Flavor
from schemas.ddl.table_definition import (
    CHARACTER,
    PERIOD,
    ColumnDefinition,
    KeyDefinition,
    KeyPart,
    TableDefinition,
    number_bytes,
)
from schemas.errors import DecodeError
from schemas.structure import ROW_HASH, Column, TableStructure
from schemas.types import check_column
from schemas.types.binary import (
    BIT,
    BLOB,
    BLOB_COMPRESSED,
    GEOMETRY,
    STRING,
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

#: type code and metadata
Form = tuple[int, int]

_FIXED: dict[str, tuple[Form, ...]] = {
    "tinyint": ((TINY, 0),),
    "smallint": ((SHORT, 0),),
    "mediumint": ((INT24, 0),),
    "int": ((LONG, 0),),
    "bigint": ((LONGLONG, 0),),
    "float": ((FLOAT, 4),),
    "double": ((DOUBLE, 8),),
    "year": ((YEAR, 0),),
    "date": ((DATE, 0), (NEWDATE, 0)),
    "json": ((JSON, 4),),
    "geometry": ((GEOMETRY, 4),),
    "uuid": ((STRING, 16),),
    "inet6": ((STRING, 16),),
    "inet4": ((STRING, 4),),
}
_TEMPORAL = {"time": (TIME2, TIME), "datetime": (DATETIME2, DATETIME), "timestamp": (TIMESTAMP2, TIMESTAMP)}
_MOST_BYTES = 4


def forms(column: ColumnDefinition, flavor: Flavor) -> tuple[Form, ...]:
    """The forms that a column may have in a TABLE_MAP, the usual one first."""
    kind, length = column.type, column.length or 0
    if kind in _FIXED:
        return _FIXED[kind]
    if kind in _TEMPORAL:
        new, old = _TEMPORAL[kind]
        # MySQL's old types have no fraction.
        return ((new, length), (old, 0)) if flavor == "mariadb" or not length else ((new, length),)
    if kind == "decimal":
        return ((NEWDECIMAL, length << 8 | (column.scale or 0)),)
    if kind == "bit":
        return ((BIT, length),)
    if kind in ("text", "blob"):
        code = BLOB_COMPRESSED if column.compressed else BLOB
        return tuple((code, size) for size in ([length] if length else (2, 1, 3, 4)))
    if kind in ("enum", "set"):
        return ((ENUM if kind == "enum" else SET, number_bytes(column)),)
    if kind == "vector":
        return ((VECTOR, 4),) if flavor == "mysql" else ((VARCHAR, 4 * length),)
    return _string_forms(column, length)


def _string_forms(column: ColumnDefinition, length: int) -> tuple[Form, ...]:
    widths = (
        [MAX_CHARACTER_BYTES.get(column.charset, 1)]
        if column.charset is not None
        else range(_MOST_BYTES, 0, -1)
    )
    sizes = [length * width for width in widths]
    if column.type in ("char", "binary"):
        return tuple((STRING, size) for size in sizes)
    if column.compressed:
        return tuple((VARCHAR_COMPRESSED, size + 1) for size in sizes)
    # A VARCHAR from before MySQL 5.0 still is a padded string inside.
    return (*((VARCHAR, size) for size in sizes), *((STRING, size) for size in sizes))


def matched(event: TableMap, table: TableDefinition, flavor: Flavor) -> TableStructure:
    """The structure of a TABLE_MAP whose table is known by its definition.

    Raises:
        DecodeError: TR419, they do not match; TR418, the definition is incomplete.
    """
    stated, signs, charsets = stated_columns(event)
    stated, period = _without_period(event, stated, table)
    if flavor == "mariadb" and len(stated) == len(table.columns) + table.without_hash().hash_column_count():
        # Rebuilding a table drops USING HASH unless it is repeated; not every rebuild is in the log.
        table = table.without_hash()
    stated, hashes = _without_hashes(stated, table, flavor)
    if len(stated) != len(table.columns):
        _differ(event, f"it has {len(table.columns)} columns, the TABLE_MAP {len(stated)}")
    columns = []
    for column, known in zip(stated, table.columns, strict=True):
        _compare(event, column, known, flavor, signs)
        charset = _charset(event, column, known, charsets)
        meta = known.length or 0 if column.code in OLD_TEMPORAL else column.meta
        new = replace(
            column,
            name=known.name,
            meta=meta,
            unsigned=known.unsigned,
            charset=charset,
            members=known.members,
        )
        check_column(new)
        columns.append(replace(new, sql_type=sql_type(new)))
    key = completed(table, columns).row_key()
    return TableStructure(event.db, event.table, (*columns, *period, *hashes), key)


def _without_period(
    event: TableMap, stated: list[Column], table: TableDefinition
) -> tuple[list[Column], list[Column]]:
    """The columns without those that tell since when and until when a row was in force."""
    if not table.versioned:
        return stated, []
    end = len(table.columns)
    found, fraction = stated[end : end + len(PERIOD)], (6, 0)
    if len(found) < len(PERIOD) or any(
        c.code not in (TIMESTAMP2, TIMESTAMP) or c.nullable or c.meta not in fraction for c in found
    ):
        _differ(event, "the table is system-versioned, but the TABLE_MAP lacks the period columns")
    return [*stated[:end], *stated[end + len(PERIOD) :]], _period(*(column.code for column in found))


def _period(*codes: int) -> list[Column]:
    columns = [Column(name, "", code, 6, False) for name, code in zip(PERIOD, codes, strict=True)]
    return [replace(column, sql_type=sql_type(column)) for column in columns]


def _without_hashes(
    stated: list[Column], table: TableDefinition, flavor: Flavor
) -> tuple[list[Column], list[Column]]:
    """The columns that the definition has, and those that MariaDB adds behind them."""
    extra = len(stated) - len(table.columns)
    expected = table.hash_column_count() if flavor == "mariadb" else 0
    added = stated[len(table.columns) :]
    # Of a table that only TABLE_MAPs have told of, nobody knows which unique keys it has.
    fits = extra == expected or (flavor == "mariadb" and not table.whole)
    if extra < 1 or not fits or any(column.code != LONGLONG for column in added):
        return stated, []
    return stated[: len(table.columns)], [
        _hash(number, column.nullable) for number, column in enumerate(added, 1)
    ]


def _hash(number: int, nullable: bool) -> Column:
    """The column of a unique key by hash. Source: MariaDB sql/sql_table.cc, make_unique_invisible_field_name."""
    column = Column(f"{ROW_HASH}{number}", "", LONGLONG, 0, nullable, unsigned=True)
    return replace(column, sql_type=sql_type(column))


def completed(table: TableDefinition, columns: list[Column]) -> TableDefinition:
    """The definition with what only the TABLE_MAP could tell of it."""
    known = tuple(
        replace(
            d,
            nullable=c.nullable if d.nullable is None else d.nullable,
            charset=c.charset if d.charset is None else d.charset,
        )
        for d, c in zip(table.columns, columns[: len(table.columns)], strict=True)
    )
    return replace(table, columns=known).sorted()


def _compare(event: TableMap, column: Column, known: ColumnDefinition, flavor: Flavor, signs: bool) -> None:
    if (column.code, column.meta) not in forms(known, flavor):
        binlog = sql_type(replace(column, charset=column.charset or "binary"))
        _differ(event, f"its column {known.name} is {known.type}, the TABLE_MAP has {binlog}")
    if known.nullable is not None and known.nullable != column.nullable:
        _differ(event, f"they disagree on whether its column {known.name} may be NULL")
    if signs and column.unsigned != known.unsigned:
        _differ(event, f"they disagree on whether its column {known.name} is UNSIGNED")


def _charset(event: TableMap, column: Column, known: ColumnDefinition, charsets: bool) -> str:
    if column.code not in CHARACTER_CODES and column.code not in (ENUM, SET):
        return ""
    expected = known.charset if known.type in CHARACTER else "binary"
    if charsets and column.code in CHARACTER_CODES:
        if expected is not None and column.charset != expected:
            _differ(event, f"its column {known.name} is in {expected}, the TABLE_MAP has {column.charset}")
        return column.charset
    if expected is None:
        raise DecodeError(
            "TR418",
            f"the character set of column {known.name} is not known",
            where=event.where,
            hint=SET_HINT.format(table=event.where.table),
        )
    return expected


SET_HINT = "state the structure that the table had at this position: tailrace schema set {table} --file structure.sql"


def _differ(event: TableMap, how: str) -> None:
    raise DecodeError(
        "TR419",
        f"the tracked structure is not the one that the rows were written with: {how}",
        where=event.where,
        hint=SET_HINT.format(table=event.where.table),
    )


def predicted(
    db: str, table: str, known: TableDefinition, flavor: Flavor, *, shown: bool = False
) -> TableStructure | None:
    """The structure that the table's next TABLE_MAP will have; None if the definition does not say for sure.

    Args:
        shown: whether the definition is one that the server shows, not one that was tracked through DDL. MariaDB's
            columns of unique keys by hash are predicted only then.
    """
    columns = []
    for column in known.columns:
        code, meta = forms(column, flavor)[0]
        unsure = column.nullable is None or column.charset is None
        if unsure or (column.type in ("text", "blob") and not column.length):
            return None
        character = code in CHARACTER_CODES or code in (ENUM, SET)
        charset = (column.charset if column.type in CHARACTER else "binary") if character else ""
        new = Column(
            column.name, "", code, meta, bool(column.nullable), column.unsigned, charset or "", column.members
        )
        columns.append(replace(new, sql_type=sql_type(new)))
    hashes = _predicted_hashes(known) if flavor == "mariadb" else []
    if hashes and not shown:
        return None
    period = _period(TIMESTAMP2, TIMESTAMP2) if known.versioned else ()
    return TableStructure(db, table, (*columns, *period, *hashes), known.row_key())


def _predicted_hashes(known: TableDefinition) -> list[Column]:
    """The columns that MariaDB adds for unique keys by hash, in the order of the keys.

    Such a column is nullable if one of the key's columns is. Seen on MariaDB 11.4.
    """
    keys = [key for key in known.keys if key.kind == "unique" and known.hashed(key)]
    parts = [[known.column(part.name) for part in key.parts] for key in keys]
    return [
        _hash(number, any(column is None or column.nullable is not False for column in columns))
        for number, columns in enumerate(parts, 1)
    ]


_TYPES = {code: name for name, found in _FIXED.items() for code, _ in found if code not in CHARACTER_CODES}
_TYPES |= {code: name for name, codes in _TEMPORAL.items() for code in codes}
_TYPES |= {NEWDECIMAL: "decimal", BIT: "bit", ENUM: "enum", SET: "set", VECTOR: "vector"}


def definition_of(structure: TableStructure) -> TableDefinition:
    """What full metadata says of a table's definition: all but its default charset and further keys."""
    columns = tuple(_definition(column) for column in structure.columns if not column.is_row_hash)
    parts = tuple(KeyPart(name) for name in structure.key)
    keys = (KeyDefinition("PRIMARY", "primary", parts),) if parts else ()
    return TableDefinition(columns, keys, whole=False)


def _definition(column: Column) -> ColumnDefinition:
    length: int | None = column.meta
    scale, compressed = None, column.code in (VARCHAR_COMPRESSED, BLOB_COMPRESSED)
    binary = column.charset == "binary"
    if column.code in (BLOB, BLOB_COMPRESSED):
        kind = "blob" if binary else "text"
    elif column.code in (STRING, VARCHAR, VARCHAR_COMPRESSED):
        fixed = column.code == STRING
        kind = ("binary" if fixed else "varbinary") if binary else ("char" if fixed else "varchar")
        size = column.meta - (column.code == VARCHAR_COMPRESSED)
        length = size // MAX_CHARACTER_BYTES.get(column.charset, 1)
    else:
        # A type that nobody decodes stops the producer when its rows are read, not here.
        kind = _TYPES.get(column.code, f"type {column.code}")
        if column.code == NEWDECIMAL:
            length, scale = column.meta >> 8, column.meta & 0xFF
        elif kind in _FIXED or kind in ("enum", "set"):
            length = None
    return ColumnDefinition(
        column.name,
        kind,
        length,
        scale,
        column.unsigned,
        column.charset if kind in CHARACTER else ("binary" if binary else ""),
        column.members,
        column.nullable,
        compressed=compressed,
    )
