"""From a TABLE_MAP and the first bytes of a rows event to the decoder of its rows.

A table's events nearly all begin with the same bytes, so each beginning is parsed once and remembered.

Row images that lack columns (``binlog_row_image`` other than FULL) have a structure of their own for each set of
columns, so that their schema says what is known. What an UPDATE's after image lacks is as it was before; MySQL logs
every column that changed, MariaDB not those that it computes when they are read (docs/decisions/0018).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, NamedTuple

from producer.decode.row_decoder import Decode, ImageLacksColumns, Images, RowDecoder, SchemaName
from producer.events.table_map import packed_length, table_names
from schemas.binlog import framing
from schemas.ddl.dml import verb_on
from schemas.errors import DecodeError, Where
from schemas.gtid.sets import Flavor
from schemas.structure import TableStructure
from schemas.tables import TableFilter
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
_MAX_HEADERS = 64

LACKING = (
    "what happened to the row is not in the log. SET GLOBAL binlog_row_image = FULL (MariaDB also: FULL_NODUP) upstream"
    " and reconnect its clients; to go on, let a [[skip]] rule pass over this event, and bring the table level by hand"
)

# Of a MariaDB TABLE_MAP's flags, in their second byte. Source: sql/log_event.h, TM_BIT_HAS_TRIGGERS_F.
_HAS_TRIGGERS = 0x40
_MOST_TABLES = 10_000
# Of the tables whose decoders are kept, each of which takes some kilobytes.
_MOST_COLUMNS = 200_000
# Where consumers have their positions.
_CHANNEL_TABLE = ("tailrace", "relay_log_info")


class Variant(NamedTuple):
    """Events of one kind of a table whose images lack columns, and whose heads leave no doubt.

    Attributes:
        kind: the type of these events.
        bitmaps: which columns their images have, as the events have it.
        images: the same.
        decoder: the structure that the rows are published with.
    """

    table: DecodedTable
    kind: int
    bitmaps: bytes
    images: Images
    decoder: RowDecoder


class KnownTables:
    """The tables that a TABLE_MAP's body leads to, until structures change: then there is another object of this class.

    Attributes:
        tables: each body and its table, None if that is not replicated, in the order in which they were met.
        variants: of these tables, in the same order.
    """

    def __init__(self) -> None:
        self.tables: list[tuple[bytes, DecodedTable | None]] = []
        self.variants: list[Variant] = []


class TableIds:
    """Table ids of one file, and the tables of all files so far.

    Args:
        tables: those that are replicated.
        schema_name: what names a structure's schema on the wire.
        structure_of: the structure that a TABLE_MAP's body leads to.
        is_left_out: whether a table's rows are left out.

    Attributes:
        by_id: the table of each id; None for one that is not replicated.
        contents: the TABLE_MAP, from its flags on, that ``by_id`` has the table of; not of all ids.
        with_triggers: ids of tables that have triggers, where the upstream says so.
        saw_channel_table: whether a TABLE_MAP was met of ``tailrace.relay_log_info``, another pipeline's positions.
        known: what was met since structures changed last.
    """

    def __init__(
        self,
        tables: TableFilter,
        schema_name: SchemaName,
        structure_of: Callable[[bytes], TableStructure],
        is_left_out: Callable[[str, str], bool] = lambda db, table: False,
    ) -> None:
        self._tables, self._schema_name, self._structure_of = tables, schema_name, structure_of
        self._is_left_out = is_left_out
        self.by_id: dict[bytes, DecodedTable | None] = {}
        self.contents: dict[bytes, bytes] = {}
        self.with_triggers: set[bytes] = set()
        self.saw_channel_table = False
        self.known = KnownTables()
        self._by_body: dict[bytes, DecodedTable | None] = {}
        self._columns = 0

    def take_saw_channel_table(self) -> bool:
        """``saw_channel_table`` since the last call."""
        saw, self.saw_channel_table = self.saw_channel_table, False
        return saw

    def new_file(self) -> None:
        """Forget the ids, which are a file's own."""
        self.by_id.clear()
        self.contents.clear()
        self.with_triggers.clear()

    def structures_changed(self) -> None:
        """Look each table's structure up anew, behind a DDL."""
        self._forget_bodies()
        self.contents.clear()

    def table_map(self, table_id: bytes, content: bytes, is_passed_over: bool) -> None:
        """Take in a TABLE_MAP other than the last one with this id.

        Args:
            content: its flags and what follows them.
            is_passed_over: whether the rows that follow are not read.
        """
        body = content[2:]
        if body in self._by_body:
            self.by_id[table_id] = self._by_body[body]
        else:
            self.by_id[table_id] = self._learn(body, is_passed_over)
        if body in self._by_body and len(self.contents) < _MOST_TABLES:
            self.contents[table_id] = content
        else:
            self.contents.pop(table_id, None)
        (self.with_triggers.add if content[1] & _HAS_TRIGGERS else self.with_triggers.discard)(table_id)

    def _learn(self, body: bytes, is_passed_over: bool) -> DecodedTable | None:
        """The table of a TABLE_MAP not met before, or None if it is not replicated."""
        db, table, _ = table_names(body)
        if len(self._by_body) > _MOST_TABLES or self._columns > _MOST_COLUMNS:
            self._forget_bodies()
            self._columns = 0
        if not self._tables.allows(db, table):
            self.know(body, None)
            self.saw_channel_table = self.saw_channel_table or (db, table) == _CHANNEL_TABLE
            return None
        if self._is_left_out(db, table):
            self.know(body, None)
            return None
        if is_passed_over:
            # What it says may be older than what is tracked.
            return None
        structure = self._structure_of(body)
        self._columns += len(structure.columns)
        learned = DecodedTable(structure, self._schema_name, self.known.variants.append)
        self.know(body, learned)
        return learned

    def met(self, tables: Mapping[bytes, DecodedTable | None]) -> None:
        """TABLE_MAPs that were decoded elsewhere led to these tables, by their ids."""
        self.by_id.update(tables)
        for table_id in tables:
            self.contents.pop(table_id, None)

    def know(self, body: bytes, table: DecodedTable | None) -> None:
        """A TABLE_MAP's body leads to this table, until structures change; None: to one that is not replicated."""
        self._by_body[body] = table
        self.known.tables.append((body, table))

    def _forget_bodies(self) -> None:
        self._by_body.clear()
        self.known = KnownTables()


class DecodedTable:
    """What a TABLE_MAP leads to: the table's decoder and the forms of its events.

    Args:
        note: is given each variant when it is met.
    """

    def __init__(
        self,
        structure: TableStructure,
        schema_name: SchemaName = fingerprint_of,
        note: Callable[[Variant], None] = lambda variant: None,
    ) -> None:
        self.decoder = RowDecoder(structure, schema_name)
        self.forms = _Forms(self)
        self.note = note
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


class _Forms(dict[int, "RowsEventForm"]):
    """One table's forms by kind of event, each made when it is first met."""

    def __init__(self, table: DecodedTable) -> None:
        super().__init__()
        self._table = table

    def __missing__(self, kind: int) -> RowsEventForm:
        form = self[kind] = RowsEventForm(self._table, kind)
        return form


class RowsEventForm:
    """One kind of rows event of one table.

    Attributes:
        column: where its rows are counted: 0 inserts, 1 updates, 2 deletes.
        offset: from an event's begin to its first row image, if it has no extra data.
        beginning: of the last event whose beginning has this size, behind its table id.
        header: what that comes to; None before the first.
    """

    def __init__(self, table: DecodedTable, kind: int) -> None:
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
        self.header: RowsEventHeader | None = None
        self._headers: dict[bytes, RowsEventHeader] = {}
        self._variants: set[bytes] = set()

    @property
    def name(self) -> tuple[str, str]:
        """Schema and table."""
        structure = self._table.decoder.structure
        return structure.db, structure.table

    def parse(self, data: bytes, i: int) -> tuple[RowsEventHeader, int]:
        """The beginning of the event at ``i``, which is not like the last one's, and where the first image begins.

        Raises:
            DecodeError: TR412, another number of columns than in TABLE_MAP.
            ImageLacksColumns: TR413, columns are missing that are needed to identify or reconstruct the row.
        """
        begin = p = i + FLAGS_AT
        beginning = data[begin : i + self.offset]
        if (known := self._headers.get(beginning)) is not None:
            self.beginning, self.header = beginning, known
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
        logged = data[p - self._images * size : p]
        lacks = not set(images) <= {0, full}
        if lacks and doubt is None and logged not in self._variants:
            self._variants.add(logged)
            self._table.note(Variant(self._table, self._kind, logged, images, decoder))
        table_source, table_source_moved = (
            encode_long(number) + self._names for number in (flags, flags | KEY_CHANGE)
        )
        header = RowsEventHeader(
            table_source, table_source_moved, decode, decoder, doubt, decoder.bytes_at_a_time
        )
        if p - i == self.offset and len(self._headers) < _MAX_HEADERS:
            self._headers[beginning] = self.header = header
            self.beginning = beginning
        return header, p

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
        """The images with what follows from each other. Raises ImageLacksColumns if that is not enough."""
        key = sum(1 << i for i, column in enumerate(structure.columns) if column.name in structure.key)
        needed = key or (1 << self._width) - 1
        if self.column == 0:
            if not logged.after:
                raise _lacks(structure, "it has no columns, so the number of rows is unknown")
            needed, image = key, logged.after
        else:
            image = logged.before
        if lacking := [c.name for i, c in enumerate(structure.columns) if (needed & ~image) >> i & 1]:
            what = "is part of the key" if key else "is needed because the table has no key"
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


class RowsEventHeader(NamedTuple):
    """Everything derived from the head of a rows event.

    Attributes:
        table_source: ``source.flags`` to ``source.table`` of an ordinary row, as Avro bytes.
        table_source_moved: the same of half a key change.
        decode: the generated decoder of these images.
        decoder: the structure that the rows are published with.
        doubt: check needed for each event, None if none.
        bytes_at_a_time: the decoder's.
    """

    table_source: bytes
    table_source_moved: bytes
    decode: Decode
    decoder: RowDecoder
    doubt: Doubt | None
    bytes_at_a_time: int


class Doubt(Enum):
    """What must be checked in each event because the head alone does not determine it."""

    #: a document may come as a diff of one that is not in the before image
    DOCUMENT = "document"
    #: MariaDB logs REPLACE and INSERT … ON DUPLICATE KEY UPDATE as an UPDATE whose after image lacks columns that
    #: took their defaults, or that a trigger set
    STATEMENT = "statement"
    #: the same, and the after image has a column of the key, as nearly every one of these has
    STATEMENT_WITH_KEY = "statement with key"


def check_doubt(
    header: RowsEventHeader,
    data: bytes,
    p: int,
    end: int,
    flavor: Flavor,
    statement: bytes,
    *,
    has_triggers: bool,
) -> None:
    """Check an event whose head leaves a doubt; raise if it cannot be decoded.

    Args:
        p: where its first row image begins in ``data``, and ``end`` where its last one ends.
        statement: the text of the statement that it belongs to; nothing if the upstream does not log it.
        has_triggers: whether the upstream says that the table has triggers.

    Raises:
        ImageLacksColumns: TR413.
    """
    structure = header.decoder.structure
    if header.doubt is Doubt.DOCUMENT:
        nobody: Any = {}
        header.decode(data, p, end, 0, b"", b"", b"", b"", nobody.get, nobody.get, nobody)
    elif flavor == "mariadb":
        verb = verb_on(statement.decode(errors="replace"), structure.db, structure.table, flavor)
        with_key = header.doubt is Doubt.STATEMENT_WITH_KEY
        if verb == "REPLACE" or (verb == "INSERT" and has_triggers) or (verb is None and with_key):
            raise _update_lacks(verb)


def _update_lacks(verb: str | None) -> ImageLacksColumns:
    """The error for an UPDATE of MariaDB's whose after image may lack columns that changed.

    Args:
        verb: of the statement, None if nobody knows it.
    """
    why = {
        "REPLACE": "MariaDB does not log what a REPLACE sets to its default",
        "INSERT": "MariaDB does not log what triggers set in INSERT ... ON DUPLICATE KEY UPDATE",
    }.get(
        verb or "",
        "it may be a REPLACE, and MariaDB does not log columns that REPLACE sets to their defaults",
    )
    return ImageLacksColumns("TR413", f"a row image lacks what is needed: {why}")


def _columns(structure: TableStructure, image: int) -> tuple[str, ...] | None:
    if image == (1 << len(structure.columns)) - 1:
        return None
    return tuple(column.name for i, column in enumerate(structure.columns) if image >> i & 1)


def _lacks(structure: TableStructure, why: str) -> ImageLacksColumns:
    return ImageLacksColumns(
        "TR413", f"a row image lacks what is needed: {why}", where=Where(table=structure.name), hint=LACKING
    )
