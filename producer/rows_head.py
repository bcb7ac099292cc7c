"""Where a rows event begins: its flags and bitmaps, up to the first row image.

A table's events nearly all begin with the same bytes, so each beginning is parsed once and remembered.
"""

from __future__ import annotations

from producer.row_decoder import Decode, RowDecoder, SchemaName, partial_update_decoder
from producer.table_map import packed_length
from schemas import binlog
from schemas.avro_schema import KEY_CHANGE, fingerprint_of
from schemas.errors import DecodeError, Where
from schemas.structure import TableStructure
from schemas.varint import encode_bytes, encode_long

WRITES = frozenset({binlog.WRITE_ROWS, binlog.WRITE_ROWS_V1})
UPDATES = frozenset({binlog.UPDATE_ROWS, binlog.UPDATE_ROWS_V1, binlog.PARTIAL_UPDATE_ROWS})
DELETES = frozenset({binlog.DELETE_ROWS, binlog.DELETE_ROWS_V1})
ROWS = WRITES | UPDATES | DELETES
_V1 = frozenset({binlog.WRITE_ROWS_V1, binlog.UPDATE_ROWS_V1, binlog.DELETE_ROWS_V1})

#: behind the event's header and table id
FLAGS_AT = binlog.HEADER_SIZE + 6
_MAX_HEADS = 64


class RowsForm:
    """One kind of rows event of one table.

    Attributes:
        decode: the generated decoder of its rows.
        column: where its rows are counted: 0 inserts, 1 updates, 2 deletes.
        offset: from an event's begin to its first row image, if it has no extra data.
        heads: for beginnings of this size: ``source.flags`` to ``source.table`` of an ordinary row, and of half
            a key change, as Avro bytes.
    """

    def __init__(self, decoder: RowDecoder, kind: int) -> None:
        structure = decoder.structure
        self._structure, self._kind = structure, kind
        self._names = encode_bytes(structure.db.encode()) + encode_bytes(structure.table.encode())
        self._width = len(structure.columns)
        self._images = 2 if kind in UPDATES else 1
        self.decode: Decode
        if kind in WRITES:
            self.decode, self.column = decoder.write, 0
        elif kind == binlog.PARTIAL_UPDATE_ROWS:
            self.decode, self.column = partial_update_decoder(decoder), 1
        elif kind in UPDATES:
            self.decode, self.column = decoder.update, 1
        else:
            self.decode, self.column = decoder.delete, 2
        width_size = 1 if self._width < 251 else 3
        extra_size = 0 if kind in _V1 else 2
        self.offset = FLAGS_AT + 2 + extra_size + width_size + self._images * ((self._width + 7) // 8)
        self.heads: dict[bytes, tuple[bytes, bytes]] = {}

    def parse(self, data: bytes, i: int) -> tuple[tuple[bytes, bytes], int]:
        """A beginning not met before, of the event at ``i``: as in ``heads``, and where the first image begins.

        Raises:
            DecodeError: TR412 another number of columns than in TABLE_MAP; TR413 columns are missing.
        """
        begin = p = i + FLAGS_AT
        flags = data[p] | data[p + 1] << 8
        p += 2 if self._kind in _V1 else 2 + (data[p + 2] | data[p + 3] << 8)
        width, p = packed_length(data, p)
        where = Where(table=self._structure.name)
        if width != self._width:
            raise DecodeError(
                "TR412", f"{width} columns in the rows, {self._width} in TABLE_MAP", where=where
            )
        size, full = (width + 7) // 8, (1 << width) - 1
        for _ in range(self._images):
            if int.from_bytes(data[p : p + size], "little") & full != full:
                raise DecodeError(
                    "TR413",
                    "a row image lacks columns (binlog_row_image is not FULL)",
                    where=where,
                    hint="SET GLOBAL binlog_row_image = FULL upstream and reconnect its clients",
                )
            p += size
        head = (encode_long(flags) + self._names, encode_long(flags | KEY_CHANGE) + self._names)
        if p - i == self.offset and len(self.heads) < _MAX_HEADS:
            self.heads[data[begin:p]] = head
        return head, p


class _Forms(dict[int, RowsForm]):
    """One table's forms by kind of event, each made when it is first met."""

    def __init__(self, decoder: RowDecoder) -> None:
        super().__init__()
        self._decoder = decoder

    def __missing__(self, kind: int) -> RowsForm:
        form = self[kind] = RowsForm(self._decoder, kind)
        return form


class RowsTable:
    """What a TABLE_MAP leads to: the table's decoder and the forms of its events."""

    def __init__(self, structure: TableStructure, schema_name: SchemaName = fingerprint_of) -> None:
        self.decoder = RowDecoder(structure, schema_name)
        self.forms = _Forms(self.decoder)
