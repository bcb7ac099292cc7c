"""Binlog events to the records of the open epoch: one walk over whole events.

Every event type is either understood, known to be safe to skip, or stops the producer with its position.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from itertools import takewhile
from typing import Any

import structlog

from producer.decode.decode_rules import DecodeRules, LeftOut, Skipping
from producer.decode.nested_events import NestedEvents, PreparedTransactions, ReadPrepared
from producer.decode.open_group import GTID_EVENTS, USUAL_GTID_SIZE, DecodeState, EventFile, Groups, OpenGroup
from producer.decode.plain_groups import BlockPart, Decoded, PlainGroups
from producer.decode.row_decoder import ImageLacksColumns, RowDecoder
from producer.decode.rows_events import (
    FLAGS_AT,
    LACKING,
    ROWS,
    RowsEventForm,
    RowsEventHeader,
    TableIds,
    check_doubt,
)
from producer.decode.statements import (
    DdlWaits,
    EngineOf,
    SchemaChanges,
    Statements,
    engine_unknown,
    take_back,
)
from producer.epochs.open_epoch import PART_RECORDS, Now, OpenEpoch, Records, StatedStructures
from producer.events.compressed import COMPRESSED_ROWS, plain_event
from producer.events.event_types import WITHOUT_CONTENT, refuse_unknown
from producer.events.query_event import load_query
from producer.structures.store import Structures
from relay_store.layout.directory import RelayPosition
from schemas.binlog import framing
from schemas.ddl.table_definition import TableDefinition
from schemas.errors import DecodeError, TailraceError, Where
from schemas.gtid.sets import GtidTracker
from schemas.structure import TableStructure
from schemas.varint import LOW, VARINT, encode, encode_long
from schemas.wire.epoch import SchemaChanged

log = structlog.get_logger()

_KIND_SIZE = struct.Struct("<4xB4xI").unpack_from
# The same, and the table id of a TABLE_MAP or rows event. Others may be shorter; nothing is read behind the data.
_KIND_SIZE_TABLE = struct.Struct("<4xB4xI6x6s").unpack_from
_TABLE_MAP_AT = framing.HEADER_SIZE + 6
_TABLE_ID = slice(framing.HEADER_SIZE, _TABLE_MAP_AT)
# Of a QUERY event, behind what differs from one session to the next: its thread and seconds.
_QUERY_AT = framing.HEADER_SIZE + 8
# The text of the statement whose rows follow, and what stands before it.
_TEXTS = {framing.ROWS_QUERY: 1, framing.MARIADB_ANNOTATE_ROWS: 0}

_COMPARE = "check this position with mysqlbinlog, and report it together with the relay file"

_BEGIN = b"BEGIN"
_BRACKETS = (_BEGIN, b"COMMIT")
_UNKNOWN: Any = object()
# Each transaction says its server, of which a log has few.
_encoded_server_id = lru_cache(encode_long)


# Of an epoch's counts, those of a copy's rows.
_READS = 3


@dataclass(frozen=True)
class CopiedRows:
    """Rows of a table's copy.

    Attributes:
        keys: the Kafka key of each.
        values: makes their values, given what each begins with, the number of the epoch, and where the epoch ends.
    """

    structure: TableStructure
    keys: list[bytes]
    values: Callable[[bytes, int, RelayPosition], list[bytes]]


class Stop(Enum):
    """Why a walk over events ended."""

    END_OF_DATA = "end of data"
    #: after a group that made the open epoch due, or that the producer is to stop behind
    EPOCH_ENDS = "epoch ends"
    #: before a DDL that has to be an epoch of its own; the open one ends before its group
    DDL_WAITS = "DDL waits"


class EventDecoder:
    """Turns blocks of whole events into the open epoch's records.

    Args:
        epoch: the first to fill.
        tracker: what is executed where decoding begins; kept up to date.
        versions: fingerprint (hex) per schema and table, as the log knows them so far; kept up to date.
        structures: the tables' structures where decoding begins; kept up to date.
        prepared: the XA transactions that are open there; kept up to date.
        read_prepared: reads a prepared transaction's events again.
        engine_of: tells a table's storage engine.
        left_out: what is left out because of copies.

    Attributes:
        state: where it stands.
        prepared: the XA transactions that are open there.
    """

    def __init__(
        self,
        rules: DecodeRules,
        epoch: OpenEpoch,
        tracker: GtidTracker,
        versions: dict[tuple[str, str], str],
        structures: Structures,
        prepared: PreparedTransactions,
        read_prepared: ReadPrepared,
        engine_of: EngineOf = engine_unknown,
        left_out: LeftOut | None = None,
    ) -> None:
        self._flavor, self._limits = rules.flavor, rules.limits
        self.state = state = DecodeState(epoch, Groups(tracker, rules.stop_behind))
        self.prepared = prepared
        self._skipping, self._stated = Skipping(rules.skip), StatedStructures(versions)
        self._schema_name, left_out = rules.schema_name, left_out or LeftOut()
        self._schema_changes = SchemaChanges(
            rules.flavor, structures, self._stated, rules.schema_name, engine_of
        )
        self._statements = Statements(rules, state, self._skipping, self._schema_changes, left_out.ddl)
        self._table_ids = TableIds(
            rules.tables,
            rules.schema_name,
            lambda body: structures.structure(body, state.position),
            left_out.rows,
        )
        self._nested = NestedEvents(
            state, prepared, read_prepared, self._walk, self._process_nested, self.read_format
        )
        self._now = Now(0.0, 0)
        self._is_late = False
        self._usual_begin = self._published = b""
        self.plain: PlainGroups | None = None

    # -- between the walks -----------------------------------------------------------------------

    def end_epoch(self, now: Now) -> OpenEpoch:
        """Open the next epoch, and return the one that ended."""
        state, ended = self.state, self.state.epoch
        ended.saw_channel_table = self._table_ids.take_saw_channel_table()
        state.epoch = OpenEpoch(ended.number + 1, now.monotonic)
        # A group may be open: it begins with a DDL, and has no records yet.
        state.groups.transaction.first = 0
        return ended

    def leave_file_for(self, subdir: str, name: str) -> None:
        """Go to the start of the next file, and drop a transaction that the file before left open.

        Raises:
            DecodeError: TR415, the file before ended within a transaction too large to take back.
        """
        state = self.state
        if state.in_group:
            # The upstream died while it wrote the transaction: it never took place.
            dropped = state.groups.transaction
            log.warning("incomplete_transaction_dropped", gtid=dropped.gtid, file=state.file.name)
            take_back(state.epoch, state.epoch.seq - dropped.first)
        state.groups.new_file(state.epoch.seq, is_other_server=state.file.subdir not in ("", subdir))
        state.file = EventFile.of(subdir, name)

    def read_format(self, format_description: bytes, subdir: str, name: str) -> None:
        """Read on in a file with this FORMAT_DESCRIPTION, perhaps in its middle."""
        self._table_ids.new_file()
        self.state.file = EventFile.of(subdir, name, format_description)

    def add_ddl(self, ddl: SchemaChanged, table: TableDefinition | None) -> None:
        """The open epoch, in which nothing is, is a DDL that the binlog does not have; one that defines this table."""
        self.state.epoch.ddl = ddl if table is None else self._schema_changes.define(ddl, table)

    def look_up_tables(self) -> None:
        """Look each table up anew: another one may be left out now."""
        self._table_ids.structures_changed()

    def add_copied(self, rows: CopiedRows, end: RelayPosition) -> None:
        """Add rows of a copy to the open epoch, which will end at this place."""
        epoch = self.state.epoch
        decoder = RowDecoder(rows.structure, self._schema_name)
        epoch.records.keys += rows.keys
        epoch.records.values += rows.values(decoder.header, epoch.number, end)
        epoch.seq += len(rows.keys)
        self._first_rows(decoder)[_READS] += len(rows.keys)

    # -- walking ---------------------------------------------------------------------------------

    def run(
        self, data: bytes, i: int, base: int, now: Now, *, ends: bool = False, plain: bool = False
    ) -> Generator[Records, None, tuple[int, Stop]]:
        """Walk events from ``data[i]``, and hand out parts of transactions that outgrow memory.

        Args:
            base: the file position of ``data[0]``.
            ends: whether the open epoch ends behind the next group.
            plain: whether compiled code may decode what is plain.

        Returns:
            the offset it stopped at, and why.

        Raises:
            DecodeError: with the event's position and GTID.
        """
        state = self.state
        self._published = encode_long(now.unix_ms)
        self._now, self._is_late = now, ends or state.epoch.is_late(self._limits, now)
        try:
            if plain and self.plain is not None:
                return (yield from self._plain(self.plain, data, i, base))
            return (yield from self._walk(data, i, base, False))
        except DdlWaits:
            return state.event_pos - base, Stop.DDL_WAITS
        except TailraceError as error:
            where = replace(state.where, table=error.where.table, epoch=state.epoch.number)
            raise error.but(where=where, hint=error.hint or _COMPARE) from error
        except (LookupError, ValueError, struct.error, RecursionError, MemoryError) as error:
            raise DecodeError(
                "TR405",
                f"an event cannot be decoded: {type(error).__name__}: {str(error)[:500]}",
                where=state.where,
                hint=_COMPARE,
            ) from error

    def _walk(
        self, data: bytes, i: int, base: int, nested: bool
    ) -> Generator[Records, None, tuple[int, Stop]]:
        """Hot: what nearly every transaction consists of is processed right here.

        Args:
            nested: whether the events are inside another one; then they have no checksums.
        """
        end, limits, late = len(data), self._limits, self._is_late
        state = self.state
        checksum = 0 if nested else state.file.checksum
        table_ids, groups, scanner = self._table_ids, state.groups, state.groups.scanner
        by_id, contents = table_ids.by_id, table_ids.contents
        kind_size_table, rows, table_map = _KIND_SIZE_TABLE, ROWS, framing.TABLE_MAP
        gtid_event, query, xid = framing.GTID, framing.QUERY, framing.XID
        is_passed_over = groups.transaction.is_passed_over
        source: bytes | None = None
        while i < end:
            try:
                kind, size, table_id = kind_size_table(data, i)
            except struct.error:
                kind, size, table_id = *_KIND_SIZE(data, i), b""
            behind: int = i + size
            if not nested:
                state.event_pos = base + i
            if kind in rows:
                table = by_id.get(table_id, _UNKNOWN)
                if table is None or is_passed_over:
                    i = behind
                    continue
                if table is _UNKNOWN:
                    raise DecodeError("TR411", "a rows event without its TABLE_MAP")
                if source is None:
                    source, times = self._source()
                    offset, epoch = state.file.offset, state.epoch
                    records, epoch_number, counts_of = epoch.records, epoch.avro_number, epoch.counts.get
                    add_key, add_value, headers = records.keys.append, records.values.append, records.headers
                form = table.forms[kind]
                header, p = form.header, i + form.offset
                if header is None or not data.startswith(form.beginning, i + FLAGS_AT):
                    if (parsed := self._parsed(form, data, i)) is None:
                        i = behind
                        continue
                    header, p = parsed
                table_source, table_source_moved, decode, decoder, doubt, bytes_at_a_time = header
                stop = behind - checksum
                if doubt is not None and not self._is_sure(header, data, i, p, stop):
                    i = behind
                    continue
                zigzag = (state.event_pos + offset) << 1  # Avro's form of a position
                # Two table look-ups; a file's first bytes and those behind 1 GB take the longer way.
                varint = (
                    LOW[zigzag & 0x3FFF] + VARINT[zigzag >> 14]
                    if 1 << 17 <= zigzag < 1 << 31
                    else encode_long(zigzag >> 1)
                )
                before, event_source = epoch.seq, source + varint + times
                seq, p = decode(
                    data,
                    p,
                    stop if stop - p <= bytes_at_a_time else p + bytes_at_a_time,
                    before,
                    epoch_number,
                    table_source,
                    table_source_moved,
                    event_source,
                    add_key,
                    add_value,
                    headers,
                )
                if p != stop:
                    seq = yield from self._rest_of_rows(header, data, p, stop, seq, event_source)
                epoch.seq = seq
                counts = counts_of(decoder.header) or self._first_rows(decoder)
                counts[form.column] += seq - before
                if len(records.keys) >= PART_RECORDS:
                    yield epoch.hand_over_all()
            elif kind == table_map:
                known = contents.get(table_id)
                if (
                    known is None
                    or not data.startswith(known, i + _TABLE_MAP_AT)
                    or size - checksum != len(known) + _TABLE_MAP_AT
                ):
                    table_ids.table_map(table_id, data[i + _TABLE_MAP_AT : behind - checksum], is_passed_over)
            elif nested:
                self._process_nested(kind, data[i:behind], 0)
            else:
                if kind == gtid_event and size >= USUAL_GTID_SIZE:
                    groups.begin_mysql(data, i, base + i, state.epoch.seq)
                elif kind == query and self._is_begin(data, i, behind - checksum):
                    scanner.statement(_BEGIN)
                elif kind == xid and scanner.state:
                    scanner.close()
                    state.end_group(size)
                elif kind in GTID_EVENTS:
                    groups.begin(kind, data[i:behind], bool(checksum), base + i, state.epoch.seq)
                elif kind in _TEXTS:
                    self._rows_text(kind, data[i:behind], checksum)
                else:
                    yield from self._control(kind, data[i:behind])
                if not scanner.state and (
                    # Asked again: since the walk began the epoch may have got rows, and another limit with them.
                    (late and state.epoch.is_late(limits, self._now))
                    or groups.stopped
                    or state.epoch.is_full(limits)
                ):
                    return behind, Stop.EPOCH_ENDS
                checksum, source = state.file.checksum, None
                is_passed_over = groups.transaction.is_passed_over
            i = behind
        return i, Stop.END_OF_DATA

    def _plain(
        self, plain: PlainGroups, data: bytes, i: int, base: int
    ) -> Generator[Records, None, tuple[int, Stop]]:
        """Decode what is plain from ``data[i]``, or walk what comes before the next plain group."""
        state, table_ids = self.state, self._table_ids
        state.event_pos, epoch, groups = base + i, state.epoch, state.groups
        part = BlockPart(data, i, len(data), base, state.file, epoch, table_ids.known, self._published)
        if state.in_group:
            i = yield from self._plain_rows(plain, part)
            end = next_group(data, i)
            if i < end:
                behind, stop = yield from self._walk(data[i:end], 0, base + i, False)
                return i + behind, stop
            return i, Stop.END_OF_DATA
        found = plain.groups(part, self._limits, ends=self._is_late)
        if found.is_gap:
            behind, stop = yield from self._walk(data[i : found.end], 0, base + i, False)
            return i + behind, stop
        whole = [*takewhile(groups.add_whole, found.groups)]
        if not whole:
            # It may be one that was published before, and then so are those that follow.
            return (yield from self._walk(data, i, base, False))
        if len(whole) < len(found.groups):
            found = plain.groups(replace(part, end=whole[-1].end), self._limits, ends=self._is_late)
        transactions = sum(one.transactions for one in whole)
        epoch.add_groups(whole[0].begins, whole[-1].ends, transactions, found.end - i)
        yield from self._add_plain(found)
        groups.transaction = OpenGroup(epoch.seq)
        table_ids.new_file()
        return found.end, Stop.EPOCH_ENDS if found.is_full else Stop.END_OF_DATA

    def _plain_rows(self, plain: PlainGroups, part: BlockPart) -> Generator[Records, None, int]:
        """Decode rows of the open group at the begin of a part; where they end."""
        transaction, table_ids = self.state.groups.transaction, self._table_ids
        if transaction.is_passed_over:
            return part.begin
        source = self._transaction_source()
        found = plain.open_rows(part, source, transaction.commit_ms, table_ids.by_id)
        yield from self._add_plain(found.decoded)
        table_ids.met(found.tables)
        if found.text_at >= 0:
            event = part.data[found.text_at : found.text_at + framing.header(part.data, found.text_at).size]
            self._rows_text(event[4], event, part.file.checksum)
        return found.decoded.end

    def _add_plain(self, found: Decoded) -> Iterator[Records]:
        """Add rows that compiled code decoded to the open epoch."""
        epoch = self.state.epoch
        epoch.records.headers |= found.headers(epoch.seq)
        epoch.records.keys += found.keys
        epoch.records.values += found.values
        epoch.seq += len(found.keys)
        for decoder, rows in found.counts:
            counts = epoch.counts.get(decoder.header) or self._first_rows(decoder)
            for column, count in enumerate(rows):
                counts[column] += count
        if len(epoch.records) >= PART_RECORDS:
            yield epoch.hand_over_all()

    def _is_begin(self, data: bytes, i: int, end: int) -> bool:
        """Whether the QUERY event at ``data[i]`` is a BEGIN. Every transaction has one, and most are alike."""
        usual = self._usual_begin
        if usual and end - i == len(usual) + _QUERY_AT and data.startswith(usual, i + _QUERY_AT):
            return True
        if data[end - 5 : end] != _BEGIN or framing.query_text_at(data, i) != end - 5:
            return False
        self._usual_begin = data[i + _QUERY_AT : end]
        return True

    def _source(self) -> tuple[bytes, bytes]:
        """What `source` says of the open transaction, as Avro bytes: before and behind an event's position."""
        state = self.state
        times = encode(state.groups.transaction.commit_ms << 1) + self._published
        return self._transaction_source() + state.file.source_name, times

    def _transaction_source(self) -> bytes:
        """The open transaction's server id and GTID, as Avro bytes."""
        transaction = self.state.groups.transaction
        text = transaction.gtid.encode() if transaction.gtid else b""
        gtid = b"\2" + VARINT[len(text) << 1] + text if text else b"\0"
        return _encoded_server_id(transaction.server_id) + gtid

    # -- rows ------------------------------------------------------------------------------------

    def _first_rows(self, decoder: RowDecoder) -> list[int]:
        """The open epoch's first rows of a structure come. Returns their counts."""
        epoch, structure = self.state.epoch, decoder.structure
        self._stated.state_if_new(epoch, structure, decoder.fingerprint.hex())
        return epoch.touch(decoder.header, structure)

    def _rest_of_rows(
        self, header: RowsEventHeader, data: bytes, p: int, stop: int, seq: int, event_source: bytes
    ) -> Generator[Records, None, int]:
        """The further rows of a large event, handed out when they are too many to be held; the next row's number.

        Raises:
            IndexError: they do not end where the event does.
        """
        epoch = self.state.epoch
        records = epoch.records
        while p < stop:
            held = len(records)
            seq, p = header.decode(
                data, p, min(stop, p + header.bytes_at_a_time), seq,
                epoch.avro_number, header.table_source, header.table_source_moved, event_source,
                records.keys.append, records.values.append, records.headers,
            )  # fmt: skip
            yield from epoch.hold(sum(map(len, records.values[held:])))
        if p != stop:
            raise IndexError("a row image overruns its event")
        return seq

    def _parsed(self, form: RowsEventForm, data: bytes, i: int) -> tuple[RowsEventHeader, int] | None:
        """The header of a rows event that begins in a new way; None if the event is passed over."""
        try:
            return form.parse(data, i)
        except ImageLacksColumns as error:
            self._pass_over_rows(form.name, error)
            return None

    def _is_sure(self, header: RowsEventHeader, data: bytes, i: int, p: int, end: int) -> bool:
        """Whether an event of doubtful kind can be decoded; False if it is passed over."""
        structure, event_id = header.decoder.structure, data[i + _TABLE_ID.start : i + _TABLE_ID.stop]
        has_triggers, text = (
            event_id in self._table_ids.with_triggers,
            self.state.groups.transaction.statement,
        )
        try:
            check_doubt(header, data, p, end, self._flavor, text, has_triggers=has_triggers)
        except ImageLacksColumns as error:
            self._pass_over_rows((structure.db, structure.table), error)
            return False
        return True

    def _pass_over_rows(self, table: tuple[str, str], error: ImageLacksColumns) -> None:
        """Count an event whose images lack something, if the rules say so; else raise the error."""
        transaction, what = self.state.groups.transaction, error.message
        if text := transaction.statement:
            what += f"; the statement: {text[:200].decode(errors='replace')}"
        error = error.but(message=what, where=Where(table=".".join(table)), hint=LACKING)
        transaction.skipped += self._skipping.passes_over("image", [table], error, self.state.where)

    # -- other events ----------------------------------------------------------------------------

    def _control(self, kind: int, event: bytes) -> Iterator[Records]:
        """An event outside the row path. Raises DdlWaits."""
        state, checksum = self.state, self.state.file.checksum
        is_passed_over = state.groups.transaction.is_passed_over
        if kind == framing.FORMAT_DESCRIPTION:
            self.read_format(event, state.file.subdir, state.file.name)
            return
        if kind == framing.QUERY:
            text = framing.query_text(event, bool(checksum))
            if text not in _BRACKETS and not is_passed_over:
                yield from self._query(event, text, checksum)
            if state.groups.scanner.statement(text):
                state.end_group(len(event))
            return
        if kind == framing.MARIADB_QUERY_COMPRESSED:
            plain = plain_event(event, checksum)
            if not is_passed_over:
                yield from self._query(plain, framing.query_text(plain, False), 0)
        elif kind in COMPRESSED_ROWS:
            plain = plain_event(event, checksum)
            yield from self._walk(plain, 0, 0, True)
            yield from state.epoch.hold(len(plain))
        elif kind == framing.TRANSACTION_PAYLOAD:
            if not is_passed_over:
                yield from self._nested.payload(event)
        elif kind == framing.XA_PREPARE:
            yield from self._nested.xa_prepare(event)
        elif kind == framing.EXECUTE_LOAD_QUERY:
            self._load_data(event, checksum)
        elif kind == framing.MARIADB_GTID_LIST and not state.file.offset:
            state.groups.duplicates.listed(event)
        elif kind != framing.XID and kind not in WITHOUT_CONTENT:
            refuse_unknown(kind, event)
        if kind not in framing.INSIDE_GROUP:
            was_inside = state.in_group
            if state.groups.scanner.feed(kind, event, bool(checksum)) and was_inside:
                state.end_group(len(event))

    def _process_nested(self, kind: int, event: bytes, checksum: int) -> None:
        """An event outside the row path, within a compressed or XA transaction. Raises DdlWaits."""
        if kind == framing.QUERY:
            text = framing.query_text(event, bool(checksum))
            if text not in _BRACKETS and not text.startswith((b"XA START ", b"XA END ")):
                self._statement(event, checksum)
        elif kind == framing.EXECUTE_LOAD_QUERY:
            self._load_data(event, checksum)
        elif kind in _TEXTS:
            self._rows_text(kind, event, checksum)
        elif kind == framing.XA_PREPARE and not self._nested.is_replaying:
            raise DecodeError("TR406", "XA PREPARE without XA START")
        elif kind not in WITHOUT_CONTENT and kind not in (framing.XID, framing.XA_PREPARE):
            refuse_unknown(kind, event)

    def _query(self, event: bytes, text: bytes, checksum: int) -> Iterator[Records]:
        """A QUERY event that is neither BEGIN nor COMMIT."""
        if text.startswith(b"XA "):
            yield from self._nested.statement(text)
        else:
            self._statement(event, checksum)

    def _statement(self, event: bytes, checksum: int) -> None:
        """A QUERY event that frames nothing."""
        if self._statements.process(event, checksum):
            self._table_ids.structures_changed()

    def _load_data(self, event: bytes, checksum: int) -> None:
        """LOAD DATA logged as text, behind the pieces of its file."""
        if not self.state.groups.transaction.is_passed_over:
            self._statement(load_query(event[: len(event) - checksum]), 0)

    def _rows_text(self, kind: int, event: bytes, checksum: int) -> None:
        """The text of the statement whose rows follow."""
        text = event[framing.HEADER_SIZE + _TEXTS[kind] : len(event) - checksum]
        self.state.groups.transaction.statement = text


def next_group(data: bytes, i: int) -> int:
    """Where the first GTID event behind ``data[i]`` begins; the end of the data if there is none."""
    while i < len(data):
        i += framing.header(data, i).size
        if i < len(data) and data[i + 4] in GTID_EVENTS:
            break
    return i
