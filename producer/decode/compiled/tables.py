"""Table structures as arrays, for the compiled walk."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from producer.decode.compiled import arrays
from producer.decode.compiled.arrays import (
    BODY_AT,
    BODY_SIZE,
    COLUMNS,
    EVENT,
    IMAGES_AT,
    IMAGES_SIZE,
    LEFT_OUT,
    NEXT,
    NOT_HERE,
    POWERS,
    TABLE_FIELDS,
    Tables,
)
from producer.decode.row_decoder import RowDecoder
from producer.decode.rows_events import DELETES, UPDATES, DecodedTable, Variant
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
class GrowingTables:
    """Tables and variants while more are met, by the numbers that they have in the arrays.

    Attributes:
        tables: the fields of each.
        decoders: the structure that its rows are published with; None if it is not replicated.
    """

    decoders: list[RowDecoder | None] = field(default_factory=list)
    tables: list[list[int]] = field(default_factory=list)
    columns: list[list[int]] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)
    texts: bytearray = field(default_factory=bytearray)
    members: list[int] = field(default_factory=list)
    _last: dict[DecodedTable, int] = field(default_factory=dict)

    def add(self, body: bytes, table: DecodedTable | None) -> None:
        """Add a table that a TABLE_MAP's body leads to; None: it is not replicated."""
        fields = [0] * TABLE_FIELDS
        fields[COLUMNS], fields[NEXT] = LEFT_OUT if table is None else NOT_HERE, -1
        if table is not None:
            every = range(len(table.decoder.structure.columns))
            fields = self._table(table.decoder, every, (), every) or fields
            self._last[table] = len(self.tables)
        fields[BODY_AT], fields[BODY_SIZE] = self._text(body), len(body)
        self.tables.append(fields)
        self.decoders.append(None if table is None else table.decoder)

    def add_variant(self, variant: Variant) -> None:
        """Add a variant of a table that is there. What is not decoded of the table is not decoded of it."""
        structure = variant.decoder.structure
        before, after = (
            [number for number in range(len(structure.columns)) if image >> number & 1]
            for image in variant.images
        )
        names = {column.name for column in structure.after_image}
        published = [number for number, column in enumerate(structure.columns) if column.name in names]
        if variant.kind in DELETES:
            first, copied = before, []
        else:
            first = published
            copied = [number for number in published if number not in after]
        fields = self._table(variant.decoder, first, copied, before if variant.kind in UPDATES else [])
        # Without fields it is one that no event is of.
        fields, kind = (fields, variant.kind) if fields else ([0] * TABLE_FIELDS, -1)
        fields[BODY_SIZE], fields[EVENT], fields[NEXT] = -1, kind, -1
        fields[IMAGES_AT], fields[IMAGES_SIZE] = self._text(variant.bitmaps), len(variant.bitmaps)
        self.tables[self._last[variant.table]][NEXT] = len(self.tables)
        self._last[variant.table] = len(self.tables)
        self.tables.append(fields)
        self.decoders.append(variant.decoder)

    def arrays(self) -> Tables:
        """All of them, without their index."""
        count = len(self.tables)
        size = 16
        while size < 2 * count:
            size *= 2
        return Tables(
            np.array(self.tables, np.int64).reshape(count, TABLE_FIELDS),
            np.array(self.columns, np.int64).reshape(len(self.columns), arrays.FIELDS),
            np.array(self.keys, np.int64),
            np.frombuffer(bytes(self.texts) or b"\0", np.uint8),
            np.array(self.members, np.int64),
            _LATIN1,
            POWERS,
            np.full(size, -1, np.int64),
        )

    def _text(self, text: bytes) -> int:
        at = len(self.texts)
        self.texts += text
        return at

    def _table(
        self, decoder: RowDecoder, image: Sequence[int], copied: Collection[int], before: Sequence[int]
    ) -> list[int] | None:
        """The fields of a table or variant, in their order, with none of its TABLE_MAP and of its bitmaps.

        Args:
            image: the numbers of the columns of the after image, or of the only one.
            copied: those of them that the event has in the before image alone.
            before: the numbers of the columns of the before image, of an UPDATE.
        """
        structure, header = decoder.structure, decoder.header
        mark = len(self.columns), len(self.keys)
        images = [image, before] if copied or image != before else [image]
        rank = {number: at for at, number in enumerate(before)}
        documents = [number for number, column in enumerate(structure.columns) if column.code == JSON]
        document_of = {number: at for at, number in enumerate(documents)}
        begins, keys, room = [], [], _ROOM
        for numbers in images:
            begins.append(len(self.columns))
            keys.append(len(self.keys))
            for number in numbers:
                made = self._column(structure.columns[number])
                if made is None:
                    del self.columns[mark[0] :], self.keys[mark[1] :]
                    return None
                is_copied = numbers is image and number in copied
                place = rank.get(number, -1), document_of.get(number, 0)
                self.columns.append([*made[0], int(is_copied), *place])
                room += made[1]
            at = {structure.columns[number].name: rank for rank, number in enumerate(numbers)}
            self.keys += [at[name] for name in structure.key if name in at]
        ops = [self._text(header + op) for op in (b"\x02c\x02", b"\x02u\x02", b"\x02d\x00\x02")]
        name = key_prefix(structure)
        return [
            begins[0], len(image), keys[0], len(structure.key), *ops, len(header) + 3,
            self._text(name), len(name), 0, 0, room + len(header) + 2 * len(name), 6 if documents else 3,
            len(image) - len(copied), begins[-1], len(before), keys[-1], 0, 0, 0, -1, len(documents),
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
