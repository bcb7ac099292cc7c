"""The mirror's inner loop without a socket: framing, checks, made-up events, rotation; plain and compiled."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer.mirror.intake import Intake
from producer.settings import RelaySettings
from producer.upstream.packets import ServerSaid, slow_packet
from relay_store.write.writer import RelayWriter
from schemas.binlog import framing
from schemas.compiled.code import CompiledCode, no_folder
from schemas.errors import RelayError, UpstreamError
from schemas.gtid.sets import MysqlGtidSet, MysqlGtidTracker
from tests.support.binlogs.compiled import compiled_library
from tests.support.binlogs.relay_events import event, format_description, group, gtid, query, rows, xid

UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"
FIRST = "mysql-bin.000001"
SECOND = "mysql-bin.000002"


class Bench:
    """A relay log with an intake, fed with a server's packets."""

    def __init__(self, root, with_compiled: bool) -> None:
        self.code = CompiledCode("mirror", no_folder)
        if with_compiled:
            self.code.library = compiled_library()
        self.relay = RelayWriter.open(root)
        self.relay.open_subdir(UUID)
        self.relay.rotate(FIRST)
        self.gtids = MysqlGtidTracker()
        self.connect()

    def connect(self, begin: int | None = None) -> None:
        self.rest, self.need = b"", 0
        begin = self.relay.position.pos if begin is None else begin
        self.intake = Intake(self.relay, self.gtids, begin, RelaySettings(), code=self.code)
        self.intake.begin()

    def send(self, *events: bytes) -> None:
        self.receive(framed(events))

    def receive(self, data: bytes) -> None:
        self.rest += data
        while len(self.rest) >= self.need and self.rest:
            used, self.need = self.intake.take(self.rest)
            self.rest = self.rest[used:]

    def content(self, file: str = FIRST) -> bytes:
        self.intake.sync()
        return (self.relay.root / self.relay.subdir / file).read_bytes()[4:]


@pytest.fixture(params=[False, True], ids=["plain", "compiled"])
def bench(tmp_path, request):
    bench = Bench(tmp_path, request.param)
    yield bench
    bench.relay.close()


def framed(events, limit: int = framing.MAX_PACKET) -> bytes:
    """Events as a server frames them, with packets of at most `limit` bytes."""
    out = []
    for one in events:
        payload, part = b"\0" + one, None
        while part is None or len(part) == limit:
            part, payload = payload[:limit], payload[limit:]
            out.append(len(part).to_bytes(3, "little") + b"\x07" + part)
    return b"".join(out)


def rotate(name: str, *, timestamp: int = 0, flags: int = framing.FLAG_ARTIFICIAL) -> bytes:
    return event(framing.ROTATE, struct.pack("<Q", 4) + name.encode(), timestamp=timestamp, flags=flags)


@settings(deadline=None)  # it writes files
@given(
    data=st.data(), cuts=st.lists(st.integers(1, 200), min_size=1, max_size=20), with_compiled=st.booleans()
)
def test_events_come_out_whole_however_they_arrive(tmp_path_factory, data, cuts, with_compiled):
    bench = Bench(tmp_path_factory.mktemp("relay"), with_compiled)
    sizes = data.draw(st.lists(st.integers(0, 3), max_size=6))
    events = [format_description(), *[one for n, size in enumerate(sizes, 1) for one in group(n, size)]]
    wire, turn = framed([rotate(FIRST), *events]), 0
    while wire:
        cut = cuts[turn % len(cuts)]
        bench.receive(wire[:cut])
        wire, turn = wire[cut:], turn + 1
    assert bench.content() == b"".join(events)
    assert bench.gtids.snapshot().count() == len(sizes)
    assert bench.relay.boundary == bench.relay.position.pos
    bench.relay.close()


@pytest.mark.parametrize("size", [n * framing.MAX_PACKET - 24 + more for n in (1, 2) for more in (-1, 0, 1)])
def test_an_event_of_about_whole_packets(bench, size):
    large = rows(size)  # with the status byte it fills them exactly if nothing is added
    events = [format_description(), gtid(1), query(b"BEGIN"), large, xid()]
    bench.send(*events)
    assert bench.content() == b"".join(events)


def test_what_the_dump_thread_makes_up_is_not_written(bench):
    copy = event(framing.FORMAT_DESCRIPTION, format_description()[framing.HEADER_SIZE : -4])
    bench.send(rotate(FIRST), format_description(), *group(1))
    expected = bench.content()
    bench.connect()
    bench.send(rotate(FIRST), copy, event(framing.HEARTBEAT, b"x"), event(framing.HEARTBEAT_V2, b"x"))
    assert bench.content() == expected
    bench.send(*group(2))
    assert bench.content() == expected + b"".join(group(2))


def test_only_the_artificial_rotate_changes_the_file(bench):
    bench.send(rotate(FIRST), format_description(), rotate(SECOND, timestamp=1, flags=0))
    assert bench.relay.position.file == FIRST
    before = event(framing.PREVIOUS_GTIDS, MysqlGtidSet.parse(f"{UUID}:1-9").encode())
    bench.send(rotate(SECOND), format_description(), before, *group(10))
    assert bench.content(SECOND) == b"".join([format_description(), before, *group(10)])
    assert str(bench.gtids) == f"{UUID}:1-10"


def test_a_file_that_is_not_the_next_one_is_refused(bench):
    bench.send(rotate(FIRST), format_description())
    with pytest.raises(RelayError, match="TR305"):
        bench.send(rotate("mysql-bin.000003"))


def test_a_wrong_checksum_never_reaches_the_disk(bench):
    bench.send(format_description(), *group(1))
    expected = bench.content()
    broken = bytearray(rows())
    broken[30] ^= 1
    with pytest.raises(RelayError, match="TR304"):
        bench.send(gtid(2), bytes(broken))
    bench.relay.cut_back()
    assert bench.content() == expected
    assert str(bench.gtids) == f"{UUID}:1"


def test_a_gap_is_refused(bench):
    bench.send(format_description())
    with pytest.raises(RelayError, match="TR305"):
        bench.send(event(framing.XID, bytes(8), bench.relay.position.pos + 1))


def test_positions_wrap_at_four_gigabytes(bench):
    bench.send(format_description())
    size = len(xid())
    bench.intake._end = 2**32 - size + 10  # as if the file had grown so far
    body = xid()[framing.HEADER_SIZE : -4]
    header = framing.HEADER.pack(1, framing.XID, 1, size, 10, 0)
    data = header + body
    bench.send(data + struct.pack("<I", zlib.crc32(data)))
    assert bench.intake._end == 2**32 + 10


def test_what_is_here_already_is_passed_over(bench):
    events = [format_description(), *group(1)]
    bench.send(rotate(FIRST), *events)
    bench.intake.sync()
    bench.connect(begin=4)
    bench.send(rotate(FIRST), *events, *group(2))
    assert bench.content() == b"".join([*events, *group(2)])


def test_a_group_counts_only_when_it_is_whole(bench):
    bench.send(format_description(), *group(1), *group(2)[:-1])
    assert bench.relay.boundary == bench.relay.position.pos - sum(map(len, group(2)[:-1]))
    assert str(bench.gtids) == f"{UUID}:1"


def test_the_servers_last_words_come_after_the_events_before_them(bench):
    error = b"\xff\xd4\x04#HY000it is gone"
    wire = framed([format_description()]) + len(error).to_bytes(3, "little") + b"\x02" + error
    with pytest.raises(ServerSaid) as caught:
        bench.receive(wire)
    assert (caught.value.number, caught.value.text) == (1236, "it is gone")
    assert bench.content() == format_description()


def test_an_event_that_disagrees_with_its_packet_is_refused():
    wire = bytearray(framed([rows()]))
    wire[5 + framing.SIZE_OFFSET] += 1
    with pytest.raises(UpstreamError, match="TR208"):
        slow_packet(bytes(wire))
