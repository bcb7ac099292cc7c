"""Table structures as arrays, for the compiled walk."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from producer.decode.compiled import arrays
from producer.decode.compiled.arrays import (
    BODY_AT,
    BODY_SIZE,
    COLUMNS,
    LEFT_OUT,
    NOT_HERE,
    POWERS,
    TABLE_FIELDS,
    Tables,
)
from producer.decode.rows_events import DecodedTable, KnownTables
from schemas.charsets.text import text_of
from schemas.compiled.types import Bytes
from schemas.structure import Column
from schemas.types import codec_of, union_tags
from schemas.types.binary import BIT, COMPRESSED, STRING, Binary, length_bytes
from schemas.types.decimals import NEWDECIMAL, packed_size
from schemas.types.enum_set import ENUM, SET, error_value, member_texts
from schemas.types.floating import DOUBLE, FLOAT
from schemas.types.integer import INT24, LONG, LONGLONG, SHORT, TINY
from schemas.types.json_type import JSON
from schemas.types.temporal import DATE, DATETIME2, NEWDATE, TIME2, TIMESTAMP2, YEAR
from schemas.types.text import Text, conversion
from schemas.wire.rows import key_prefix

_INTEGERS = {TINY: 1, SHORT: 2, INT24: 3, LONG: 4, LONGLONG: 8}
_FLOATS = {FLOAT: 4, DOUBLE: 8}
_TIMES = {
    DATE: arrays.DATE,
    NEWDATE: arrays.DATE,
    YEAR: arrays.YEAR,
    TIME2: arrays.TIME,
    DATETIME2: arrays.DATETIME,
    TIMESTAMP2: arrays.TIMESTAMP,
}
_TEXTS = {
    "utf8_text": arrays.UTF8,
    "latin1_text": arrays.LATIN1,
    "ascii_based_text": arrays.ASCII_BASED,
    "foreign_text": arrays.FOREIGN,
}
# Bytes that a value takes at most, with its tag and its length, beside three for each of its own; of members of ENUM
# and SET and of zero bytes behind BINARY come more.
_ROOM = 40


@dataclass
class _Arrays:
    """The arrays while they grow."""

    tables: list[list[int]] = field(default_factory=list)
    columns: list[list[int]] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)
    texts: bytearray = field(default_factory=bytearray)
    members: list[int] = field(default_factory=list)

    def add(self, body: bytes, table: DecodedTable | None) -> None:
        """Add a table that a TABLE_MAP's body leads to; None: it is not replicated."""
        fields = [0] * TABLE_FIELDS
        made = None if table is None else self._table(table)
        if made is None:
            fields[COLUMNS] = LEFT_OUT if table is None else NOT_HERE
        else:
            fields[: len(made)] = made
        fields[BODY_AT], fields[BODY_SIZE] = self._text(body), len(body)
        self.tables.append(fields)

    def _text(self, text: bytes) -> int:
        at = len(self.texts)
        self.texts += text
        return at

    def _table(self, table: DecodedTable) -> list[int] | None:
        """The fields of a table, in their order, with none of its TABLE_MAP."""
        structure, header = table.decoder.structure, table.decoder.header
        begin, first_key, room = len(self.columns), len(self.keys), _ROOM
        for column in structure.columns:
            made = self._column(column)
            if made is None:
                del self.columns[begin:]
                return None
            self.columns.append(made[0])
            room += made[1]
        number_of = {column.name: number for number, column in enumerate(structure.columns)}
        self.keys += [number_of[name] for name in structure.key]
        has_documents = any(column.code == JSON for column in structure.columns)
        ops = [self._text(header + op) for op in (b"\x02c\x02", b"\x02u\x02", b"\x02d\x00\x02")]
        name = key_prefix(structure)
        return [
            begin, len(structure.columns), first_key, len(structure.key), *ops, len(header) + 3,
            self._text(name), len(name), 0, 0, room + len(header) + 2 * len(name),
            6 if has_documents else 3,
        ]  # fmt: skip

    def _column(self, column: Column) -> tuple[list[int], int] | None:
        """A column's fields, and the bytes that its value takes at most; None if it is not decoded here."""
        tags = [tag[0] if tag else -1 for tag in union_tags(column)]
        kind = self._kind(column)
        if kind is None:
            return None
        tag, bytes_tag = tags[0], tags[-1]
        return [*kind[:4], tag, bytes_tag, int(column.nullable)], _ROOM + kind[4]

    def _kind(self, column: Column) -> tuple[int, int, int, int, int] | None:
        """The first fields, and the room beside ``_ROOM``."""
        code, codec = column.code, codec_of(column)
        if size := _INTEGERS.get(code):
            is_long = size == 8 and column.unsigned
            kind = arrays.UNSIGNED_LONG if is_long else arrays.UNSIGNED if column.unsigned else arrays.SIGNED
            return kind, size, 0, 0, 0
        if size := _FLOATS.get(code):
            return arrays.FIXED, size, 0, 0, 0
        if code == BIT:
            return arrays.BITS, (column.meta + 7) // 8, 0, 0, 0
        if code == NEWDECIMAL:
            precision, scale = column.meta >> 8, column.meta & 0xFF
            return arrays.DECIMAL, precision, scale, packed_size(precision, scale), 0
        if code in _TIMES:
            return _TIMES[code], column.meta, 0, 0, 0
        if code in (ENUM, SET):
            return self._members(column)
        if code == JSON:
            return arrays.JSON, column.meta, 0, 0, 0
        if code in COMPRESSED or not isinstance(codec, (Text, Binary)):
            return None
        if isinstance(codec, Text):
            return _TEXTS[conversion(column.charset)], length_bytes(column), 0, 0, 0
        padded = column.meta if code == STRING else 0
        return arrays.BINARY, length_bytes(column), padded, 0, padded

    def _members(self, column: Column) -> tuple[int, int, int, int, int]:
        texts = [text.encode() for text in member_texts(column)]
        kind, count = arrays.SET, len(texts)
        if column.code == ENUM:
            kind, texts = arrays.ENUM, [error_value(column).encode(), *texts]
        first = len(self.members)
        for text in texts:
            self.members.append(self._text(text))
        self.members.append(len(self.texts))
        sizes = [len(text) for text in texts]
        room = max(sizes) if kind == arrays.ENUM else sum(sizes) + count
        return kind, column.meta, first, count, room


def _latin1() -> Bytes:
    forms = np.zeros((256, 4), np.uint8)
    for byte in range(256):
        text = text_of(bytes((byte,)), "latin1").encode()
        forms[byte, 0] = len(text)
        forms[byte, 1 : 1 + len(text)] = list(text)
    return forms


_LATIN1 = _latin1()


def table_arrays(known: KnownTables) -> Tables:
    """The tables that are known now, without their index."""
    made = _Arrays()
    for body, table in known.tables:
        made.add(body, table)
    count = len(made.tables)
    size = 16
    while size < 2 * count:
        size *= 2
    return Tables(
        np.array(made.tables, np.int64).reshape(count, TABLE_FIELDS),
        np.array(made.columns, np.int64).reshape(len(made.columns), arrays.FIELDS),
        np.array(made.keys, np.int64),
        np.frombuffer(bytes(made.texts) or b"\0", np.uint8),
        np.array(made.members, np.int64),
        _LATIN1,
        POWERS,
        np.full(size, -1, np.int64),
    )
