"""XA statements and events as real servers wrote them, and what an epoch keeps of prepared transactions."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from producer.decode.nested_events import (
    PreparedTransactions,
    needed_from,
    prepared_inside,
    xa_prepare,
    xa_statement,
)
from relay_store.layout.directory import RelayPosition
from schemas.binlog import framing
from schemas.errors import DecodeError
from schemas.wire.epoch import EpochCommitted, PreparedTransaction
from tests.support.binlogs.relay_events import event
from tests.support.epochs.records import epoch_record

# The body that MySQL 9.7 and MariaDB 11.4 log for XA PREPARE 'a','b',7.
PREPARE = bytes.fromhex("00070000000100000001000000") + b"ab"
SUBDIR = "s.000001"


def _prepared(xid: str, pos: int, file: str = "mysql-bin.000001") -> PreparedTransaction:
    return PreparedTransaction(xid, "0-1-1", SUBDIR, file, pos, pos + 50)


def test_statements_and_events_give_the_same_xid() -> None:
    assert xa_statement(b"XA START X'61',X'62',7") == ("START", "X'61',X'62',7")
    assert xa_statement(b"XA COMMIT X'FF00',X'',1") == ("COMMIT", "X'ff00',X'',1")
    assert xa_prepare(event(framing.XA_PREPARE, PREPARE)) == ("X'61',X'62',7", False)
    assert xa_prepare(event(framing.XA_PREPARE, b"\1" + PREPARE[1:])) == ("X'61',X'62',7", True)
    # A format id is written with a sign by some servers' text and never in the event.
    negative = struct.pack("<BiII", 0, -2, 1, 0) + b"a"
    assert xa_prepare(event(framing.XA_PREPARE, negative))[0] == xa_statement(b"XA ROLLBACK X'61',X'',-2")[1]


def test_other_forms_stop() -> None:
    with pytest.raises(DecodeError, match="TR406"):
        xa_statement(b"XA COMMIT 'a'")
    with pytest.raises(ValueError, match="within its XID"):
        xa_prepare(framing.HEADER.pack(1, 38, 1, 99, 0, 0) + PREPARE[:-1])


def test_a_payload_that_ends_in_xa_prepare() -> None:
    start = bytes(13) + b"\0XA START X'61',X'62',7"
    inside = [framing.HEADER.pack(1, kind, 1, 19 + len(body), 0, 0) + body for kind, body in
              ((framing.QUERY, start), (framing.TABLE_MAP, b"xxx"), (framing.XA_PREPARE, PREPARE))]  # fmt: skip
    assert prepared_inside([b"".join(inside)]) == ("X'61',X'62',7", False)
    assert prepared_inside(inside) == ("X'61',X'62',7", False)
    assert prepared_inside(inside[:2]) is None
    assert prepared_inside(inside[1:]) is None
    assert prepared_inside([]) is None


def test_an_xid_that_is_prepared_again_supersedes() -> None:
    """The server knows one transaction of an XID only: the other was lost in its crash."""
    known = PreparedTransactions([_prepared("X'61',X'',1", 100), _prepared("X'62',X'',1", 200)])
    known.add("X'61',X'',1", "0-1-9", RelayPosition(SUBDIR, "mysql-bin.000002", 300), 400)
    assert [(p.xid, p.relay_pos) for p in known.snapshot()] == [("X'62',X'',1", 200), ("X'61',X'',1", 300)]
    assert known.committed("X'61',X'',1").gtid == "0-1-9"
    known.rolled_back("X'62',X'',1")
    known.rolled_back("X'62',X'',1")
    assert known.snapshot() == ()
    with pytest.raises(DecodeError, match="TR406"):
        known.committed("X'61',X'',1")


def test_an_epochs_record_keeps_them() -> None:
    epoch = replace(epoch_record(3), prepared=(_prepared("X'61',X'',1", 100),))
    assert EpochCommitted.decode(epoch.encode()) == epoch


def test_the_relay_log_is_needed_from_the_oldest_open_one_on() -> None:
    epoch = replace(epoch_record(3), relay_dir=SUBDIR, relay_file="mysql-bin.000010", relay_pos=500)
    assert needed_from(epoch) == RelayPosition(SUBDIR, "mysql-bin.000010", 500)
    prepared = (_prepared("b", 700, "mysql-bin.000009"), _prepared("a", 900, "mysql-bin.000002"))
    assert needed_from(replace(epoch, prepared=prepared)) == RelayPosition(SUBDIR, "mysql-bin.000002", 900)
