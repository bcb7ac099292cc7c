"""XA transactions: prepared under one GTID, committed or rolled back under a later one.

Rows take effect at the COMMIT, in its place in the order. Until then all that is kept of a prepared transaction is
its place in the relay log, in memory and in each epoch's record; its COMMIT reads the events again from there. So
neither its size nor the time it stays open costs memory, and a producer that starts anew finds it again.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable

import structlog

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


#: reads a prepared transaction's events again, behind the FORMAT_DESCRIPTION event of their file, which comes first
ReadPrepared = Callable[[PreparedTransaction], Iterable[RelayBlock]]


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
        """It is open no longer; its rows take effect.

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
        """It is open no longer; its rows never take effect."""
        if self._open.pop(xid, None) is None:
            log.info("unknown_prepared_transaction_rolled_back", xid=xid)
