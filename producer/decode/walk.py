"""Binlog events to the records of the open epoch: one walk over whole events.

Every event type is either understood, known to be safe to skip, or stops the producer with its position.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import structlog

from producer.decode.decode_rules import DecodeRules
from producer.decode.groups import GTID_EVENTS, USUAL_GTID_SIZE, Groups
from producer.decode.refusals import WITHOUT_CONTENT, refuse_unknown
from producer.decode.rows_head import FLAGS_AT, LACKING, ROWS, RowsForm, RowsHead, check_doubt
from producer.decode.schema_changes import EngineOf, SchemaChanges, StatedStructures, nobody_knows
from producer.decode.skipping import Skipping
from producer.decode.statements import Statements, take_back
from producer.decode.table_ids import TableIds
from producer.decode.transaction import NO_FILE, EventFile, Transaction
from producer.decode.xa import PreparedTransactions, ReadPrepared, prepared_inside, xa_prepare, xa_statement
from producer.epochs.open_epoch import Now, OpenEpoch
from producer.epochs.records import Records
from producer.events.compressed import COMPRESSED_ROWS, plain_event
from producer.events.payload import unpacked
from producer.events.query_event import load_query
from producer.structures.store import ReadPosition, Structures
from relay_store.layout.directory import RelayPosition
from schemas.binlog import framing
from schemas.errors import DecodeError, TailraceError, Where
from schemas.gtid.sets import GtidTracker
from schemas.varint import LOW, VARINT, encode, encode_long
from schemas.wire.epoch import PreparedTransaction

log = structlog.get_logger()

#: parts of a transaction that outgrows memory, to be written before the walk goes on
Parts = Generator[Records, None, None]

_KIND_SIZE = struct.Struct("<4xB4xI").unpack_from
# The same, and the table id of a TABLE_MAP or rows event. Others may be shorter; nothing is read behind the data.
_KIND_SIZE_TABLE = struct.Struct("<4xB4xI6x6s").unpack_from
_TABLE_MAP_AT = framing.HEADER_SIZE + 6
_TABLE_ID = slice(framing.HEADER_SIZE, _TABLE_MAP_AT)
# Of a QUERY event, behind what differs from one session to the next: its thread and seconds.
_QUERY_AT = framing.HEADER_SIZE + 8
# The text of the statement whose rows follow, and what stands before it.
_TEXTS = {framing.ROWS_QUERY: 1, framing.MARIADB_ANNOTATE_ROWS: 0}

_COMPARE = "compare with mysqlbinlog at this position; report it with the relay file"

_BEGIN = b"BEGIN"
_BRACKETS = (_BEGIN, b"COMMIT")
_UNKNOWN: Any = object()
# Each transaction says its server, of which a log has few.
_encoded_server_id = lru_cache(encode_long)

#: records held before a transaction larger than an epoch is handed out in part, and bytes of binlog
PART_RECORDS = 50_000
PART_BYTES = 64 << 20


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

    Attributes:
        epoch: the open one.
        groups: the transaction groups, and what is executed.
        file: the file that is being read.
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
        engine_of: EngineOf = nobody_knows,
    ) -> None:
        self._flavor, self._limits = rules.flavor, rules.limits
        self.epoch, self.prepared = epoch, prepared
        self._read_prepared = read_prepared
        self.groups = Groups(tracker, rules.stop_behind)
        self._skipping, self._stated = Skipping(rules.skip), StatedStructures(versions)
        changes = SchemaChanges(rules.flavor, structures, self._stated, rules.schema_name, engine_of)
        self._statements = Statements(rules, self._skipping, changes)
        self._table_ids = TableIds(
            rules.tables, rules.schema_name, lambda body: structures.structure(body, self._here())
        )
        self.file = NO_FILE
        self._event_pos = 0
        self._is_late = self._is_replaying = False
        self._usual_begin = self._published = b""

    # -- where it stands -------------------------------------------------------------------------

    @property
    def in_group(self) -> bool:
        """Whether it stands within a transaction group."""
        return self.groups.scanner.in_group

    @property
    def group_start(self) -> RelayPosition | None:
        """Where the open group begins."""
        begin = self.groups.transaction.begin
        return None if begin is None else RelayPosition(self.file.subdir, self.file.name, begin)

    @property
    def oldest_ms(self) -> int:
        """When the open epoch's first transaction, or the open group, was committed, ms; 0 if nothing is open."""
        is_open = self.in_group and not self.groups.transaction.is_passed_over
        return self.epoch.first_commit_ms or (self.groups.transaction.commit_ms if is_open else 0)

    def take_whole(self) -> Records:
        """The open epoch's records at hand that belong to transactions that are whole."""
        epoch = self.epoch
        behind = self.groups.transaction.first if self.in_group else epoch.seq
        return epoch.records.take(max(0, behind - epoch.seq + len(epoch.records)))

    def end_epoch(self, now: Now) -> OpenEpoch:
        """The open epoch, which another one follows."""
        ended = self.epoch
        ended.has_positions, self._table_ids.has_positions = self._table_ids.has_positions, False
        self.epoch = OpenEpoch(ended.number + 1, now.monotonic)
        # A group may be open: it begins with a DDL, and has no records yet.
        self.groups.transaction.first = 0
        return ended

    def next_file(self, subdir: str, name: str) -> None:
        """The log goes on at the start of another file.

        Raises:
            DecodeError: TR415, the file before ended within a transaction too large to take back.
        """
        if self.in_group:
            # The upstream died while it wrote the transaction: it never took place.
            dropped = self.groups.transaction
            log.warning("incomplete_transaction_dropped", gtid=dropped.gtid, file=self.file.name)
            take_back(self.epoch, self.epoch.seq - dropped.first)
        self.groups.new_file(self.epoch.seq, is_other_server=self.file.subdir not in ("", subdir))
        self.file = EventFile.of(subdir, name)

    def enter_file(self, format_description: bytes, subdir: str, name: str) -> None:
        """Begin in a file, which may be its middle."""
        self._table_ids.new_file()
        self.file = EventFile.of(subdir, name, format_description)

    # -- walking ---------------------------------------------------------------------------------

    def run(self, data: bytes, i: int, base: int, now: Now) -> Generator[Records, None, int]:
        """Walk events from ``data[i]``, and hand out parts of transactions that outgrow memory.

        Args:
            base: the file position of ``data[0]``.

        Returns:
            the offset it stopped at: the end of ``data``; behind a group that made the epoch due (or that the
            producer is to stop behind); or, with ``group_start`` set, at a DDL whose group must not share
            the open epoch with what came before.

        Raises:
            DecodeError: with the event's position and GTID.
        """
        self._published = encode_long(now.unix_ms)
        self._is_late = self.epoch.is_late(self._limits, now)
        try:
            return (yield from self._walk(data, i, base, nested=False))
        except TailraceError as error:
            raise self._placed(error) from error
        except (LookupError, ValueError, struct.error, RecursionError, MemoryError) as error:
            raise DecodeError(
                "TR405",
                f"an event cannot be decoded: {type(error).__name__}: {str(error)[:500]}",
                where=self._where(),
                hint=_COMPARE,
            ) from error

    def _walk(self, data: bytes, i: int, base: int, nested: bool) -> Generator[Records, None, int]:
        """Hot: what nearly every transaction consists of is taken in right here."""
        end, limits, late = len(data), self._limits, self._is_late
        checksum = 0 if nested else self.file.checksum
        table_ids, groups, scanner = self._table_ids, self.groups, self.groups.scanner
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
                self._event_pos = base + i
            if kind in rows:
                table = by_id.get(table_id, _UNKNOWN)
                if table is None or is_passed_over:
                    i = behind
                    continue
                if table is _UNKNOWN:
                    raise DecodeError("TR411", "a rows event without its TABLE_MAP")
                if source is None:
                    source, times = self._source()
                    offset, epoch, counts_of = self.file.offset, self.epoch, self.epoch.counts.get
                    records, number = epoch.records, epoch.avro_number
                    add_key, add_value, headers = records.keys.append, records.values.append, records.headers
                form = table.forms[kind]
                head, p = form.head, i + form.offset
                if head is None or not data.startswith(form.beginning, i + FLAGS_AT):
                    if (parsed := self._parsed(form, data, i)) is None:
                        i = behind
                        continue
                    head, p = parsed
                ordinary, moved, decode, decoder, doubt, portion = head
                stop = behind - checksum
                if doubt is not None and not self._is_sure(head, data, i, p, stop):
                    i = behind
                    continue
                z = self._event_pos + offset << 1
                # Two table look-ups; a file's first bytes and those behind 1 GB take the longer way.
                varint = LOW[z & 0x3FFF] + VARINT[z >> 14] if 1 << 17 <= z < 1 << 31 else encode_long(z >> 1)
                before, place = epoch.seq, source + varint + times
                end_of_portion = stop if stop - p <= portion else p + portion
                seq, p = decode(
                    data,
                    p,
                    end_of_portion,
                    before,
                    number,
                    ordinary,
                    moved,
                    place,
                    add_key,
                    add_value,
                    headers,
                )
                if p != stop:
                    seq = yield from self._portions(head, data, p, stop, seq, place)
                epoch.seq = seq
                counts = counts_of(decoder.header) or self._stated.touch(decoder, epoch)
                counts[form.column] += seq - before
                if len(records.keys) >= PART_RECORDS:
                    yield epoch.take()
            elif kind == table_map:
                known = contents.get(table_id)
                if (
                    known is None
                    or not data.startswith(known, i + _TABLE_MAP_AT)
                    or size - checksum != len(known) + _TABLE_MAP_AT
                ):
                    table_ids.table_map(table_id, data[i + _TABLE_MAP_AT : behind - checksum], is_passed_over)
            elif nested:
                if not self._inside(kind, data[i:behind], 0):
                    return i
            else:
                if kind == gtid_event and size >= USUAL_GTID_SIZE:
                    groups.begin_mysql(data, i, base + i, self.epoch.seq)
                elif kind == query and self._begins(data, i, size):
                    pass
                elif kind == xid and scanner.state:
                    scanner.close()
                    self._end(size)
                elif kind in GTID_EVENTS:
                    groups.begin(kind, data[i:behind], bool(checksum), base + i, self.epoch.seq)
                elif kind in _TEXTS:
                    self._rows_text(kind, data[i:behind], checksum)
                elif not (yield from self._control(kind, data[i:behind])):
                    return i
                if not scanner.state and (late or groups.stopped or self.epoch.is_full(limits)):
                    return behind
                checksum, source = self.file.checksum, None
                is_passed_over = groups.transaction.is_passed_over
            i = behind
        return i

    def _portions(
        self, head: RowsHead, data: bytes, p: int, stop: int, seq: int, place: bytes
    ) -> Generator[Records, None, int]:
        """The further rows of a large event, handed out when they are too many to be held; the next row's number.

        Raises:
            IndexError: they do not end where the event does.
        """
        epoch = self.epoch
        records = epoch.records
        while p < stop:
            held = len(records)
            seq, p = head.decode(
                data, p, min(stop, p + head.portion), seq, epoch.avro_number, head.ordinary, head.moved, place,
                records.keys.append, records.values.append, records.headers,
            )  # fmt: skip
            yield from self._held(sum(map(len, records.values[held:])))
        if p != stop:
            raise IndexError("a row image overruns its event")
        return seq

    def _held(self, size: int) -> Parts:
        """So many bytes more are held than the log has: they were compressed there, or are rows of a large event."""
        epoch = self.epoch
        epoch.held += size
        if epoch.records and (epoch.held >= PART_BYTES or len(epoch.records) >= PART_RECORDS):
            yield epoch.take()

    def _begins(self, data: bytes, i: int, size: int) -> bool:
        """Whether a QUERY event is a BEGIN; it is taken in if so. Every transaction has one."""
        usual, checksum = self._usual_begin, self.file.checksum
        same_size = usual and size - checksum == len(usual) + _QUERY_AT
        if not (same_size and data.startswith(usual, i + _QUERY_AT)):
            end = i + size - checksum
            if data[end - 5 : end] != _BEGIN or framing.query_text_at(data, i) != end - 5:
                return False
            self._usual_begin = data[i + _QUERY_AT : end]
        self.groups.scanner.statement(_BEGIN)
        return True

    def _control(self, kind: int, event: bytes) -> Generator[Records, None, bool]:
        """An event outside the row path. False: it is a DDL that needs an epoch of its own."""
        checksum = self.file.checksum
        is_passed_over = self.groups.transaction.is_passed_over
        if kind == framing.FORMAT_DESCRIPTION:
            self.enter_file(event, self.file.subdir, self.file.name)
            return True
        if kind == framing.QUERY:
            text = framing.query_text(event, bool(checksum))
            is_ours = text not in _BRACKETS and not is_passed_over
            if is_ours and not (yield from self._query(event, text, checksum)):
                return False
            if self.groups.scanner.statement(text):
                self._end(len(event))
            return True
        if kind == framing.MARIADB_QUERY_COMPRESSED:
            plain = plain_event(event, checksum)
            text = framing.query_text(plain, False)
            if not is_passed_over and not (yield from self._query(plain, text, 0)):
                return False
        elif kind in COMPRESSED_ROWS:
            plain = plain_event(event, checksum)
            yield from self._walk(plain, 0, 0, nested=True)
            yield from self._held(len(plain))
        elif kind == framing.TRANSACTION_PAYLOAD:
            if not is_passed_over and not (yield from self._payload(event)):
                return False
        elif kind == framing.XA_PREPARE:
            yield from self._xa_prepare(event)
        elif kind == framing.EXECUTE_LOAD_QUERY:
            self._load_data(event, checksum)
        elif kind == framing.MARIADB_GTID_LIST and not self.file.offset:
            self.groups.duplicates.listed(event)
        elif kind != framing.XID and kind not in WITHOUT_CONTENT:
            refuse_unknown(kind, event)
        if kind not in framing.INSIDE_GROUP:
            was_inside = self.in_group
            if self.groups.scanner.feed(kind, event, bool(checksum)) and was_inside:
                self._end(len(event))
        return True

    def _rows_text(self, kind: int, event: bytes, checksum: int) -> None:
        """The text of the statement whose rows follow."""
        self.groups.transaction.statement = event[framing.HEADER_SIZE + _TEXTS[kind] : len(event) - checksum]

    # -- statements ------------------------------------------------------------------------------

    def _query(self, event: bytes, text: bytes, checksum: int) -> Generator[Records, None, bool]:
        """A QUERY event. False: a DDL that must wait until the open epoch is sealed."""
        if not text.startswith(b"XA "):
            return self._statement(event, checksum)
        verb, xid = xa_statement(text)
        if verb == "START":
            self.groups.transaction.start_xa(self._event_pos)
        elif verb == "COMMIT":
            yield from self._replay(self.prepared.committed(xid))
        elif verb == "ROLLBACK":
            self.prepared.rolled_back(xid)
        return True

    def _statement(self, event: bytes, checksum: int) -> bool:
        """A QUERY event that frames nothing. False: a DDL that must wait until the open epoch is sealed."""
        had_ddl = self.epoch.ddl
        taken = self._statements.take_in(event, checksum, self.epoch, self.groups.transaction, self._here())
        if self.epoch.ddl is not had_ddl:
            self._table_ids.structures_changed()
        return taken

    def _load_data(self, event: bytes, checksum: int) -> None:
        """LOAD DATA logged as text, behind the pieces of its file."""
        if not self.groups.transaction.is_passed_over:
            self._statement(load_query(event[: len(event) - checksum]), 0)

    def _end(self, size: int) -> None:
        """A group is whole, behind an event of this size."""
        ended, epoch = self.groups.end(), self.epoch
        if ended.is_xa or not ended.is_passed_over:
            begin = self._event_pos if ended.begin is None else ended.begin
            epoch.add_group(ended.gtid, ended.commit_ms, self._event_pos + size - begin)
            if ended.skipped:
                epoch.skipped.update(ended.skipped)
        self.groups.transaction = Transaction(epoch.seq)

    # -- rows ------------------------------------------------------------------------------------

    def _parsed(self, form: RowsForm, data: bytes, i: int) -> tuple[RowsHead, int] | None:
        """A beginning not met before; None if the event is passed over."""
        try:
            return form.parse(data, i)
        except DecodeError as error:
            self._pass_over_rows(form.name, error)
            return None

    def _is_sure(self, head: RowsHead, data: bytes, i: int, p: int, end: int) -> bool:
        """Whether an event of doubtful kind is one to take in; False if it is passed over."""
        structure, event_id = head.decoder.structure, data[i + _TABLE_ID.start : i + _TABLE_ID.stop]
        has_triggers = event_id in self._table_ids.with_triggers
        try:
            check_doubt(
                head,
                data,
                p,
                end,
                self._flavor,
                self.groups.transaction.statement,
                has_triggers=has_triggers,
            )
        except DecodeError as error:
            self._pass_over_rows((structure.db, structure.table), error)
            return False
        return True

    def _pass_over_rows(self, table: tuple[str, str], error: DecodeError) -> None:
        """Count an event whose images lack something, if the rules say so; else raise its error."""
        if error.code != "TR413":
            raise error
        if text := self.groups.transaction.statement:
            error.what += f"; the statement: {text[:200].decode(errors='replace')}"
        error.where = Where(table=".".join(table))
        error.hint = LACKING
        self.groups.transaction.skipped += self._skipping.passes_over("image", [table], error, self._where())

    def _source(self) -> tuple[bytes, bytes]:
        """What `source` says of the open transaction, as Avro bytes: before and behind an event's position."""
        transaction = self.groups.transaction
        text = transaction.gtid.encode() if transaction.gtid else b""
        gtid = b"\2" + VARINT[len(text) << 1] + text if text else b"\0"
        server_id = _encoded_server_id(transaction.server_id)
        times = encode(transaction.commit_ms << 1) + self._published
        return server_id + gtid + self.file.source_name, times

    # -- compressed transactions -----------------------------------------------------------------

    def _payload(self, event: bytes) -> Generator[Records, None, bool]:
        """False: it begins with a DDL that must wait until the open epoch is sealed."""
        prepared = prepared_inside(self._events_inside(event))
        if prepared is None:
            return (yield from self._walk_payload(event))
        self.groups.transaction.start_xa(self._event_pos)
        yield from self._prepared(*prepared, len(event))
        return True

    def _walk_payload(self, event: bytes) -> Generator[Records, None, bool]:
        for block in self._events_inside(event):
            if (yield from self._walk(block, 0, 0, nested=True)) < len(block):
                return False
            yield from self._held(len(block))
        return True

    def _events_inside(self, event: bytes) -> Iterator[bytes]:
        return unpacked(event[framing.HEADER_SIZE : len(event) - self.file.checksum])

    def _inside(self, kind: int, event: bytes, checksum: int) -> bool:
        """An event within a compressed or XA transaction. False: a DDL that must wait."""
        if kind == framing.QUERY:
            text = framing.query_text(event, bool(checksum))
            is_framing = text in _BRACKETS or text.startswith((b"XA START ", b"XA END "))
            return is_framing or self._statement(event, checksum)
        if kind == framing.EXECUTE_LOAD_QUERY:
            self._load_data(event, checksum)
        elif kind in _TEXTS:
            self._rows_text(kind, event, checksum)
        elif kind == framing.XA_PREPARE and not self._is_replaying:
            raise DecodeError("TR406", "XA PREPARE without XA START")
        elif kind not in WITHOUT_CONTENT and kind not in (framing.XID, framing.XA_PREPARE):
            refuse_unknown(kind, event)
        return True

    # -- XA transactions -------------------------------------------------------------------------

    def _xa_prepare(self, event: bytes) -> Parts:
        if self.groups.transaction.awaits_prepare:
            yield from self._prepared(*xa_prepare(event), len(event))
        elif not self.groups.transaction.is_passed_over:
            raise DecodeError("TR406", "XA PREPARE without XA START")

    def _prepared(self, xid: str, one_phase: bool, size: int) -> Parts:
        """The open group, which ends with the event of this size, is prepared, or committed at once."""
        transaction, begin = self.groups.transaction, self.group_start
        assert begin is not None
        transaction.awaits_prepare = False
        self.prepared.add(xid, transaction.gtid, begin, self._event_pos + size)
        if one_phase:
            transaction.is_passed_over = False
            yield from self._replay(self.prepared.committed(xid))

    def _replay(self, prepared: PreparedTransaction) -> Parts:
        """Take a prepared transaction's rows in, as rows of the open group."""
        here = self.file, self._event_pos
        self._is_replaying = True
        for block in self._read_prepared(prepared):
            i, data = 0, block.data
            while i < len(data):
                behind: int = i + _KIND_SIZE(data, i)[1]
                self._event_pos = block.pos + i
                yield from self._replay_event(data[i:behind], prepared)
                i = behind
        self._is_replaying = False
        self.epoch.size += prepared.relay_end - prepared.relay_pos
        self.file, self._event_pos = here

    def _replay_event(self, event: bytes, prepared: PreparedTransaction) -> Parts:
        kind = event[4]
        if kind == framing.FORMAT_DESCRIPTION:
            self.enter_file(event, prepared.relay_dir, prepared.relay_file)
        elif kind in framing.INSIDE_GROUP:
            yield from self._walk(event, 0, self._event_pos, nested=False)
        elif kind == framing.TRANSACTION_PAYLOAD:
            yield from self._walk_payload(event)
        elif kind not in GTID_EVENTS and not self._inside(kind, event, self.file.checksum):
            raise DecodeError("TR404", "DDL within an XA transaction")

    # -- errors ----------------------------------------------------------------------------------

    def _here(self) -> ReadPosition:
        return ReadPosition(
            RelayPosition(self.file.subdir, self.file.name, self._event_pos), self.groups.tracker
        )

    def _where(self) -> Where:
        return Where(gtid=self.groups.transaction.gtid, file=self.file.name, position=self._event_pos)

    def _placed(self, error: TailraceError) -> TailraceError:
        """The error with this place, the table it spoke of, and a remedy."""
        error.where = replace(self._where(), table=error.where.table, epoch=self.epoch.number)
        error.hint = error.hint or _COMPARE
        return error
