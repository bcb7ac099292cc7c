"""Where a rows event begins: its flags and bitmaps, up to the first row image.

A table's events nearly all begin with the same bytes, so each beginning is parsed once and remembered.

Row images that lack columns (``binlog_row_image`` other than FULL) have a structure of their own for each set of
columns, so that their schema says what is known. What an UPDATE's after image lacks is as it was before; MySQL logs
every column that changed, MariaDB not those that it computes when they are read (docs/decisions/0018).
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import Any, NamedTuple

from producer.decode.row_decoder import Decode, Images, RowDecoder, SchemaName
from producer.events.table_map import packed_length
from schemas.binlog import framing
from schemas.ddl.dml import verb_on
from schemas.errors import DecodeError, Where
from schemas.gtid.sets import Flavor
from schemas.structure import TableStructure
from schemas.types.json_type import JSON
from schemas.varint import encode_bytes, encode_long
from schemas.wire.avro_schema import KEY_CHANGE, fingerprint_of

WRITES = frozenset({framing.WRITE_ROWS, framing.WRITE_ROWS_V1})
UPDATES = frozenset({framing.UPDATE_ROWS, framing.UPDATE_ROWS_V1, framing.PARTIAL_UPDATE_ROWS})
DELETES = frozenset({framing.DELETE_ROWS, framing.DELETE_ROWS_V1})
ROWS = WRITES | UPDATES | DELETES
_V1 = frozenset({framing.WRITE_ROWS_V1, framing.UPDATE_ROWS_V1, framing.DELETE_ROWS_V1})

#: behind the event's header and table id
FLAGS_AT = framing.HEADER_SIZE + 6
_MAX_HEADS = 64

LACKING = (
    "what happened to the row is not in the log. SET GLOBAL binlog_row_image = FULL (MariaDB also: FULL_NODUP) upstream"
    " and reconnect its clients; to go on, let a [[skip]] rule pass over this event, and bring the table level by hand"
)


class Doubt(Enum):
    """What has to be looked at in each event that begins so, since its beginning does not tell."""

    #: a document may come as a diff of one that is not in the before image
    DOCUMENT = "document"
    #: MariaDB logs REPLACE and INSERT … ON DUPLICATE KEY UPDATE as an UPDATE whose after image lacks columns that
    #: took their defaults, or that a trigger set
    STATEMENT = "statement"
    #: the same, and the after image has a column of the key, as nearly every one of these has
    STATEMENT_WITH_KEY = "statement with key"


class RowsHead(NamedTuple):
    """What the beginning of a rows event comes to.

    Attributes:
        ordinary: ``source.flags`` to ``source.table`` of an ordinary row, as Avro bytes.
        moved: the same of half a key change.
        decode: the generated decoder of these images.
        decoder: the structure that the rows are published with.
        doubt: what the event itself has to be asked.
        portion: the decoder's.
    """

    ordinary: bytes
    moved: bytes
    decode: Decode
    decoder: RowDecoder
    doubt: Doubt | None
    portion: int


class RowsForm:
    """One kind of rows event of one table.

    Attributes:
        column: where its rows are counted: 0 inserts, 1 updates, 2 deletes.
        offset: from an event's begin to its first row image, if it has no extra data.
        beginning: of the last event whose beginning has this size, behind its table id.
        head: what that comes to; None before the first.
    """

    def __init__(self, table: RowsTable, kind: int) -> None:
        self._table, self._kind = table, kind
        structure = table.decoder.structure
        self._names = encode_bytes(structure.db.encode()) + encode_bytes(structure.table.encode())
        self._width = len(structure.columns)
        self._images = 2 if kind in UPDATES else 1
        self.column = 0 if kind in WRITES else 1 if kind in UPDATES else 2
        width_size = 1 if self._width < 251 else 3
        extra_size = 0 if kind in _V1 else 2
        self.offset = FLAGS_AT + 2 + extra_size + width_size + self._images * ((self._width + 7) // 8)
        self.beginning = b""
        self.head: RowsHead | None = None
        self._heads: dict[bytes, RowsHead] = {}

    @property
    def name(self) -> tuple[str, str]:
        """Schema and table."""
        structure = self._table.decoder.structure
        return structure.db, structure.table

    def parse(self, data: bytes, i: int) -> tuple[RowsHead, int]:
        """The beginning of the event at ``i``, which is not like the last one's, and where the first image begins.

        Raises:
            DecodeError: TR412 another number of columns than in TABLE_MAP; TR413 columns are missing without which
                nobody knows what happened to which row.
        """
        begin = p = i + FLAGS_AT
        beginning = data[begin : i + self.offset]
        if (known := self._heads.get(beginning)) is not None:
            self.beginning, self.head = beginning, known
            return known, i + self.offset
        flags = data[p] | data[p + 1] << 8
        p += 2 if self._kind in _V1 else 2 + (data[p + 2] | data[p + 3] << 8)
        width, p = packed_length(data, p)
        if width != self._width:
            raise DecodeError(
                "TR412",
                f"{width} columns in the rows, {self._width} in TABLE_MAP",
                where=Where(table=self._table.decoder.structure.name),
            )
        size, full = (width + 7) // 8, (1 << width) - 1
        bitmaps = [
            int.from_bytes(data[p + n * size : p + n * size + size], "little") & full for n in range(2)
        ]
        images = Images(
            before=0 if self._kind in WRITES else bitmaps[0],
            after=0 if self._kind in DELETES else bitmaps[self._images - 1],
        )
        p += self._images * size
        decode, decoder, doubt = self._decoding(images)
        ordinary, moved = (encode_long(number) + self._names for number in (flags, flags | KEY_CHANGE))
        head = RowsHead(ordinary, moved, decode, decoder, doubt, decoder.portion)
        if p - i == self.offset and len(self._heads) < _MAX_HEADS:
            self._heads[beginning] = self.head = head
            self.beginning = beginning
        return head, p

    def _decoding(self, logged: Images) -> tuple[Decode, RowDecoder, Doubt | None]:
        structure = self._table.decoder.structure
        known = self._known(structure, logged)
        kind = ("write", "update", "delete")[self.column]
        diffs = self._kind == framing.PARTIAL_UPDATE_ROWS
        decoder = self._table.decoder_of(*(_columns(structure, side) for side in known))
        full = (1 << self._width) - 1
        if set(logged) <= {0, full} and not diffs:
            decode: Decode = getattr(decoder, kind)
            return decode, decoder, None
        return decoder.decode(kind, logged, diffs), decoder, self._doubt(structure, logged)

    def _known(self, structure: TableStructure, logged: Images) -> Images:
        """The images with what follows from each other. Raises DecodeError TR413 if that is not enough."""
        key = sum(1 << i for i, column in enumerate(structure.columns) if column.name in structure.key)
        needed = key or (1 << self._width) - 1
        if self.column == 0:
            if not logged.after:
                raise _lacks(structure, "it has no columns at all, so nobody knows how many rows there were")
            needed, image = key, logged.after
        else:
            image = logged.before
        if lacking := [c.name for i, c in enumerate(structure.columns) if (needed & ~image) >> i & 1]:
            what = "is of the key" if key else "would be needed, as the table has no key"
            raise _lacks(structure, f"it lacks the column {lacking[0]}, which {what}")
        if self.column != 1:
            return logged
        if not logged.after:
            raise _lacks(structure, "it does not say what an UPDATE changed")
        # What MariaDB computes when it is read is not logged again when it changes.
        return Images(logged.before, logged.after | (key if self._kind in _V1 else logged.before))

    def _doubt(self, structure: TableStructure, logged: Images) -> Doubt | None:
        if self._kind == framing.PARTIAL_UPDATE_ROWS:
            unknown = logged.after & ~logged.before
            documents = [i for i, column in enumerate(structure.columns) if column.code == JSON]
            return Doubt.DOCUMENT if any(unknown >> i & 1 for i in documents) else None
        if self.column != 1 or self._kind not in _V1 or logged.after == (1 << self._width) - 1:
            return None
        after = {c.name for i, c in enumerate(structure.columns) if logged.after >> i & 1}
        return Doubt.STATEMENT_WITH_KEY if after & set(structure.key) else Doubt.STATEMENT


def check_doubt(
    head: RowsHead, data: bytes, p: int, end: int, flavor: Flavor, statement: bytes, *, has_triggers: bool
) -> None:
    """Refuse an event, of those whose beginning leaves a doubt, that cannot be taken in.

    Args:
        p: where its first row image begins in ``data``, and ``end`` where its last one ends.
        statement: the text of the statement that it belongs to; nothing if the upstream does not log it.
        has_triggers: whether the upstream says that the table has triggers.

    Raises:
        DecodeError: TR413.
    """
    structure = head.decoder.structure
    if head.doubt is Doubt.DOCUMENT:
        nobody: Any = {}
        head.decode(data, p, end, 0, b"", b"", b"", b"", nobody.get, nobody.get, nobody)
    elif flavor == "mariadb":
        verb = verb_on(statement.decode(errors="replace"), structure.db, structure.table, flavor)
        with_key = head.doubt is Doubt.STATEMENT_WITH_KEY
        if verb == "REPLACE" or (verb == "INSERT" and has_triggers) or (verb is None and with_key):
            raise _update_lacks(verb)


def _update_lacks(verb: str | None) -> DecodeError:
    """The error for an UPDATE of MariaDB's whose after image may lack columns that changed.

    Args:
        verb: of the statement, None if nobody knows it.
    """
    why = {
        "REPLACE": "MariaDB does not log what a REPLACE sets to its default",
        "INSERT": "MariaDB does not log what triggers set in INSERT ... ON DUPLICATE KEY UPDATE",
    }.get(verb or "", "it may be of a REPLACE, of which MariaDB does not log what it sets to its default")
    return DecodeError("TR413", f"a row image lacks what is needed: {why}")


def _columns(structure: TableStructure, image: int) -> tuple[str, ...] | None:
    if image == (1 << len(structure.columns)) - 1:
        return None
    return tuple(column.name for i, column in enumerate(structure.columns) if image >> i & 1)


def _lacks(structure: TableStructure, why: str) -> DecodeError:
    return DecodeError(
        "TR413", f"a row image lacks what is needed: {why}", where=Where(table=structure.name), hint=LACKING
    )


class _Forms(dict[int, RowsForm]):
    """One table's forms by kind of event, each made when it is first met."""

    def __init__(self, table: RowsTable) -> None:
        super().__init__()
        self._table = table

    def __missing__(self, kind: int) -> RowsForm:
        form = self[kind] = RowsForm(self._table, kind)
        return form


class RowsTable:
    """What a TABLE_MAP leads to: the table's decoder and the forms of its events."""

    def __init__(self, structure: TableStructure, schema_name: SchemaName = fingerprint_of) -> None:
        self.decoder = RowDecoder(structure, schema_name)
        self.forms = _Forms(self)
        self._schema_name = schema_name
        self._others: dict[TableStructure, RowDecoder] = {}

    def decoder_of(self, before: tuple[str, ...] | None, after: tuple[str, ...] | None) -> RowDecoder:
        """The decoder of rows whose images have these columns; None: all of them, ``()``: there is no such image."""
        if not (before or after):
            return self.decoder
        structure = replace(self.decoder.structure, before_columns=before, after_columns=after)
        found = self._others.get(structure)
        if found is None:
            found = self._others[structure] = RowDecoder(structure, self._schema_name)
        return found
