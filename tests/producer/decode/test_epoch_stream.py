"""Where epochs end, and what is handed out before: values in, values out."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from producer.decode.decode_rules import DecodeRules
from producer.decode.epoch_stream import EpochStream
from producer.decode.event_decoder import EventDecoder
from producer.decode.nested_events import PreparedTransactions
from producer.epochs.open_epoch import EpochLimits, Now, OpenEpoch, SealedEpoch
from producer.publish_start import prepared_in
from producer.structures.store import Structures
from relay_store.layout.directory import RelayPosition
from relay_store.read.reader import RelayBlock
from schemas.binlog import framing
from schemas.gtid.sets import empty_gtid_set
from schemas.tables import TableFilter
from tests.support.binlogs.decoder import NOW
from tests.support.binlogs.relay_events import event, format_description, gtid, query, xid

SUBDIR, FILE = "00010203-0405-0607-0809-0a0b0c0d0e0f.000001", "mysql-bin.000001"
TABLE = event(
    framing.TABLE_MAP,
    b"\1\0\0\0\0\0\1\0" + b"\1d\0\1t\0" + b"\1\3\0\0" + b"\1\1\0" + b"\4\3\2id" + b"\x08\1\0",
)


def _row(number: int) -> bytes:
    head = b"\1\0\0\0\0\0" + b"\1\0" + b"\2\0" + b"\1\1"
    return event(framing.WRITE_ROWS, head + b"\0" + struct.pack("<i", number))


def _group(number: int, rows: int) -> bytes:
    return b"".join((gtid(number), query(b"BEGIN"), TABLE, *map(_row, range(rows)), xid()))


def _ddl(number: int) -> bytes:
    return gtid(number) + query(b"CREATE TABLE u (a INT)")


def _stream(
    max_rows: int = 1000,
    heartbeat: float = 1e9,
    max_delay: float = 1e9,
    ends: tuple[int, ...] = (),
    clock: Callable[[], Now] = lambda: NOW,
) -> EpochStream:
    tables, structures = TableFilter(), Structures("mysql", TableFilter(), {}, None)
    rules = DecodeRules("mysql", tables, EpochLimits(max_rows, 1 << 40, max_delay, heartbeat))
    decoder = EventDecoder(
        rules,
        OpenEpoch(1, NOW.monotonic),
        empty_gtid_set("mysql").tracker(),
        {},
        structures,
        PreparedTransactions(),
        prepared_in(Path("/nowhere")),
    )
    decoder.leave_file_for(SUBDIR, FILE)
    positions = [RelayPosition(SUBDIR, FILE, end) for end in ends]
    return EpochStream(rules, decoder, structures, RelayPosition(SUBDIR, FILE, 4), clock, positions)


def _taken(stream: EpochStream, *events: bytes) -> list[tuple[int, int, bool] | int]:
    """Of each epoch its rows, its end and whether it is a DDL; of each part that comes before how many rows it has."""
    start = stream.here.pos
    head = format_description() if start == 4 else b""
    block = RelayBlock(SUBDIR, FILE, start, b"".join((head, *events)))
    return [
        (one.record.rows, one.end.pos, one.record.ddl is not None)
        if isinstance(one, SealedEpoch)
        else len(one)
        for one in stream.decode_block(block)
    ]


def _after(*events: bytes) -> int:
    return 4 + len(b"".join((format_description(), *events)))


def test_an_epoch_ends_when_it_is_full_and_a_ddl_is_one_of_its_own() -> None:
    events = [_group(1, 1), _group(2, 2), _group(3, 1), _ddl(4), _group(5, 1)]
    stream = _stream(max_rows=2)
    assert _taken(stream, *events) == [
        (3, _after(*events[:2]), False),
        (1, _after(*events[:3]), False),
        (0, _after(*events[:4]), True),
    ]
    assert [epoch.record.rows for epoch in stream.rest()] == [1]
    assert stream.here == stream.sealed == RelayPosition(SUBDIR, FILE, _after(*events))


def test_an_epoch_ends_where_a_recovery_ended() -> None:
    events = [_group(1, 1), _group(2, 1)]
    end = _after(events[0])
    assert _taken(_stream(ends=(end,)), *events) == [(1, end, False)]


def test_the_time_is_told_from_outside() -> None:
    now = 0.0
    stream = _stream(heartbeat=5.0, clock=lambda: NOW._replace(monotonic=now))
    assert _taken(stream, gtid(1), query(b"BEGIN"), xid()) == []
    assert stream.due_in() == 5.0
    assert list(stream.due()) == []
    now = 5.0
    assert [epoch.record.transactions for epoch in stream.due()] == [1]


def test_an_epoch_that_gets_rows_waits_for_max_delay_and_not_for_the_heartbeat() -> None:
    now = 0.0
    stream = _stream(heartbeat=5.0, max_delay=10.0, clock=lambda: NOW._replace(monotonic=now))
    without_rows = gtid(1) + query(b"BEGIN") + xid()
    groups = [_group(number, 1) for number in range(2, 6)]
    assert _taken(stream, without_rows) == []
    now = 6.0
    assert _taken(stream, *groups[:2]) == []
    now = 10.0
    assert _taken(stream, *groups[2:]) == [(3, _after(without_rows, *groups[:3]), False)]


def test_a_quiet_upstream_gets_an_epoch_that_says_so() -> None:
    now = NOW
    stream = _stream(clock=lambda: now)
    assert _taken(stream, _group(1, 1)) == []
    end, later = stream.here, NOW._replace(monotonic=NOW.monotonic + 60.0, unix_ms=NOW.unix_ms + 60_000)
    now = later
    assert list(stream.heard_nothing(end, later.unix_ms)) == [], "the epoch has rows"
    [epoch] = stream.rest()
    assert epoch.record.complete_ms == epoch.record.last_commit_ms <= later.unix_ms
    assert list(stream.heard_nothing(end, later.unix_ms)) == [], "the last one was just now"
    now = Now(later.monotonic + 10.0, later.unix_ms + 10_000)
    behind = RelayPosition(SUBDIR, FILE, end.pos + 1)
    assert list(stream.heard_nothing(behind, now.unix_ms)) == [], "there is more to read"
    [quiet] = stream.heard_nothing(end, now.unix_ms - 500)
    assert (quiet.record.rows, quiet.record.transactions, quiet.end) == (0, 0, end)
    assert quiet.record.complete_ms == now.unix_ms - 500
    now = Now(now.monotonic + 10.0, now.unix_ms + 10_000)
    assert list(stream.heard_nothing(end, quiet.record.complete_ms)) == [], "nothing was heard since"


def test_an_epoch_without_rows_ends_by_the_heartbeat_within_a_block() -> None:
    now = 0.0
    stream = _stream(heartbeat=5.0, clock=lambda: NOW._replace(monotonic=now))
    without_rows = [gtid(number) + query(b"BEGIN") + xid() for number in (1, 2)]
    assert _taken(stream, without_rows[0]) == []
    now = 5.0
    assert _taken(stream, without_rows[1], gtid(3), query(b"BEGIN")) == [(0, _after(*without_rows), False)]


def test_a_transaction_that_outgrows_memory_is_handed_out_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("producer.decode.event_decoder.PART_RECORDS", 2)
    stream = _stream(max_rows=1)
    event_of_five = _group(1, 5)
    taken = _taken(stream, event_of_five)
    assert taken == [2, 2, (5, _after(event_of_five), False)]


def test_only_whole_transactions_are_handed_out_early() -> None:
    stream = _stream()
    assert _taken(stream, _group(1, 2), gtid(2), query(b"BEGIN"), TABLE, _row(1)) == []
    assert len(stream.hand_over_whole_transactions()) == 2
    assert len(stream.hand_over_whole_transactions()) == 0
