"""Events that are walked inside other events: compressed transactions, and XA transactions when they commit.

An XA transaction is prepared under one GTID, and committed or rolled back under a later one. Its rows take effect at
the COMMIT, in the order of commits. Until then only its position in the relay log is kept, in memory and in each
epoch's record; its COMMIT reads the events again from there. So neither its size nor the time it stays open costs
memory, and a producer that starts anew finds it again.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Generator, Iterable, Iterator

import structlog

from producer.decode.open_group import GTID_EVENTS, DecodeState
from producer.decode.statements import DdlWaits
from producer.epochs.open_epoch import Records
from producer.events.compressed import unpacked
from relay_store.layout.directory import RelayPosition
from relay_store.read.reader import RelayBlock
from schemas.binlog import framing
from schemas.errors import DecodeError
from schemas.wire.epoch import EpochCommitted, PreparedTransaction

log = structlog.get_logger()

_STATEMENT = re.compile(rb"XA (START|END|COMMIT|ROLLBACK) X'([0-9A-Fa-f]*)',X'([0-9A-Fa-f]*)',(-?\d+)")
# one phase, format id, lengths of gtrid and bqual; source: MySQL control_events.h, XA_prepare_event
_PREPARE = struct.Struct("<BIII")
_FORMAT_BITS = 0xFFFFFFFF

#: reads a prepared transaction's events again, after the FORMAT_DESCRIPTION event of their file
ReadPrepared = Callable[[PreparedTransaction], Iterable[RelayBlock]]


class NestedEvents:
    """Walks compressed and XA transactions.

    Args:
        prepared: the XA transactions that are open where decoding begins; kept up to date.
        read_prepared: reads a prepared transaction's events again.
        walk: walks from an offset of the data, whose file position comes next, and hands out parts; the last argument
            says whether the events are inside another one.
        process: processes an event, whose type comes first, that is no TABLE_MAP or rows event; the last argument is
            the bytes of checksum at its end.
        read_format: goes on in a file with this FORMAT_DESCRIPTION, sub-directory and name.

    Attributes:
        is_replaying: whether the events that are walked are those of an XA transaction that commits.
    """

    def __init__(
        self,
        state: DecodeState,
        prepared: PreparedTransactions,
        read_prepared: ReadPrepared,
        walk: Callable[[bytes, int, int, bool], Generator[Records, None, object]],
        process: Callable[[int, bytes, int], None],
        read_format: Callable[[bytes, str, str], None],
    ) -> None:
        self.prepared, self._state, self._read_prepared = prepared, state, read_prepared
        self._walk, self._process, self._read_format = walk, process, read_format
        self.is_replaying = False

    # -- compressed transactions -----------------------------------------------------------------

    def payload(self, event: bytes) -> Iterator[Records]:
        """A TRANSACTION_PAYLOAD event, which has a whole transaction."""
        prepared = prepared_inside(self._events_inside(event))
        if prepared is None:
            yield from self._walk_payload(event)
        else:
            self._state.groups.transaction.start_xa(self._state.event_pos)
            yield from self._prepare(*prepared, len(event))

    def _walk_payload(self, event: bytes) -> Iterator[Records]:
        for block in self._events_inside(event):
            yield from self._walk(block, 0, 0, True)
            yield from self._state.epoch.hold(len(block))

    def _events_inside(self, event: bytes) -> Iterator[bytes]:
        return unpacked(event[framing.HEADER_SIZE : len(event) - self._state.file.checksum])

    # -- XA transactions -------------------------------------------------------------------------

    def statement(self, text: bytes) -> Iterator[Records]:
        """An XA statement in a QUERY event."""
        verb, xid = xa_statement(text)
        if verb == "START":
            self._state.groups.transaction.start_xa(self._state.event_pos)
        elif verb == "COMMIT":
            yield from self._replay(self.prepared.committed(xid))
        elif verb == "ROLLBACK":
            self.prepared.rolled_back(xid)

    def xa_prepare(self, event: bytes) -> Iterator[Records]:
        """An XA_PREPARE event, which ends a group."""
        transaction = self._state.groups.transaction
        if transaction.awaits_prepare:
            yield from self._prepare(*xa_prepare(event), len(event))
        elif not transaction.is_passed_over:
            raise DecodeError("TR406", "XA PREPARE without XA START")

    def _prepare(self, xid: str, one_phase: bool, size: int) -> Iterator[Records]:
        """The open group, which ends with the event of this size, is prepared, or committed at once."""
        state, transaction = self._state, self._state.groups.transaction
        transaction.awaits_prepare = False
        self.prepared.add(xid, transaction.gtid, state.group_start, state.event_pos + size)
        if one_phase:
            transaction.is_passed_over = False
            yield from self._replay(self.prepared.committed(xid))

    def _replay(self, prepared: PreparedTransaction) -> Iterator[Records]:
        """Read a prepared transaction's events again: its rows are rows of the open group."""
        state = self._state
        file, event_pos = state.file, state.event_pos
        self.is_replaying = True
        try:
            for block in self._read_prepared(prepared):
                i, data = 0, block.data
                while i < len(data):
                    end: int = i + framing.EVENT_SIZE.unpack_from(data, i + framing.SIZE_OFFSET)[0]
                    state.event_pos = block.pos + i
                    yield from self._replay_event(data[i:end], prepared)
                    i = end
        except DdlWaits as waits:
            raise DecodeError("TR404", "DDL within an XA transaction") from waits
        self.is_replaying = False
        state.epoch.size += prepared.relay_end - prepared.relay_pos
        state.file, state.event_pos = file, event_pos

    def _replay_event(self, event: bytes, prepared: PreparedTransaction) -> Iterator[Records]:
        kind = event[4]
        if kind == framing.FORMAT_DESCRIPTION:
            self._read_format(event, prepared.relay_dir, prepared.relay_file)
        elif kind in framing.INSIDE_GROUP:
            yield from self._walk(event, 0, self._state.event_pos, False)
        elif kind == framing.TRANSACTION_PAYLOAD:
            yield from self._walk_payload(event)
        elif kind not in GTID_EVENTS:
            self._process(kind, event, self._state.file.checksum)


class PreparedTransactions:
    """The prepared transactions that are neither committed nor rolled back yet.

    Args:
        known: those of the last epoch.
    """

    def __init__(self, known: Iterable[PreparedTransaction] = ()) -> None:
        self._open = {prepared.xid: prepared for prepared in known}

    def snapshot(self) -> tuple[PreparedTransaction, ...]:
        """All that are open now, oldest first."""
        return tuple(self._open.values())

    def add(self, xid: str, gtid: str | None, begin: RelayPosition, end: int) -> None:
        """A group was prepared; it lies from ``begin`` to offset ``end`` of the same file."""
        if self._open.pop(xid, None) is not None:
            # A server has one prepared transaction of an XID: it lost the other one in a crash.
            log.warning("prepared_transaction_superseded", xid=xid, gtid=gtid)
        self._open[xid] = PreparedTransaction(xid, gtid, begin.subdir, begin.file, begin.pos, end)

    def committed(self, xid: str) -> PreparedTransaction:
        """Remove a committed transaction and return it.

        Raises:
            DecodeError: TR406, it was prepared before this log begins.
        """
        prepared = self._open.pop(xid, None)
        if prepared is None:
            raise DecodeError(
                "TR406",
                f"XA COMMIT {xid}: its rows were logged at its XA PREPARE, before this log begins",
                hint="begin a new log (another kafka.prefix and relay.dir) further back, or at 'current' once "
                "XA RECOVER upstream lists no transaction",
            )
        return prepared

    def rolled_back(self, xid: str) -> None:
        """Remove a rolled-back transaction."""
        if self._open.pop(xid, None) is None:
            log.info("unknown_prepared_transaction_rolled_back", xid=xid)


def xa_statement(text: bytes) -> tuple[str, str]:
    """Verb and XID of an XA statement in the form that servers log.

    Raises:
        DecodeError: TR406, another form.
    """
    match = _STATEMENT.match(text)
    if match is None:
        raise DecodeError("TR406", f"an XA statement is not understood: {text[:200]!r}")
    verb, gtrid, bqual, form = (part.decode() for part in match.groups())
    return verb, f"X'{gtrid.lower()}',X'{bqual.lower()}',{int(form) & _FORMAT_BITS}"


def xa_prepare(event: bytes) -> tuple[str, bool]:
    """XID, in the form of ``xa_statement``, of an XA_PREPARE event, and whether it commits in one phase.

    Raises:
        ValueError, struct.error: the event is too short.
    """
    one_phase, form, gtrid, bqual = _PREPARE.unpack_from(event, framing.HEADER_SIZE)
    begin = framing.HEADER_SIZE + _PREPARE.size
    data = event[begin : begin + gtrid + bqual]
    if len(data) != gtrid + bqual:
        raise ValueError("an XA_PREPARE event ends within its XID")
    return f"X'{data[:gtrid].hex()}',X'{data[gtrid:].hex()}',{form}", bool(one_phase)


def prepared_inside(blocks: Iterable[bytes]) -> tuple[str, bool] | None:
    """What ``xa_prepare`` says of an unpacked TRANSACTION_PAYLOAD; None if it is an ordinary transaction.

    MySQL compresses an XA transaction from its XA START up to its XA_PREPARE, which is the payload's last event.

    Args:
        blocks: of whole events; no more of them are taken than needed.

    Raises:
        ValueError, struct.error: an XA_PREPARE is too short.
    """
    last = b""
    for block in blocks:
        if not last and not _begins_xa(block):
            return None
        at = 0
        while at < len(block):
            begin, at = at, at + framing.header(block, at).size
        last = block[begin:]
    return xa_prepare(last) if last and last[4] == framing.XA_PREPARE else None


def _begins_xa(block: bytes) -> bool:
    return block[4] == framing.QUERY and framing.query_text(
        block[: framing.header(block).size], has_checksum=False
    ).startswith(b"XA START")


def needed_from(epoch: EpochCommitted) -> RelayPosition:
    """From where on the relay log is still needed once this epoch is committed."""
    here = RelayPosition(epoch.relay_dir, epoch.relay_file, epoch.relay_pos)
    begins = [RelayPosition(p.relay_dir, p.relay_file, p.relay_pos) for p in epoch.prepared]
    return min([here, *begins], key=lambda position: position.order)
