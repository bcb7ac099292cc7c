"""What `tailrace recover` keeps of a relay log's tail, and where it lets an epoch end."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.decode.decode_rules import DecodeRules
from producer.epochs.open_epoch import EpochLimits, EpochWith, LogState, Records
from producer.publish import Publisher
from relay_store.layout import directory as layout
from relay_store.layout.directory import RelayPosition
from relay_store.layout.epoch_ends import RECOVERED_NAME, add_epoch_end, read_epoch_ends
from relay_store.write.whole_groups import keep_whole_groups, server_flavor
from relay_store.write.writer import RelayWriter
from schemas.binlog import framing
from schemas.errors import RelayError
from schemas.gtid.sets import MysqlGtidSet
from schemas.tables import TableFilter
from schemas.wire.epoch import ORIGIN, EpochCommitted
from tests.support.binlogs.relay_events import event, format_description, group

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
SOURCE = "00010203-0405-0607-0809-0a0b0c0d0e0f"
FILE = "mysql-bin.000001"
HEAD = framing.MAGIC + format_description()
GROUPS = [b"".join(group(number, 0)) for number in range(1, 6)]
ENDS = [len(HEAD) + sum(map(len, GROUPS[:n])) for n in range(len(GROUPS) + 1)]


def relay_log(root: Path, data: bytes, vouched: int = 0) -> RelayPosition:
    """A relay log whose relay.meta vouches for so many groups of its file; the file's start."""
    relay = RelayWriter.open(root)
    relay.open_subdir(UUID)
    subdir = f"{UUID}.000001"
    relay.write_start(layout.StartPosition(FILE, 4, "", subdir, ORIGIN))
    relay.rotate(FILE)
    relay.close()
    (root / subdir / FILE).write_bytes(data)
    gtids = f"{SOURCE}:1-{vouched}" if vouched else ""
    layout.write_meta(root / subdir, layout.RelayMeta(FILE, ENDS[vouched], gtids))
    return RelayPosition(subdir, FILE, 4)


def kept(root: Path) -> tuple[int, str]:
    """Where relay.meta stands, and its set."""
    meta = layout.read_meta(root / f"{UUID}.000001")
    assert meta is not None
    return meta.pos, meta.gtid_set


@given(vouched=st.integers(0, 4), cut=st.integers(0, ENDS[-1] - ENDS[0]), garbage=st.binary(max_size=60))
def test_whole_groups_are_kept_and_nothing_behind_them(
    tmp_path_factory: pytest.TempPathFactory, vouched: int, cut: int, garbage: bytes
) -> None:
    root = tmp_path_factory.mktemp("relay")
    size = max(ENDS[vouched], ENDS[-1] - cut)
    log = HEAD + b"".join(GROUPS)
    relay_log(root, log[:size] + garbage, vouched)
    keep_whole_groups(root, "mysql")
    # Garbage may happen to be what was cut.
    while garbage and log[size : size + 1] == garbage[:1]:
        size, garbage = size + 1, garbage[1:]
    whole = max(n for n, end in enumerate(ENDS) if end <= size)
    pos, gtids = kept(root)
    assert (pos, MysqlGtidSet.parse(gtids).count()) == (ENDS[whole], whole)
    relay = RelayWriter.open(root)
    assert relay.position == RelayPosition(f"{UUID}.000001", FILE, ENDS[whole])
    relay.close()


@pytest.mark.parametrize("vouched", [2, 3])
@pytest.mark.parametrize("torn", [0, 7])
def test_groups_in_the_parts_behind_relay_meta_are_kept(tmp_path: Path, vouched: int, torn: int) -> None:
    """Two groups a part; relay.meta still stands at the end of the first part, or in the second one."""
    relay_log(tmp_path, HEAD)
    relay = RelayWriter.open(tmp_path)
    for number, data in enumerate(GROUPS, 1):
        if number in (3, 5):
            assert relay.begin_part(MysqlGtidSet.parse(f"{SOURCE}:1-{number - 1}"))
        relay.append([data], ENDS[number])
        relay.sync()
    relay.close()
    subdir = tmp_path / f"{UUID}.000001"
    last = subdir / layout.binlog_files(subdir)[-1]
    assert layout.part_offset(last.name)
    last.write_bytes(last.read_bytes()[: -torn or None])
    layout.write_meta(subdir, layout.RelayMeta(FILE, ENDS[vouched], f"{SOURCE}:1-{vouched}"))
    keep_whole_groups(tmp_path, "mysql")
    whole = 4 if torn else 5
    assert kept(tmp_path) == (ENDS[whole], f"{SOURCE}:1-{whole}")
    relay = RelayWriter.open(tmp_path)
    assert relay.position is not None
    assert relay.position.upstream == (FILE, ENDS[whole])
    relay.close()


def test_a_flipped_bit_ends_what_is_kept(tmp_path: Path) -> None:
    data = bytearray(HEAD + b"".join(GROUPS))
    data[ENDS[3] + 30] ^= 4
    relay_log(tmp_path, bytes(data), 1)
    keep_whole_groups(tmp_path, "mysql")
    assert kept(tmp_path) == (ENDS[3], f"{SOURCE}:1-3")


def test_without_checksums_only_relay_meta_vouches(tmp_path: Path) -> None:
    head = bytearray(HEAD)
    head[-5] = framing.CHECKSUM_NONE
    relay_log(tmp_path, bytes(head) + b"".join(GROUPS), 2)
    keep_whole_groups(tmp_path, "mysql")
    assert kept(tmp_path)[0] == ENDS[2]


def test_a_running_producer_keeps_its_relay_log_to_itself(tmp_path: Path) -> None:
    relay_log(tmp_path, HEAD)
    relay = RelayWriter.open(tmp_path)
    with pytest.raises(RelayError, match="TR301"):
        keep_whole_groups(tmp_path, "mysql")
    relay.close()


def test_the_file_says_what_kind_of_server_wrote_it(tmp_path: Path) -> None:
    relay_log(tmp_path, HEAD)
    assert server_flavor(tmp_path) == "mysql"
    body = b"\x04\x00" + b"11.4.5-MariaDB-log".ljust(50, b"\0") + bytes(45) + b"\x01"
    (tmp_path / f"{UUID}.000001" / FILE).write_bytes(framing.MAGIC + event(framing.FORMAT_DESCRIPTION, body))
    assert server_flavor(tmp_path) == "mariadb"


def test_the_ends_are_a_list_of_positions(tmp_path: Path) -> None:
    assert read_epoch_ends(tmp_path) == frozenset()
    places = [RelayPosition(f"{UUID}.00000{n}", FILE, 100 * n) for n in (2, 1)]
    for place in (*places, places[0]):
        add_epoch_end(tmp_path, place)
    assert read_epoch_ends(tmp_path) == frozenset(places)
    assert (tmp_path / RECOVERED_NAME).read_text() == (
        f'positions = [\n  "{UUID}.000001/{FILE}:100",\n  "{UUID}.000002/{FILE}:200",\n]\n'
    )


@pytest.mark.parametrize("text", ["positions = [", "other = []", 'positions = ["x"]', "positions = [1]"])
def test_a_damaged_list_stops(tmp_path: Path, text: str) -> None:
    (tmp_path / RECOVERED_NAME).write_text(text)
    with pytest.raises(RelayError, match="TR306"):
        read_epoch_ends(tmp_path)


class KeptLog:
    """An epoch log in memory."""

    def __init__(self) -> None:
        self.epochs: list[EpochCommitted] = []

    def state(self) -> LogState:
        return LogState(self.epochs[-1] if self.epochs else None)

    def begin(self) -> None: ...

    def write(self, records: Records) -> None: ...

    def commit(
        self,
        epoch_with: EpochWith,
        tracked: tuple[tuple[bytes, bytes | None], ...] = (),
    ) -> EpochCommitted:
        self.epochs.append(epoch_with((), 0, ()))
        return self.epochs[-1]

    def abort(self) -> None: ...


@given(st.sets(st.integers(0, 5)), st.integers(1, 5))
def test_an_epoch_ends_at_each_of_them(
    tmp_path_factory: pytest.TempPathFactory, chosen: set[int], transactions: int
) -> None:
    root = tmp_path_factory.mktemp("relay")
    begin = relay_log(root, HEAD + b"".join(GROUPS), 5)
    for number in chosen:
        add_epoch_end(root, RelayPosition(begin.subdir, FILE, ENDS[number]))
    log = KeptLog()
    size = transactions * len(GROUPS[0])
    rules = DecodeRules("mysql", TableFilter(), EpochLimits(1000, size, 1e9, 1e9))

    publisher = Publisher(log, root, None, rules)
    publisher.run(log.state(), threading.Event())
    assert {ENDS[number] for number in chosen} <= {epoch.relay_pos for epoch in log.epochs}
    assert sum(epoch.transactions for epoch in log.epochs) == len(GROUPS)
    assert len({epoch.relay_pos for epoch in log.epochs}) == len(log.epochs)
    assert publisher.reached == RelayPosition(begin.subdir, FILE, ENDS[-1])
    before = list(log.epochs)
    Publisher(log, root, None, rules).run(log.state(), threading.Event())
    assert log.epochs == before
