"""Binlog events to epochs: walks whole events, keeps the transaction's context, has rows decoded.

Every event type is either understood, known to be safe to skip, or stops the producer with its position.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import structlog

from producer.decode.duplicate_filter import repetitions
from producer.decode.row_decoder import RowDecoder, SchemaName
from producer.decode.rows_head import (
    FLAGS_AT,
    LACKING,
    ROWS,
    Doubt,
    RowsForm,
    RowsHead,
    RowsTable,
    update_lacks,
)
from producer.decode.savepoints import Savepoints, savepoint_name
from producer.decode.skipping import Skipping, SkipRule
from producer.decode.xa import FL_PREPARED_XA, PreparedTransactions, prepared_inside, xa_prepare, xa_statement
from producer.epochs.open_epoch import EpochLimits, OpenEpoch
from producer.events.compressed import COMPRESSED_ROWS, plain_event
from producer.events.payload import unpacked
from producer.events.query_event import QueryEvent, epoch_ddl, in_lower_case, load_query, parse_query_event
from producer.events.table_map import table_names
from producer.structures.store import ReadPosition, Structures
from relay_store.layout.directory import RelayPosition, part_offset, upstream_file
from schemas.binlog import framing as binlog
from schemas.binlog.groups import GroupScanner
from schemas.ddl.classify import Category, ClassifiedStatement, classify, family
from schemas.ddl.dml import read_dml, verb_on
from schemas.ddl.engine import takes_default_engine
from schemas.errors import DecodeError, TailraceError, Where
from schemas.gtid.sets import Flavor, GtidTracker, before_number
from schemas.letter_case import lowered
from schemas.tables import TableFilter
from schemas.varint import LOW, VARINT, encode, encode_bytes, encode_long
from schemas.wire.avro_schema import fingerprint_of, row_schema
from schemas.wire.epoch import PreparedTransaction, SchemaChanged, StructureVersion

log = structlog.get_logger()

_KIND_SIZE = struct.Struct("<4xB4xI").unpack_from
# The same, and the table id of a TABLE_MAP or rows event. Others may be shorter; nothing is read behind the data.
_KIND_SIZE_TABLE = struct.Struct("<4xB4xI6x6s").unpack_from
_TABLE_MAP_AT = binlog.HEADER_SIZE + 6
# Of a QUERY event, behind what differs from one session to the next: its thread and seconds.
_QUERY_AT = binlog.HEADER_SIZE + 8
_SERVER_ID = struct.Struct("<5xI").unpack_from
# Of MySQL's usual GTID event: server id, source, number, and in the upper 56 bits the time of its commit.
_GTID_EVENT, _GTID_EVENT_SIZE = struct.Struct("<5xI11x16sq16xQ").unpack_from, 70
_GTIDS = frozenset({binlog.GTID, binlog.GTID_TAGGED, binlog.ANONYMOUS_GTID, binlog.MARIADB_GTID})

# Carry nothing that a downstream needs. INTVAR, RAND and USER_VAR belong to statement-format DML, which stops; so do
# the pieces of a file whose LOAD DATA is logged as text.
_TRANSACTION_CONTEXT, _VIEW_CHANGE = 36, 37
_SKIPPED = frozenset(
    {
        binlog.STOP,
        binlog.ROTATE,
        binlog.PREVIOUS_GTIDS,
        binlog.INTVAR,
        binlog.RAND,
        binlog.USER_VAR,
        binlog.BEGIN_LOAD_QUERY,
        binlog.APPEND_BLOCK,
        binlog.DELETE_FILE,
        binlog.HEARTBEAT,
        binlog.HEARTBEAT_V2,
        binlog.MARIADB_BINLOG_CHECKPOINT,
        binlog.MARIADB_GTID_LIST,
        _TRANSACTION_CONTEXT,
        _VIEW_CHANGE,
    }
)
_ACCOUNTS = "accounts and privileges belong to each server; [ddl] accounts says otherwise"
# The text of the statement whose rows follow, and what stands before it.
_TEXTS = {binlog.ROWS_QUERY: 1, binlog.MARIADB_ANNOTATE_ROWS: 0}
# MariaDB's two-phase ALTER logs the statement twice; it takes effect with its COMMIT ALTER.
_START_ALTER, _ROLLBACK_ALTER = 2, 8
# Of a MariaDB TABLE_MAP's flags, in their second byte. Source: sql/log_event.h, TM_BIT_HAS_TRIGGERS_F.
_HAS_TRIGGERS = 0x40

_BY_HAND = (
    "carry it out downstream by hand, as far as it changes what is replicated, and start behind this position"
)
#: what a statement does whose rows are not in the log, and what to do about it
_UNLOGGED = {
    Category.DML: (
        "changes rows by statement text, not by row events",
        "set binlog_format = ROW for every upstream session; to go on, let a [[skip]] rule pass over this one, and"
        " carry it out downstream by hand",
    ),
    Category.DDL: (
        "creates a table from a query without logging its rows",
        "set binlog_format = ROW for every upstream session, or create tables and fill them in two statements; to go"
        " on, let a [[skip]] rule with the table's name pass over this one, and copy the table to the downstream",
    ),
    Category.FILES: (
        "takes a table's rows away as a file, or brings them in as one, and the log does not hold them",
        "to go on, let a [[skip]] rule with the table's name pass over this one; once the upstream's table has its"
        " rows, copy it to the downstream as it is then",
    ),
}
_MIXED_ENGINES = (
    "which of its rows stayed depends on their tables' engines; copy the tables concerned anew and start behind "
    "this position"
)
_ROLLED_BACK = (
    "compare the tables concerned with the upstream's behind this transaction; copy them anew and start behind this "
    "position"
)
_TOO_MANY = (
    "a transaction of more rows than are held back was not committed, or rolled back to a savepoint: copy the tables "
    "concerned anew and start behind this position"
)

_OLD = (
    "of a server before MySQL 5.1 or MariaDB 5.1",
    "no later server writes it of its own: make a fresh copy of the tables and begin a new log behind this position",
)
_REFUSED = {
    # START_V3, LOAD, SLAVE, CREATE_FILE, EXEC_LOAD, NEW_LOAD, and rows from before 5.1 was released.
    **dict.fromkeys((1, 6, 7, 8, 10, 12, 20, 21, 22), _OLD),
    binlog.INCIDENT: (
        "INCIDENT, the upstream lost events here and says so",
        "nobody knows what they changed: begin a new log behind this position, on a fresh copy of the tables",
    ),
    binlog.MARIADB_START_ENCRYPTION: (
        "START_ENCRYPTION, the file is encrypted from here on",
        "SET GLOBAL encrypt_binlog = OFF needs a restart upstream; then begin a new log in a file behind this one",
    ),
}
_NOT_KNOWN = (
    "it is not known, nor marked as one that may be ignored",
    "the upstream is newer than this version, or of a maker of its own: upgrade Tailrace, or switch off upstream "
    "what writes such events and begin a new log behind this position",
)

_COMPARE = "compare with mysqlbinlog at this position; report it with the relay file"

# Of the tables whose decoders are kept, each of which takes some kilobytes.
_MOST_COLUMNS = 200_000

_BEGIN = b"BEGIN"
_BRACKETS = (_BEGIN, b"COMMIT")
_UNKNOWN: Any = object()
# Each transaction says its server, of which a log has few.
_encoded_server_id = lru_cache(encode_long)

# Where consumers have their positions.
_CHANNELS = ("tailrace", "relay_log_info")

#: records held before a transaction larger than an epoch is handed to Kafka in part, and bytes of binlog
SPILL_RECORDS = 50_000
SPILL_BYTES = 64 << 20


class EventDecoder:
    """Turns relay blocks into the open epoch's records.

    Args:
        spill: called with the epoch when a single transaction outgrows memory; takes its records away.
        versions: fingerprint (hex) per schema and table, as the log knows them so far; kept up to date.
        prepared: the XA transactions that are open where decoding begins; kept up to date.
        schema_name: what names a structure's schema on the wire.
        accounts: whether statements on accounts, which may hold passwords, are published.
        structures: the tables' structures where decoding begins; kept up to date.
        skip: what to pass over that cannot be replicated.
        engine_of: the storage engine that a table has upstream, of which its CREATE TABLE says none; None if nobody
            knows.
    """

    def __init__(
        self,
        flavor: Flavor,
        tables: TableFilter,
        limits: EpochLimits,
        tracker: GtidTracker,
        versions: dict[tuple[str, str], str],
        spill: Callable[[OpenEpoch], None],
        prepared: PreparedTransactions,
        schema_name: SchemaName = fingerprint_of,
        accounts: bool = False,
        structures: Structures | None = None,
        skip: Sequence[SkipRule] = (),
        engine_of: Callable[[SchemaChanged], str | None] = lambda change: None,
    ) -> None:
        self._engine_of = engine_of
        #: of MariaDB, which of the sub-directory's transactions are in ``tracker`` already
        self.repetitions = repetitions(tracker.snapshot())
        self._accounts = accounts
        self._skipping = Skipping(skip)
        self.structures = structures or Structures(flavor, tables, {}, None)
        self._flavor, self._tables, self._limits = flavor, tables, limits
        self._spill, self._schema_name = spill, schema_name
        self.tracker = tracker
        self.versions = versions
        self.prepared = prepared
        self._partial: dict[tuple[str, str], set[str]] = {}
        self.scanner = GroupScanner()
        self.epoch = OpenEpoch(0)
        self._group_pos: int | None = None
        self.stop_at: Callable[[], bool] | None = None
        #: called when the binlog has rows of another pipeline's positions for the first time
        self.on_channels: Callable[[], None] = lambda: None
        self.stopped = False
        self._checksum = 0
        self._place = RelayPosition("", "", 0)
        self._event_pos = 0
        self._file_name, self._offset = b"", 0
        self._by_id: dict[bytes, RowsTable | None] = {}
        self._with_triggers: set[bytes] = set()
        self._by_body: dict[bytes, RowsTable | None] = {}
        self._columns_known = 0
        self._usual_begin = b""
        self._maps: dict[bytes, bytes] = {}  # the TABLE_MAP that `_by_id` has the table of
        self._published = b""
        self._extra = 0
        self._replays = False
        self._group_seq = 0
        self._gtid: str | None = None
        self._group_begin(0, 0, 0)

    # -- walking ---------------------------------------------------------------------------------

    def enter_file(self, format_description: bytes, subdir: str, file: str) -> None:
        """Begin in a file, which may be its middle."""
        self._checksum = (
            binlog.CHECKSUM_SIZE
            if binlog.checksum_algorithm(format_description) == binlog.CHECKSUM_CRC32
            else 0
        )
        self._by_id.clear()
        self._maps.clear()
        self._with_triggers.clear()
        self._place = RelayPosition(subdir, file, 0)
        self._file_name = encode_bytes(upstream_file(file).encode())
        self._offset = part_offset(file)

    def next_file(self, subdir: str, file: str) -> None:
        """The log goes on at the start of another file.

        Raises:
            DecodeError: TR415, the file before ended within a transaction too large to take back.
        """
        if self.scanner.in_group:
            self._drop_group()
        self.scanner.reset()
        self._group_pos = None
        if self._place.subdir not in ("", subdir):
            self.repetitions = repetitions(self.tracker.snapshot())
        self._place = RelayPosition(subdir, file, 0)

    def _drop_group(self) -> None:
        """The upstream died while it wrote the transaction: it never took place."""
        log.warning("incomplete_transaction_dropped", gtid=self._gtid, file=self._place.file)
        self._take_back(self.epoch.seq - self._group_seq)
        self._group_begin(0, 0, 0)

    def _take_back(self, rows: int) -> None:
        """The open group's last rows did not happen."""
        if rows > len(self.epoch.records):
            raise DecodeError(
                "TR415", "rows did not take place after all, and were handed on already", hint=_TOO_MANY
            )
        self.epoch.drop_last(rows)

    def run(self, data: bytes, i: int, base: int) -> int:
        """Walk events from ``data[i]``.

        Args:
            base: the file position of ``data[0]``.

        Returns:
            the offset it stopped at: the end of ``data``; behind a group that made the epoch due (or that the
            producer is to stop behind); or, with ``group_start`` set, at a DDL whose group must not share
            the open epoch with what came before.

        Raises:
            DecodeError: with the event's position and GTID.
        """
        self._published = encode_long(time.time_ns() // 1_000_000)
        try:
            return self._walk(data, i, base, nested=False)
        except TailraceError as error:
            raise self._placed(error) from error
        except (LookupError, ValueError, struct.error, RecursionError, MemoryError) as error:
            raise DecodeError(
                "TR405",
                f"an event cannot be decoded: {type(error).__name__}: {str(error)[:500]}",
                where=self._where(),
                hint=_COMPARE,
            ) from error

    def _walk(self, data: bytes, i: int, base: int, nested: bool) -> int:
        """Hot: what nearly every transaction consists of is taken in right here; age is looked at once a block."""
        end, limits = len(data), self._limits
        late = self.epoch.is_late(limits)
        checksum = 0 if nested else self._checksum
        by_id, scanner = self._by_id, self.scanner
        kind_size_table, rows, table_map, maps = _KIND_SIZE_TABLE, ROWS, binlog.TABLE_MAP, self._maps
        gtid_event, query, xid = binlog.GTID, binlog.QUERY, binlog.XID
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
                if table is None or self._skip_group:
                    i = behind
                    continue
                if table is _UNKNOWN:
                    raise DecodeError("TR411", "a rows event without its TABLE_MAP")
                if source is None:
                    source, times = self._source()
                    epoch, counts_of = self.epoch, self.epoch.counts.get
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
                if doubt is not None and not self._sure(head, data, i, p, stop):
                    i = behind
                    continue
                z = self._event_pos + self._offset << 1
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
                    seq = self._portions(head, data, p, stop, seq, place)
                epoch.seq = seq
                counts = counts_of(decoder) or self._first_touch(decoder)
                counts[form.column] += seq - before
                if len(records.keys) >= SPILL_RECORDS:
                    self._spill(epoch)
            elif kind == table_map:
                known = maps.get(table_id)
                if (
                    known is None
                    or not data.startswith(known, i + _TABLE_MAP_AT)
                    or size - checksum != len(known) + _TABLE_MAP_AT
                ):
                    self._table_map(table_id, data[i + _TABLE_MAP_AT : behind - checksum])
            elif nested:
                if not self._inside(kind, data[i:behind], 0):
                    return i
            else:
                if kind == gtid_event and size >= _GTID_EVENT_SIZE:
                    self._begin_mysql(data, i)
                elif kind == query and self._begins(data, i, size):
                    pass
                elif kind == xid and scanner.state:
                    scanner.close()
                    self._end(size)
                elif not self._control(kind, data, i, behind):
                    return i
                if not scanner.state and (late or self.stopped or self.epoch.is_full(limits)):
                    return behind
                checksum, source = self._checksum, None
            i = behind
        return i

    def _portions(self, head: RowsHead, data: bytes, p: int, stop: int, seq: int, place: bytes) -> int:
        """The further rows of a large event, handed on when they are too many to be held; the next row's number.

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
            self._unpacked(sum(map(len, records.values[held:])))
        if p != stop:
            raise IndexError("a row image overruns its event")
        return seq

    def _unpacked(self, size: int) -> None:
        """So many bytes more are held than the log has: they were compressed there, or are rows of a large event."""
        self._extra += size
        if self._extra >= SPILL_BYTES or len(self.epoch.records) >= SPILL_RECORDS:
            self._extra = 0
            if self.epoch.records:
                self._spill(self.epoch)

    def _control(self, kind: int, data: bytes, i: int, behind: int) -> bool:
        """An event outside the row path. False: it is a DDL that needs an epoch of its own."""
        event = data[i:behind]
        has_checksum = bool(self._checksum)
        if kind in _GTIDS:
            self.scanner.feed(kind, event, has_checksum)
            self._begin(kind, event)
            return True
        if kind == binlog.FORMAT_DESCRIPTION:
            self.enter_file(event, self._place.subdir, self._place.file)
            return True
        if kind == binlog.QUERY:
            text = binlog.query_text(event, has_checksum)
            if (
                text not in _BRACKETS
                and not self._skip_group
                and not self._query(event, text, self._checksum)
            ):
                return False
            if self.scanner.statement(text):
                self._end(behind - i)
            return True
        if kind == binlog.MARIADB_QUERY_COMPRESSED:
            plain = plain_event(event, self._checksum)
            if not self._skip_group and not self._query(plain, binlog.query_text(plain, False), 0):
                return False
        elif kind in COMPRESSED_ROWS:
            plain = plain_event(event, self._checksum)
            self._walk(plain, 0, 0, nested=True)
            self._unpacked(len(plain))
        elif kind == binlog.TRANSACTION_PAYLOAD:
            if not self._payload(event):
                return False
        elif kind == binlog.XA_PREPARE:
            self._xa_prepare(event)
        elif kind == binlog.EXECUTE_LOAD_QUERY:
            self._load_data(event, self._checksum)
        elif kind in _TEXTS:
            self._text = event[binlog.HEADER_SIZE + _TEXTS[kind] : len(event) - self._checksum]
        elif kind == binlog.MARIADB_GTID_LIST and not self._offset:
            self.repetitions.listed(event)
        elif kind != binlog.XID and kind not in _SKIPPED:
            self._refuse(kind, event)
        if kind not in binlog.INSIDE_GROUP:
            was_inside = self.scanner.in_group
            if self.scanner.feed(kind, event, has_checksum) and was_inside:
                self._end(behind - i)
        return True

    def _begins(self, data: bytes, i: int, size: int) -> bool:
        """Whether a QUERY event is a BEGIN; it is taken in if so. Every transaction has one."""
        usual = self._usual_begin
        same_size = usual and size - self._checksum == len(usual) + _QUERY_AT
        if not (same_size and data.startswith(usual, i + _QUERY_AT)):
            end = i + size - self._checksum
            if data[end - 5 : end] != _BEGIN or binlog.query_text_at(data, i) != end - 5:
                return False
            self._usual_begin = data[i + _QUERY_AT : end]
        self.scanner.statement(_BEGIN)
        return True

    # -- transaction groups ----------------------------------------------------------------------

    def _begin_mysql(self, data: bytes, i: int) -> None:
        """MySQL's usual GTID event at ``data[i]`` opens a group: what ``_begin`` does, with a fourth of its calls."""
        server_id, source, number, committed = _GTID_EVENT(data, i)
        micros = committed >> 8 if committed < 1 << 63 else binlog.original_micros(data, i)
        if number < 1:
            binlog.check_number(number)
        self._group_begin(binlog.GTID, server_id, micros // 1000)
        self._group_pos = self._event_pos
        self.scanner.open(source, number)
        self._gtid = f"{before_number(source)}{number}"
        self._skip_group = self.tracker.contains(source, number)

    def _begin(self, kind: int, event: bytes) -> None:
        """A GTID event opens a group."""
        (server_id,) = _SERVER_ID(event)
        self._group_begin(kind, server_id, binlog.commit_ms(event))
        self._group_pos = self._event_pos
        scanner = self.scanner
        self._gtid = scanner.gtid() or None
        # After a switch to another server its files may hold transactions that we have already.
        if kind == binlog.MARIADB_GTID:
            assert isinstance(scanner.source, int)
            self._skip_group = self.repetitions.is_one(scanner.source, server_id, scanner.number)
        else:
            self._skip_group = scanner.source is not None and self.tracker.contains(
                scanner.source, scanner.number
            )
        if kind == binlog.MARIADB_GTID and event[31] & FL_PREPARED_XA and not self._skip_group:
            self._xa_start()

    def _group_begin(self, kind: int, server_id: int, commit_ms: int) -> None:
        self._gtid = None
        self._skip_group = self._xa_open = self._xa = False
        self._text = b""
        self._savepoints = Savepoints()
        self._skipped: list[tuple[str, str, str]] = []
        self._server_id, self._commit_ms = server_id, commit_ms
        self._group_seq = self.epoch.seq
        self._has_gtid = kind not in (0, binlog.ANONYMOUS_GTID)

    def _end(self, size: int) -> None:
        """A group is whole."""
        if self._xa_open:
            raise DecodeError(
                "TR407",
                "an XA transaction ended without XA PREPARE: it mixes engines and was rolled back",
                hint=_MIXED_ENGINES,
            )
        scanner = self.scanner
        if self._has_gtid and scanner.source is not None:
            self.tracker.add(scanner.source, scanner.number, scanner.server_id)
        if self._xa or not self._skip_group:
            begun = self._event_pos if self._group_pos is None else self._group_pos
            self.epoch.add_group(self._gtid, self._commit_ms, self._event_pos + size - begun)
            if self._skipped:
                self.epoch.skipped.update(self._skipped)
        if self.stop_at is not None and self.stop_at():
            self.stopped = True
        self._group_pos = None
        self._group_begin(0, 0, 0)

    @property
    def oldest_ms(self) -> int:
        """When the open epoch's first transaction, or the open group, was committed, ms; 0 if nothing is open."""
        is_open = self.scanner.in_group and not self._skip_group
        return self.epoch.first_commit_ms or (self._commit_ms if is_open else 0)

    @property
    def whole_records(self) -> int:
        """How many of the open epoch's records at hand belong to transactions that are whole."""
        epoch = self.epoch
        whole = self._group_seq if self.scanner.in_group else epoch.seq
        return max(0, whole - epoch.seq + len(epoch.records))

    @property
    def group_start(self) -> RelayPosition | None:
        """Where the open group begins."""
        if self._group_pos is None:
            return None
        return RelayPosition(self._place.subdir, self._place.file, self._group_pos)

    # -- statements ------------------------------------------------------------------------------

    def _query(self, event: bytes, text: bytes, checksum: int) -> bool:
        """A QUERY event. False: a DDL that must wait until the open epoch is sealed."""
        if text.startswith(b"XA "):
            self._xa_statement(text)
            return True
        return self._statement(event, checksum)

    def _statement(self, event: bytes, checksum: int) -> bool:
        """A QUERY event that frames nothing. False: a DDL that must wait until the open epoch is sealed."""
        query = parse_query_event(event[binlog.HEADER_SIZE : len(event) - checksum])
        if self._tables.folds:
            query = in_lower_case(query, self._flavor)
        statement = classify(query.statement, query.default_db, self._flavor, sql_mode=query.sql_mode or 0)
        if statement.category is Category.TRANSACTION:
            self._transaction_statement(statement.kind, query.statement)
        elif statement.category is Category.IGNORED:
            log.info("statement_not_replicated", kind=statement.kind, reason=statement.reason)
        elif family(statement.kind) == "accounts" and not self._accounts:
            log.info("statement_not_replicated", kind=statement.kind, reason=_ACCOUNTS)
        elif query.alter_flags in (_START_ALTER, _ROLLBACK_ALTER):
            # A ROLLBACK ALTER has the error that ended it: nothing was changed.
            log.info("alter_phase_skipped", flags=query.alter_flags)
        elif query.error_code:
            self._refuse_failed(query)
        elif statement.category is Category.OBJECT or (
            statement.category is Category.DDL and not statement.creates_with_select
        ):
            return self._ddl(query, statement, binlog.header(event).timestamp)
        else:
            self._refuse_statement(query, statement)
        return True

    def _load_data(self, event: bytes, checksum: int) -> None:
        """LOAD DATA logged as text, behind the pieces of its file."""
        if not self._skip_group:
            self._statement(load_query(event[: len(event) - checksum]), 0)

    def _transaction_statement(self, kind: str, text: str) -> None:
        """A savepoint is remembered; what was rolled back did not happen.

        Rows of tables without transactions, which would stay, are never among them: servers log those in groups of
        their own. Source: MySQL sql/log_event.cc, Rows_log_event; MariaDB sql/log.cc, use_trans_cache.
        """
        if kind == "SAVEPOINT":
            self._savepoints.add(savepoint_name(text), self.epoch.seq)
        elif kind in ("ROLLBACK", "ROLLBACK TO") and self.epoch.seq > self._group_seq:
            kept: int | None = self._group_seq
            if kind == "ROLLBACK TO":
                kept = self._savepoints.find(savepoint_name(text))
            if kept is None or self.epoch.ddl is not None:
                raise DecodeError(
                    "TR407",
                    f"rows are rolled back, and it is not sure which: {text[:200]}",
                    hint=_ROLLED_BACK,
                )
            self._take_back(self.epoch.seq - kept)

    def _ddl(self, query: QueryEvent, statement: ClassifiedStatement, timestamp: int) -> bool:
        if not self._concerns_us(statement):
            return True
        if self.epoch.seq > self._group_seq or self.epoch.ddl is not None:
            raise DecodeError("TR404", f"{statement.kind} behind row changes of the same transaction")
        if not self.epoch.empty:
            return False
        change = epoch_ddl(query, statement, self._flavor, timestamp)
        change = self._with_engine(change)
        tables = [replace(t, before=self._fingerprint_of(t.db, t.table)) for t in change.tables]
        self.structures.apply(change, statement, self._here())
        tables = [
            replace(t, after=self._tracked_fingerprint(t.renamed_to_db or t.db, t.renamed_to or t.table))
            for t in tables
        ]
        self.epoch.ddl = change = replace(change, tables=tuple(tables))
        for table in change.tables:
            # Whatever the table is now, its next rows state its structure anew.
            self._forget(table.db, table.table)
            if table.renamed_to is not None:
                self._forget(table.renamed_to_db or table.db, table.renamed_to)
        self._by_body.clear()
        self._maps.clear()
        return True

    def _with_engine(self, change: SchemaChanged) -> SchemaChanged:
        """With the engine that a CREATE TABLE took by default: the binlog does not say which one that was."""
        mode = change.sql_mode or 0
        if change.kind != "CREATE TABLE" or not takes_default_engine(
            change.statement, self._flavor, sql_mode=mode
        ):
            return change
        engine = self._engine_of(change)
        if engine is None:
            log.warning("default_engine_unknown", statement=change.shown[:200])
            return change
        return replace(change, settings=(*change.settings, ("default_storage_engine", engine)))

    def _fingerprint_of(self, db: str, table: str) -> str | None:
        """Of the structure that a table's last rows had, or that it has by its definition."""
        return self.versions.get((db, table)) or self._tracked_fingerprint(db, table)

    def _tracked_fingerprint(self, db: str, table: str) -> str | None:
        """Of the structure that a table's next rows will have, where the definition says so for sure."""
        structure = self.structures.after((db, table))
        # A registry would have to be told of the structure before it had a name.
        if structure is None or self._schema_name is not fingerprint_of:
            return None
        return fingerprint_of(structure).hex()

    def _forget(self, db: str, table: str) -> None:
        self.versions.pop((db, table), None)
        self._partial.pop((db, table), None)

    def _concerns_us(self, statement: ClassifiedStatement) -> bool:
        if statement.category is Category.OBJECT:
            return statement.program is None or self._tables.allows(*statement.program)
        if statement.database is not None:
            return self._tables.allows_database(statement.database)
        names = [(t.db, t.table) for t in statement.tables]
        names += [(t.renamed_to_db or t.db, t.renamed_to) for t in statement.tables if t.renamed_to]
        # Of a statement on both replicated and excluded tables the channel takes its part, or stops.
        return any(self._tables.allows(db, table) for db, table in names)

    def _refuse_failed(self, query: QueryEvent) -> None:
        raise DecodeError(
            "TR416",
            f"a statement failed upstream with error {query.error_code} after changing something: "
            f"{query.statement[:200]}",
            hint="see what it did upstream, do the same downstream by hand, and start behind this position",
        )

    def _refuse_statement(self, query: QueryEvent, statement: ClassifiedStatement) -> None:
        """It may be passed over if its text tells all tables that it changes, and the rules name them."""
        what, hint = _UNLOGGED.get(statement.category, (f"is not understood: {statement.reason}", _BY_HAND))
        error = DecodeError("TR409", f"a statement {what}: {query.statement[:200]}", hint=hint)
        if statement.category is Category.DML:
            dml = read_dml(query.statement, query.default_db, self._flavor, sql_mode=query.sql_mode or 0)
            named = dml.tables if dml else ()
        else:
            named = statement.tables
        tables = [(name.db, name.table) for name in named]
        if self._tables.folds:
            tables = [(lowered(db), lowered(table)) for db, table in tables]
        if statement.category is Category.FILES and not any(self._tables.allows(*name) for name in tables):
            return
        self._skipped += self._skipping.passes_over("statement", tables, error, self._where())

    def _refuse(self, kind: int, event: bytes) -> None:
        if binlog.header(event).flags & binlog.FLAG_IGNORABLE:
            return
        what, hint = _REFUSED.get(kind, _NOT_KNOWN)
        raise DecodeError("TR410", f"event type {kind}: {what}", hint=hint)

    # -- rows ------------------------------------------------------------------------------------

    def _table_map(self, table_id: bytes, content: bytes) -> None:
        """A TABLE_MAP other than the last with this id: its flags and what follows them."""
        body = content[2:]
        table = self._by_body.get(body, _UNKNOWN)
        self._by_id[table_id] = self._learn_table(body) if table is _UNKNOWN else table
        if body in self._by_body and len(self._maps) < 10_000:
            self._maps[table_id] = content
        else:
            self._maps.pop(table_id, None)
        (self._with_triggers.add if content[1] & _HAS_TRIGGERS else self._with_triggers.discard)(table_id)

    def _learn_table(self, body: bytes) -> RowsTable | None:
        """A TABLE_MAP not met before: its table, or None if it is not replicated."""
        db, table, _ = table_names(body)
        if len(self._by_body) > 10_000 or self._columns_known > _MOST_COLUMNS:
            self._by_body.clear()
            self._columns_known = 0
        if not self._tables.allows(db, table):
            self._by_body[body] = None
            if (db, table) == _CHANNELS:
                self.on_channels()
            return None
        if self._skip_group:
            # What it says may be older than what is tracked; nobody will read its rows here.
            return None
        structure = self.structures.structure(body, self._here())
        self._columns_known += len(structure.columns)
        learned = self._by_body[body] = RowsTable(structure, self._schema_name)
        return learned

    def _here(self) -> ReadPosition:
        return ReadPosition(replace(self._place, pos=self._event_pos), self.tracker)

    def _parsed(self, form: RowsForm, data: bytes, i: int) -> tuple[RowsHead, int] | None:
        """A beginning not met before; None if the event is passed over."""
        try:
            return form.parse(data, i)
        except DecodeError as error:
            self._pass_over(form.name, error)
            return None

    def _sure(self, head: RowsHead, data: bytes, i: int, p: int, end: int) -> bool:
        """Whether an event of doubtful kind is one to take in; False if it is passed over."""
        structure = head.decoder.structure
        try:
            if head.doubt is Doubt.DOCUMENT:
                nobody: Any = {}
                head.decode(data, p, end, 0, b"", b"", b"", b"", nobody.get, nobody.get, nobody)
            elif self._flavor == "mariadb":
                text = self._text.decode(errors="replace")
                verb = verb_on(text, structure.db, structure.table, self._flavor)
                triggers = data[i + 19 : i + 25] in self._with_triggers
                with_key = head.doubt is Doubt.STATEMENT_WITH_KEY
                if verb == "REPLACE" or (verb == "INSERT" and triggers) or (verb is None and with_key):
                    raise update_lacks(verb)
        except DecodeError as error:
            self._pass_over((structure.db, structure.table), error)
            return False
        return True

    def _pass_over(self, table: tuple[str, str], error: DecodeError) -> None:
        """Count an event whose images lack something, if the rules say so; else raise its error."""
        if error.code != "TR413":
            raise error
        if self._text:
            error.what += f"; the statement: {self._text[:200].decode(errors='replace')}"
        error.where = Where(table=".".join(table))
        error.hint = LACKING
        self._skipped += self._skipping.passes_over("image", [table], error, self._where())

    def _source(self) -> tuple[bytes, bytes]:
        """What `source` says of the open transaction, as Avro bytes: before and behind an event's position."""
        text = self._gtid.encode() if self._gtid else b""
        gtid = b"\2" + VARINT[len(text) << 1] + text if text else b"\0"
        server_id = _encoded_server_id(self._server_id)
        return server_id + gtid + self._file_name, encode(self._commit_ms << 1) + self._published

    def _first_touch(self, decoder: RowDecoder) -> list[int]:
        """The epoch's first rows of a structure; it is published if the log does not know it as current."""
        structure = decoder.structure
        counts = self.epoch.counts[decoder] = [0, 0, 0]
        name, fingerprint = (structure.db, structure.table), decoder.fingerprint.hex()
        if structure.is_full:
            known = self.versions.get(name) == fingerprint
            self.versions[name] = fingerprint
        else:
            # One table has many of these at a time, so none of them is current: each is stated once a run.
            told = self._partial.setdefault(name, set())
            known = fingerprint in told
            told.add(fingerprint)
        if not known:
            self.epoch.structures[decoder] = StructureVersion(
                self.epoch.number,
                structure.db,
                structure.table,
                fingerprint,
                structure.to_json(),
                row_schema(structure).text,
            )
        return counts

    # -- compressed transactions -----------------------------------------------------------------

    def _payload(self, event: bytes) -> bool:
        """False: it begins with a DDL that must wait until the open epoch is sealed."""
        if self._skip_group:
            return True
        prepared = prepared_inside(self._events_inside(event))
        if prepared is None:
            return self._walk_payload(event)
        self._xa_start()
        self._prepared(*prepared, len(event))
        return True

    def _walk_payload(self, event: bytes) -> bool:
        for block in self._events_inside(event):
            if self._walk(block, 0, 0, nested=True) < len(block):
                return False
            self._unpacked(len(block))
        return True

    def _events_inside(self, event: bytes) -> Iterator[bytes]:
        return unpacked(event[binlog.HEADER_SIZE : len(event) - self._checksum])

    def _inside(self, kind: int, event: bytes, checksum: int) -> bool:
        """An event within a compressed or XA transaction. False: a DDL that must wait."""
        if kind == binlog.QUERY:
            text = binlog.query_text(event, bool(checksum))
            framing = text in _BRACKETS or text.startswith((b"XA START ", b"XA END "))
            return framing or self._statement(event, checksum)
        if kind == binlog.EXECUTE_LOAD_QUERY:
            self._load_data(event, checksum)
            return True
        if kind in _TEXTS:
            self._text = event[binlog.HEADER_SIZE + _TEXTS[kind] : len(event) - checksum]
        elif kind == binlog.XA_PREPARE and not self._replays:
            raise DecodeError("TR406", "XA PREPARE without XA START")
        elif kind not in _SKIPPED and kind not in (binlog.XID, binlog.XA_PREPARE):
            self._refuse(kind, event)
        return True

    # -- XA transactions -------------------------------------------------------------------------

    def _xa_start(self) -> None:
        """The open group is an XA transaction: its rows are read when it commits."""
        self._xa = self._xa_open = self._skip_group = True
        if self._group_pos is None:
            self._group_pos = self._event_pos

    def _xa_statement(self, text: bytes) -> None:
        verb, xid = xa_statement(text)
        if verb == "START":
            self._xa_start()
        elif verb == "COMMIT":
            self._replay(self.prepared.committed(xid))
        elif verb == "ROLLBACK":
            self.prepared.rolled_back(xid)

    def _xa_prepare(self, event: bytes) -> None:
        if self._xa_open:
            self._prepared(*xa_prepare(event), len(event))
        elif not self._skip_group:
            raise DecodeError("TR406", "XA PREPARE without XA START")

    def _prepared(self, xid: str, one_phase: bool, size: int) -> None:
        """The open group, which ends with the event of this size, is prepared, or committed at once."""
        begin = self.group_start
        assert begin is not None
        self._xa_open = False
        self.prepared.add(xid, self._gtid, begin, self._event_pos + size)
        if one_phase:
            self._skip_group = False
            self._replay(self.prepared.committed(xid))

    def _replay(self, prepared: PreparedTransaction) -> None:
        """Take a prepared transaction's rows in, as rows of the open group."""
        here = self._place, self._file_name, self._offset, self._checksum, self._event_pos
        self._replays = True
        self.enter_file(self.prepared.format_description(prepared), prepared.relay_dir, prepared.relay_file)
        for block in self.prepared.blocks(prepared):
            i, data = 0, block.data
            while i < len(data):
                behind: int = i + _KIND_SIZE(data, i)[1]
                self._event_pos = block.pos + i
                self._replay_event(data[i:behind])
                i = behind
        self._replays = False
        self.epoch.bytes += prepared.relay_end - prepared.relay_pos
        self._place, self._file_name, self._offset, self._checksum, self._event_pos = here

    def _replay_event(self, event: bytes) -> None:
        kind = event[4]
        if kind in binlog.INSIDE_GROUP:
            self._walk(event, 0, self._event_pos, nested=False)
        elif kind == binlog.TRANSACTION_PAYLOAD:
            self._walk_payload(event)
        elif kind not in _GTIDS and not self._inside(kind, event, self._checksum):
            raise DecodeError("TR404", "DDL within an XA transaction")

    # -- errors ----------------------------------------------------------------------------------

    def _where(self) -> Where:
        return Where(gtid=self._gtid, file=self._place.file, position=self._event_pos)

    def _placed(self, error: TailraceError) -> TailraceError:
        """The error with this place, the table it spoke of, and a remedy."""
        here = self._where()
        error.where = Where(here.gtid, here.file, here.position, error.where.table, self.epoch.number)
        error.hint = error.hint or _COMPARE
        return error
