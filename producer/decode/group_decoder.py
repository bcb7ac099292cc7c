"""Decodes the plain groups of a block, without anything that came before: what another process may do ahead.

A group is plain if it has a GTID and is made of rows of known tables alone. Every other one is left out, be it for a
statement, an XA transaction, an unknown event, what a rule is needed for, or an error. The publisher decodes those
itself, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from producer.decode.decode_rules import DecodeRules
from producer.decode.decoded_groups import BlockToDecode, DecodedGroups
from producer.decode.event_decoder import EventDecoder
from producer.decode.nested_events import PreparedTransactions
from producer.decode.open_group import GTID_EVENTS, DecodeState, Groups, OpenGroup
from producer.decode.row_decoder import Append, Decode, Images, RowDecoder, SchemaName
from producer.decode.rows_events import DecodedTable, TableIds
from producer.epochs.open_epoch import EpochLimits, Headers, OpenEpoch, Records
from producer.events.compressed import COMPRESSED_ROWS
from producer.structures.store import Structures
from relay_store.layout.directory import RelayPosition
from relay_store.read.reader import RelayBlock
from schemas.binlog import framing
from schemas.gtid.sets import Flavor, GtidTracker, empty_gtid_set
from schemas.structure import TableStructure
from schemas.tables import TableFilter
from schemas.wire.avro_schema import fingerprint_of
from schemas.wire.epoch import PreparedTransaction

# Of one block. A transaction of a few kilobytes may unpack to gigabytes, and two bytes may be a row.
_MOST_UNPACKED = 16 << 20  # bytes
_MOST_ROWS = 200_000
_MOST_TABLES = 1000
_NEVER = EpochLimits(max_rows=1 << 60, max_bytes=1 << 60, max_delay=1e18, heartbeat=1e18)
_KINDS = ("write", "update", "delete")


class _NotPlain(Exception):
    """The open group is not plain."""


class _TooMuch(Exception):
    """The block's rows take too much memory; the rest of it is left out."""


class GroupDecoder:
    """Decodes blocks, each without the ones before.

    Args:
        by_fingerprint: whether fingerprints name schemas on the wire, and not ids that a registry gave.
    """

    def __init__(self, flavor: Flavor, *, by_fingerprint: bool) -> None:
        self._flavor, self._by_fingerprint = flavor, by_fingerprint
        self._known_id = 0
        self._names: dict[TableStructure, bytes] = {}
        self._made: dict[tuple[str, bytes], DecodedTable] = {}
        self._numbers: dict[TableStructure, int] = {}
        self._walk = _Walk(flavor, self._numbers)

    def decode(self, block: BlockToDecode) -> DecodedGroups:
        """The block's plain groups."""
        self._learn(block)
        return self._walk.decode(block)

    def _learn(self, block: BlockToDecode) -> None:
        tables = self._walk.tables
        if block.known_id != self._known_id:
            self._known_id = block.known_id
            self._numbers.clear()
            tables.structures_changed()
            if len(self._made) > _MOST_TABLES:
                self._made.clear()
                self._names.clear()
        for number, (body, text, name) in enumerate(block.tables, block.known_before):
            if text is None or name is None:
                tables.know(body, None)
                continue
            table = self._made.get((text, name))
            if table is None:
                structure = TableStructure.from_json(text)
                self._names[structure] = name
                make = partial(_RowDecoder, tails=self._walk.tails)
                table = self._made[text, name] = DecodedTable(structure, self._schema_name, make)
            self._numbers[table.decoder.structure] = number
            tables.know(body, table)

    def _schema_name(self, structure: TableStructure) -> bytes:
        name = self._names.get(structure)
        if name is not None:
            return name
        if not self._by_fingerprint:
            raise _NotPlain
        return fingerprint_of(structure)


class _Tails:
    """Notes what is decoded, in the groups that are being made."""

    def __init__(self, numbers: dict[TableStructure, int]) -> None:
        self.made = DecodedGroups()
        self._numbers = numbers
        self._seen: dict[RowDecoder, int] = {}

    def begin(self) -> None:
        """A block begins."""
        self.made = DecodedGroups()
        self._seen.clear()

    def note(self, decoder: RowDecoder, column: int, tail: bytes, rows: int) -> None:
        """So many rows of an event were decoded, which have this tail."""
        number = self._seen.get(decoder)
        if number is None:
            structure = decoder.structure
            whole = replace(structure, before_columns=None, after_columns=None)
            number = self._seen[decoder] = len(self._seen)
            self.made.tables.append((self._numbers[whole], structure.before_columns, structure.after_columns))
        made = self.made
        made.tails.append(tail)
        made.counts.append(rows)
        made.kinds.append(3 * number + column)


class _RowDecoder(RowDecoder):
    """Makes values without their source, which it notes once for each event."""

    def __init__(self, structure: TableStructure, schema_name: SchemaName, tails: _Tails) -> None:
        super().__init__(structure, schema_name)
        self._tails = tails

    def decode(self, kind: str, images: Images, diffs: bool = False) -> Decode:
        """As of ``RowDecoder``, whose ``epoch_number`` is not used."""
        rows, note, column = self._compiled(kind, images, diffs, ""), self._tails.note, _KINDS.index(kind)

        def decode(
            b: bytes,
            p: int,
            end: int,
            seq: int,
            epoch_number: bytes,
            table_source: bytes,
            table_source_moved: bytes,
            event_source: bytes,
            add_key: Append,
            add_value: Append,
            headers: dict[int, Headers],
        ) -> tuple[int, int]:
            moved = len(headers)
            behind, p = rows(b, p, end, seq, b"", b"", b"", b"", add_key, add_value, headers)
            if not event_source:
                return behind, p  # the event is only checked
            if len(headers) == moved:
                note(self, column, table_source + event_source, behind - seq)
            else:
                for number in range(seq, behind):
                    half = number in headers
                    note(self, column, (table_source_moved if half else table_source) + event_source, 1)
            return behind, p

        return decode


class _KnownTables(TableIds):
    def _learn(self, body: bytes, is_passed_over: bool) -> DecodedTable | None:
        raise _NotPlain


class _NoPrepared(PreparedTransactions):
    def add(self, xid: str, gtid: str | None, begin: RelayPosition, end: int) -> None:
        raise _NotPlain


def _read_no_prepared(prepared: PreparedTransaction) -> Iterable[RelayBlock]:
    raise _NotPlain


class _Rows(OpenEpoch):
    """All rows of a block."""

    def hold(self, size: int) -> Iterator[Records]:
        self.held += size
        if self.held > _MOST_UNPACKED:
            raise _TooMuch
        return iter(())

    def hand_over_all(self) -> Records:
        """None: they stay here."""
        if len(self.records) > _MOST_ROWS:
            raise _TooMuch
        return Records()


class _PlainGroups(Groups):
    """Notes the groups of a block."""

    def __init__(
        self, tracker: GtidTracker, block: BlockToDecode, state: DecodeState, made: DecodedGroups
    ) -> None:
        super().__init__(tracker, None)
        self._block, self._state, self._made = block, state, made

    def begin_mysql(self, data: bytes, i: int, pos: int, first: int) -> None:
        self._check(not self.scanner.in_group)
        super().begin_mysql(data, i, pos, first)
        self._check(not self.transaction.is_passed_over)

    def begin(self, kind: int, event: bytes, has_checksum: bool, pos: int, first: int) -> None:
        self._check(not self.scanner.in_group)
        super().begin(kind, event, has_checksum, pos, first)
        self._check(not self.transaction.is_passed_over)

    def end(self, first: int) -> OpenGroup:
        ended, scanner, made = super().end(first), self.scanner, self._made
        if ended.begin is None or ended.gtid is None or scanner.source is None:
            raise _NotPlain
        self._check(not (ended.is_xa or ended.skipped or ended.savepoints))
        begin, last = ended.begin - self._block.pos, self._state.event_pos - self._block.pos
        end = last + framing.header(self._block.data, last).size
        made.groups.append(
            (begin, end, scanner.source, scanner.number, scanner.server_id, ended.gtid, ended.commit_ms, first,
             len(made.tails))
        )  # fmt: skip
        return ended

    def _check(self, plain: bool) -> None:
        if not plain:
            raise _NotPlain


class _Walk(EventDecoder):
    """The publisher's own walk over events, which stops at whatever is not plain.

    Attributes:
        tables: those that are known.
        tails: what is decoded of the block.
    """

    def __init__(self, flavor: Flavor, numbers: dict[TableStructure, int]) -> None:
        tables = TableFilter()
        super().__init__(
            DecodeRules(flavor, tables, _NEVER),
            _Rows(0, 0.0),
            empty_gtid_set(flavor).tracker(),
            {},
            Structures(flavor, tables, {}, None),
            _NoPrepared(),
            _read_no_prepared,
        )
        self.tails = _Tails(numbers)
        self.tables = self._table_ids = _KnownTables(tables, fingerprint_of, _no_structure)

    def decode(self, block: BlockToDecode) -> DecodedGroups:
        """The block's plain groups."""
        state, data, i = self.state, block.data, 0
        self.read_format(block.format_description, block.subdir, block.file)
        self.tails.begin()
        state.epoch = _Rows(0, 0.0)
        state.groups = _PlainGroups(self._no_gtids(), block, state, self.tails.made)
        while (i := _next_gtid(data, i)) < len(data):
            try:
                for _ in super()._walk(data, i, block.pos, False):
                    pass
                break
            except _TooMuch:
                break
            except Exception:
                # Whatever it is, the publisher meets it too, and knows what came before and what the rules say.
                self._drop_open_group()
                i = state.event_pos - block.pos
                i += framing.header(data, i).size
        self._drop_open_group()
        made, records = self.tails.made, state.epoch.records
        made.keys, made.values, made.headers = records.keys, records.values, records.headers
        made.held = state.epoch.held
        return made

    def _no_gtids(self) -> GtidTracker:
        return empty_gtid_set(self._flavor).tracker()

    def _drop_open_group(self) -> None:
        """Forget what is decoded behind the last whole group."""
        state, made = self.state, self.tails.made
        rows, events = made.before(len(made.groups))
        state.epoch.records.drop_last(len(state.epoch.records) - rows)
        state.epoch.seq = rows
        del made.tails[events:], made.counts[events:], made.kinds[events:]
        state.groups.scanner.reset()
        state.groups.transaction = OpenGroup(rows)
        self.tables.new_file()

    def _first_rows(self, decoder: RowDecoder) -> list[int]:
        return self.state.epoch.touch(decoder.header, decoder.structure)

    def _control(self, kind: int, event: bytes) -> Iterator[Records]:
        is_bracket = kind == framing.QUERY and framing.query_text(event, bool(self.state.file.checksum)) in (
            b"BEGIN",
            b"COMMIT",
        )
        if not (is_bracket or kind in COMPRESSED_ROWS or kind == framing.TRANSACTION_PAYLOAD):
            raise _NotPlain
        return super()._control(kind, event)

    def _statement(self, event: bytes, checksum: int) -> None:
        raise _NotPlain


def _no_structure(body: bytes) -> TableStructure:
    raise _NotPlain


def _next_gtid(data: bytes, i: int) -> int:
    """Where the first GTID event at ``data[i]`` or behind begins; the end of the data if there is none."""
    while i < len(data) and data[i + 4] not in GTID_EVENTS:
        i += framing.header(data, i).size
    return i
