"""The relay store without servers: writing, recovering, rotating, reading, and refusing."""

from __future__ import annotations

import errno
import os
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay_store.layout import directory as layout
from relay_store.layout.directory import RelayPosition
from relay_store.read import reader
from relay_store.read.reader import RelayReader
from relay_store.read.start import InitialPosition, initial_position
from relay_store.write.writer import RelayWriter
from schemas.binlog import framing
from schemas.errors import RelayError
from schemas.gtid.sets import MysqlGtidSet
from schemas.wire.epoch import ORIGIN
from tests.support.binlogs.relay_events import event, format_description, group, rows

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
FIRST = "mysql-bin.000007"
SECOND = "mysql-bin.000008"


@pytest.fixture
def root(tmp_path):
    return tmp_path / "relay"


def fresh(root) -> RelayWriter:
    """A writer with one file that holds its FORMAT_DESCRIPTION."""
    relay = RelayWriter.open(root)
    relay.open_subdir(UUID)
    relay.rotate(FIRST)
    put(relay, format_description())
    return relay


def put(relay: RelayWriter, *events: bytes, whole: bool = True) -> None:
    data = b"".join(events)
    relay.append([data], relay.position.pos + len(data) if whole else None)


def crash(relay: RelayWriter) -> None:
    """What kill -9 leaves: the lock is gone, nothing else is done."""
    os.close(relay._lock)
    os.close(relay._fd)


def read_all(root, start=None, tail=None) -> bytes:
    found = RelayReader(root, start, tail)
    return b"".join(block.data for block in iter(lambda: found.read_block(), None))


def test_the_layout_is_the_one_of_dm(root):
    relay = fresh(root)
    relay.track_gtids(lambda: f"{UUID}:1-3")
    put(relay, *group(1))
    relay.close()
    subdir = f"{UUID}.000001"
    assert (root / "server-uuid.index").read_text() == f"{subdir}\n"
    size = (root / subdir / FIRST).stat().st_size
    assert (root / subdir / "relay.meta").read_text() == (
        f'binlog-name = "{FIRST}"\nbinlog-pos = {size}\nbinlog-gtid = "{UUID}:1-3"\n'
    )
    assert (root / subdir / FIRST).read_bytes()[:4] == framing.MAGIC


def test_a_second_writer_is_refused(root):
    relay = fresh(root)
    with pytest.raises(RelayError, match="TR301"):
        RelayWriter.open(root)
    relay.close()
    RelayWriter.open(root).close()


def test_readers_see_whole_groups_only_after_the_sync(root):
    relay = fresh(root)
    relay.sync()
    found = RelayReader(root, None, relay.tail)
    assert found.read_block().data == format_description()
    put(relay, *group(1))
    assert found.read_block() is None
    relay.sync()
    block = found.read_block()
    assert block.data == b"".join(group(1))
    assert block.end == relay.tail.position
    put(relay, *group(2)[:3], whole=False)
    relay.sync()
    assert found.read_block() is None
    relay.close()


@pytest.mark.parametrize("torn", [group(2)[:3], [b"".join(group(2))[:-1]], [b"\x01"]])
def test_recovery_cuts_the_tail_back_to_the_last_durable_group(root, torn):
    relay = fresh(root)
    put(relay, *group(1))
    relay._sync(force_meta=True)
    durable = relay.position
    put(relay, *torn, whole=False)
    crash(relay)
    again = RelayWriter.open(root)
    assert again.position == durable == again.tail.position
    put(again, *group(2))
    again.close()
    assert read_all(root) == b"".join([format_description(), *group(1), *group(2)])


def test_recovery_removes_files_that_relay_meta_does_not_know(root):
    relay = fresh(root)
    relay.sync()
    (root / relay.subdir / SECOND).write_bytes(framing.MAGIC)
    crash(relay)
    again = RelayWriter.open(root)
    assert again.position.file == FIRST
    assert not (root / again.subdir / SECOND).exists()
    again.close()


def test_recovery_of_a_subdirectory_without_any_file(root):
    relay = fresh(root)
    relay.track_gtids(lambda: f"{UUID}:1-3")
    put(relay, *group(1))
    relay.open_subdir("4d11fa47-71ca-11e1-9e33-c80aa9429562")
    os.close(relay._lock)
    again = RelayWriter.open(root)
    assert again.position is None
    assert again.subdir.endswith(".000002")
    assert again.executed_gtids == f"{UUID}:1-3"
    again.close()


def test_a_file_shorter_than_its_metadata_is_not_trusted(root):
    relay = fresh(root)
    relay.close()
    os.truncate(root / relay.subdir / FIRST, 20)
    with pytest.raises(RelayError, match="TR334"):
        RelayWriter.open(root)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "binlog-name = 7",
        'binlog-name = "x.1"\nbinlog-pos = "4"\nbinlog-gtid = ""',
        'binlog-name = "../x"\nbinlog-pos = 4\nbinlog-gtid = ""',
    ],
)
def test_broken_metadata_stops_with_its_name(root, text):
    relay = fresh(root)
    relay.close()
    (root / relay.subdir / "relay.meta").write_text(text)
    with pytest.raises(RelayError, match="TR306"):
        RelayWriter.open(root)


def test_reading_goes_over_files_and_subdirectories(root):
    relay = fresh(root)
    put(relay, *group(1))
    relay.rotate(SECOND)
    put(relay, format_description(), *group(2))
    relay.open_subdir("4d11fa47-71ca-11e1-9e33-c80aa9429562")
    relay.rotate("other.000001")
    put(relay, format_description(), *group(3))
    relay.sync()
    expected = b"".join(
        [format_description(), *group(1), format_description(), *group(2), format_description(), *group(3)]
    )
    assert read_all(root, None, relay.tail) == expected == read_all(root)
    relay.close()


def test_a_reader_ahead_of_a_recovered_writer_waits(root):
    relay = fresh(root)
    relay.sync()
    begin = relay.position
    ahead = RelayPosition(begin.subdir, SECOND, 4)
    found = RelayReader(root, ahead, relay.tail)
    assert found.read_block(0.01) is None
    relay.rotate(SECOND)
    put(relay, format_description())
    relay.sync()
    assert found.read_block(1).data == format_description()
    relay.close()


def test_a_missing_file_is_named(root):
    relay = fresh(root)
    relay.rotate(SECOND)
    relay.rotate("mysql-bin.000009")
    (root / relay.subdir / SECOND).unlink()
    for tail in (relay.tail, None):
        with pytest.raises(RelayError, match=f"between {FIRST} and .*9 is missing"):
            read_all(root, None, tail)
    gone = RelayPosition(relay.subdir, SECOND, 4)
    with pytest.raises(RelayError, match="TR303"):
        read_all(root, gone, relay.tail)
    relay.close()


def test_without_a_tail_a_torn_last_event_is_left_out(root):
    relay = fresh(root)
    put(relay, *group(1))
    relay.close()
    path = root / relay.subdir / FIRST
    path.write_bytes(path.read_bytes() + group(2)[0][:-1])
    assert read_all(root) == b"".join([format_description(), *group(1)])


def test_an_impossible_event_size_is_refused(root):
    relay = fresh(root)
    put(relay, bytes(64))
    relay.rotate(SECOND)
    with pytest.raises(RelayError, match="TR304"):
        read_all(root, None, relay.tail)
    relay.close()


def test_a_wait_ends_when_the_tail_moves(root):
    relay = fresh(root)
    relay.sync()
    found = RelayReader(root, relay.position, relay.tail)
    put(relay, *group(1))
    timer = threading.Timer(0.05, relay.sync)
    timer.start()
    assert found.read_block(10) is not None
    timer.join()
    relay.close()


def test_a_full_disk_is_an_error_with_a_hint_and_loses_nothing(root, monkeypatch):
    relay = fresh(root)
    put(relay, *group(1))
    relay._sync(force_meta=True)
    whole = relay.position

    def full(fd, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("relay_store.write.writer.os.write", full)
    with pytest.raises(RelayError, match=r"TR320.*No space left.*free disk space") as caught:
        put(relay, *group(2))
    assert caught.value.retryable
    monkeypatch.undo()
    crash(relay)
    again = RelayWriter.open(root)
    assert again.position == whole
    again.close()


def test_a_file_is_never_seen_without_its_first_bytes(root, monkeypatch):
    """Unless a crash left it so."""
    relay = fresh(root)
    folder = root / relay.subdir
    (folder / SECOND).write_bytes(b"")
    third = "mysql-bin.000009"
    write_all, seen = layout.write_all, []

    def looked_at(fd: int, data: bytes) -> None:
        write_all(fd, data[:2])
        seen.append({name: (folder / name).stat().st_size for name in layout.binlog_files(folder)[1:]})
        write_all(fd, data[2:])

    monkeypatch.setattr(layout, "write_all", looked_at)
    for name, sizes in (third, {SECOND: 0}), (SECOND, {SECOND: 2, third: 4}), (SECOND, {SECOND: 4, third: 4}):
        seen.clear()
        relay.rotate(name)
        assert seen[0] == sizes
    relay.close()


def test_cutting_back_drops_a_group_that_is_not_whole(root):
    relay = fresh(root)
    put(relay, *group(1))
    put(relay, *group(2)[:2], whole=False)
    relay.cut_back()
    put(relay, *group(2))
    relay.close()
    assert read_all(root) == b"".join([format_description(), *group(1), *group(2)])


def test_format_description_for_a_start_in_mid_file(root):
    relay = fresh(root)
    put(relay, *group(1))
    relay.sync()
    found = RelayReader(root, relay.position, relay.tail)
    assert found.format_description() == format_description()
    relay.close()


def test_a_log_begins_where_start_toml_says_and_nowhere_else(root):
    assert initial_position(root, "mysql") is None
    relay = fresh(root)
    put(relay, event(framing.PREVIOUS_GTIDS, MysqlGtidSet.parse(f"{UUID}:1-9").encode()))
    relay.close()
    with pytest.raises(RelayError, match=r"TR313.*start\.toml.* is missing"):
        initial_position(root, "mysql")
    pos = 4 + len(format_description())
    relay.write_start(layout.StartPosition(FIRST, pos, f"{UUID}:1-12", relay.subdir, "by hand"))
    begin = initial_position(root, "mysql")
    assert begin == InitialPosition(
        RelayPosition(relay.subdir, FIRST, pos), MysqlGtidSet.parse(f"{UUID}:1-12"), "by hand"
    )
    relay.write_start(layout.StartPosition(FIRST, 9_999, f"{UUID}:1-12", relay.subdir, ORIGIN))
    assert initial_position(root, "mysql") is None, "the mirror has not reached the start"
    relay.write_start(layout.StartPosition(FIRST, 4, f"{UUID}:1-12", relay.subdir, ""))
    with pytest.raises(RelayError, match=r"TR313.*continues epochs"):
        initial_position(root, "mysql")


@settings(deadline=None)  # it writes files
@given(
    sizes=st.lists(st.integers(0, 300), min_size=1, max_size=30),
    block=st.integers(framing.HEADER_SIZE, 400),
    data=st.data(),
)
def test_blocks_hold_whole_events_whatever_their_size(tmp_path_factory, sizes, block, data):
    root = tmp_path_factory.mktemp("relay")
    relay = fresh(root)
    events = [rows(size) for size in sizes]
    put(relay, *events)
    relay.sync()
    starts = [4 + len(format_description())]
    for one in events[:-1]:
        starts.append(starts[-1] + len(one))
    begin = data.draw(st.integers(0, len(events) - 1))
    found = RelayReader(root, RelayPosition(relay.subdir, FIRST, starts[begin]), relay.tail)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "BLOCK_SIZE", block)
        blocks = list(iter(lambda: found.read_block(), None))
    relay.close()
    assert b"".join(b.data for b in blocks) == b"".join(events[begin:])
    assert all(b.pos in starts and (b.end.pos in starts or b.end == relay.tail.position) for b in blocks)


def fail_once(monkeypatch, name: str, nth: int, code: int) -> None:
    """Let the nth call of os.`name` from here on fail, as on a disk that is full, and all later ones too."""
    really, calls = getattr(os, name), 0

    def call(*arguments, **options):
        nonlocal calls
        calls += 1
        if calls >= nth:
            if name == "write" and len(arguments[1]) > 1 and calls == nth:
                return really(arguments[0], arguments[1][: len(arguments[1]) // 2])
            raise OSError(code, os.strerror(code))
        return really(*arguments, **options)

    monkeypatch.setattr(os, name, call)


def busy_turn(relay: RelayWriter) -> None:
    """Every kind of write once: groups, a sync, a next file, a next sub-directory."""
    put(relay, *group(1))
    relay.sync()
    put(relay, *group(2)[:3], whole=False)
    put(relay, *group(2)[3:])
    relay._sync(force_meta=True)
    relay.rotate(SECOND)
    put(relay, format_description(), *group(3))
    relay._sync(force_meta=True)
    relay.open_subdir("4d11fa47-71ca-11e1-9e33-c80aa9429562")
    relay.rotate("other.000001")
    put(relay, format_description(), *group(4))
    relay._sync(force_meta=True)


def whole_files(root) -> dict[str, bytes]:
    names = [f"{d}/{f}" for d in layout.read_index(root) for f in layout.binlog_files(root / d)]
    return {name: (root / name).read_bytes() for name in names}


def go_on(relay: RelayWriter) -> None:
    """What the mirror does: fetch again whatever is behind the place where the relay log stands."""
    first = [format_description(), *group(1), *group(2)]
    files = [(FIRST, first), (SECOND, [format_description(), *group(3)])]
    other = ("other.000001", [format_description(), *group(4)])
    at = [name for name, _ in [*files, other]].index(relay.position.file) if relay.position else None
    if at is None and relay.executed_gtids.endswith("-3"):  # a new sub-directory without its file
        relay.rotate(other[0])
        at = 2
    for i, (name, events) in enumerate([*files, other]):
        if i < at:
            continue
        if i > at:
            if name == other[0]:
                relay.open_subdir("4d11fa47-71ca-11e1-9e33-c80aa9429562")
            relay.rotate(name)
        put(relay, b"".join(events)[relay.position.pos - 4 :])
        relay.track_gtids(lambda i=i: f"{UUID}:1-{i + 2}")
    relay._sync(force_meta=True)


CALLS = [("write", 11), ("fdatasync", 7), ("fsync", 15), ("open", 18), ("mkdir", 1), ("replace", 6)]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize(("name", "nth"), [(n, i) for n, last in CALLS for i in range(1, last + 1)])
def test_a_disk_that_fills_up_at_any_call_is_recovered_from_in_place(root, monkeypatch, name, nth, code):
    intact = fresh(root.with_name("intact"))
    go_on(intact)
    intact.close()
    relay = fresh(root)
    relay.track_gtids(lambda: f"{UUID}:1-3")
    relay._sync(force_meta=True)
    with monkeypatch.context() as patch:
        fail_once(patch, name, nth, code)
        with pytest.raises(RelayError, match="TR320"):
            busy_turn(relay)
    relay.recover()
    assert not list(root.rglob("*.tmp"))
    go_on(relay)
    relay.close()
    assert whole_files(root) == whole_files(root.with_name("intact"))
    RelayWriter.open(root).close()


def test_an_fsync_that_failed_is_not_believed_when_it_is_repeated(root, monkeypatch):
    relay = fresh(root)
    relay._sync(force_meta=True)
    durable = relay.position
    put(relay, *group(1))
    with monkeypatch.context() as patch:
        fail_once(patch, "fdatasync", 1, errno.EIO)
        with pytest.raises(RelayError, match="TR302"):
            relay.sync()
    relay.close()
    again = RelayWriter.open(root)
    assert again.position == durable
    again.close()


def test_a_close_on_a_full_disk_leaves_what_the_next_start_needs(root, monkeypatch):
    relay = fresh(root)
    relay._sync(force_meta=True)
    durable = relay.position
    put(relay, *group(1))
    with monkeypatch.context() as patch:
        fail_once(patch, "write", 1, errno.ENOSPC)
        relay.close()
    again = RelayWriter.open(root)
    assert again.position == durable
    again.close()


def test_a_small_file_is_written_whole_or_not_at_all(root, monkeypatch):
    root.mkdir()
    layout.write_index(root, [f"{UUID}.000001"])
    with monkeypatch.context() as patch:
        fail_once(patch, "write", 1, errno.ENOSPC)
        with pytest.raises(RelayError, match="TR320"):
            layout.write_index(root, [f"{UUID}.000001", f"{UUID}.000002"])
    assert layout.read_index(root) == [f"{UUID}.000001"]
    assert [path.name for path in root.iterdir()] == [layout.INDEX_NAME]


def test_a_purged_begin_is_none_also_if_a_later_sub_directory_has_a_namesake(root):
    relay = fresh(root)
    first = relay.subdir
    relay.write_start(layout.StartPosition(FIRST, 200, f"{UUID}:1-12", first, ORIGIN))
    put(relay, *group(1))
    relay.open_subdir("4d11fa47-71ca-11e1-9e33-c80aa9429562")
    relay.rotate(FIRST)
    put(relay, format_description(), event(framing.PREVIOUS_GTIDS, MysqlGtidSet.parse("").encode()))
    relay.close()
    assert initial_position(root, "mysql").position == RelayPosition(first, FIRST, 200)
    (root / first / FIRST).unlink()
    with pytest.raises(
        RelayError, match=f"TR313.*before {relay.subdir}/{FIRST}.*started at {first}/{FIRST}:200"
    ):
        initial_position(root, "mysql")


def test_sub_directories_that_are_missing(root):
    relay = fresh(root)
    put(relay, *group(1))
    relay.close()
    first = relay.subdir
    gone = "4d11fa47-71ca-11e1-9e33-c80aa9429562"
    layout.write_index(root, [first, f"{gone}.000002", f"{UUID}.000003"])
    with pytest.raises(RelayError, match=f"TR332.*lists {gone}.000002"):
        RelayWriter.open(root)
    with pytest.raises(RelayError, match=f"TR303.*{gone}.000002 is missing"):
        read_all(root)
    (root / first).rename(root / f"{UUID}.000003")
    assert read_all(root) == b"".join([format_description(), *group(1)])
    layout.write_index(root, [f"{UUID}.000003"])
    RelayWriter.open(root).close()


def _read_sound_blocks(found: RelayReader, sound: bytes) -> None:
    while (block := found.read_block()) is not None:
        assert sound.startswith(block.data)


def test_a_flipped_bit_is_never_handed_on(root):
    """Every bit of every event in a file with checksums, one at a time."""
    relay = fresh(root)
    put(relay, *group(1, row_events=1))
    relay.close()
    path = root / f"{UUID}.000001" / FIRST
    sound = path.read_bytes()
    in_use = 8 * (framing.FIRST_POSITION + framing.FLAGS_OFFSET)  # comes and goes upstream, too
    for bit in set(range(8 * len(framing.MAGIC), 8 * len(sound))) - {in_use}:
        flipped = bytearray(sound)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(sound)
        relay = RelayWriter.open(root)  # it checks the file, too
        path.write_bytes(flipped)
        found = RelayReader(root, tail=relay.tail)
        with pytest.raises(RelayError) as caught:
            _read_sound_blocks(found, sound[4:])
        assert caught.value.code == "TR304"
        found.close()
        path.write_bytes(sound)
        relay.close()
