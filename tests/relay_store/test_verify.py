"""Verifying a relay log: each kind of damage is found, named and placed; what is sound raises no alarm.

`relay_logs/` holds two small relay logs that the mirror made of real servers, MySQL 9.7 and MariaDB 11.4.
"""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay_store.check import file as file_check
from relay_store.check.gtid_chain import GtidChain
from relay_store.check.verify import check_at_start, verify
from relay_store.layout import directory as layout
from relay_store.layout.directory import RelayMeta, RelayPosition
from relay_store.read.reader import RelayReader
from relay_store.write.discard import discard_after
from relay_store.write.writer import RelayWriter
from schemas.binlog import framing
from schemas.errors import RelayError
from schemas.gtid.sets import MysqlGtidSet
from tests.support.binlogs.damage import LOGS, copy_of, events_of, flip
from tests.support.binlogs.relay_events import event, format_description, group, gtid, rows, xid

SOURCE = "00010203-0405-0607-0809-0a0b0c0d0e0f"  # of relay_events.gtid
OTHER = "4d11fa47-71ca-11e1-9e33-c80aa9429562"
NAMES = ["mysql-bin.000001", "mysql-bin.000002", "mysql-bin.000003"]


def previous(last: int) -> bytes:
    gtids = MysqlGtidSet.parse(f"{SOURCE}:1-{last}") if last else MysqlGtidSet()
    return event(framing.PREVIOUS_GTIDS, gtids.encode())


def rotate(name: str) -> bytes:
    return event(framing.ROTATE, struct.pack("<Q", 4) + name.encode())


def put(relay: RelayWriter, *events: bytes) -> None:
    data = b"".join(events)
    relay.append([data], relay.position.upstream[1] + len(data))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three files of two transactions each, in one sub-directory, closed as by a clean stop."""
    root = tmp_path / "relay"
    relay = RelayWriter.open(root)
    relay.open_subdir(SOURCE)
    for number, name in enumerate(NAMES):
        relay.rotate(name)
        put(relay, format_description(), previous(2 * number))
        put(relay, *group(2 * number + 1), *group(2 * number + 2))
        relay.track_gtids(lambda last=2 * number + 2: f"{SOURCE}:1-{last}")
        if name != NAMES[-1]:
            put(relay, rotate(NAMES[number + 1]))
    relay.close()
    return root


def folder_of(root: Path) -> Path:
    return root / layout.read_index(root)[0]


def change_meta(root: Path, **fields: object) -> None:
    meta = layout.read_meta(folder_of(root))
    layout.write_meta(folder_of(root), RelayMeta(**{**meta.__dict__, **fields}))


def codes(root: Path) -> list[str]:
    return [finding.code for finding in verify(root).findings]


@pytest.mark.parametrize("name", sorted(LOGS))
def test_a_servers_own_log_is_sound(name: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    report = verify(root)
    assert (report.findings, report.notes) == ([], [])
    assert report.files == 3
    assert report.events == len(events_of(root))
    check_at_start(root)


def test_an_empty_directory_is_sound(tmp_path: Path) -> None:
    assert verify(tmp_path / "none").sound
    RelayWriter.open(tmp_path / "relay").close()
    assert verify(tmp_path / "relay").sound


def _delete(name: str) -> Callable[[Path], object]:
    return lambda root: (folder_of(root) / name).unlink()


def _truncate(name: str, by: int) -> Callable[[Path], object]:
    def damage(root: Path) -> None:
        path = folder_of(root) / name
        os.truncate(path, path.stat().st_size - by)

    return damage


def _write(name: str, text: str) -> Callable[[Path], object]:
    return lambda root: (root / name.format(subdir=layout.read_index(root)[0])).write_text(text)


def _index(change: Callable[[str], str]) -> Callable[[Path], object]:
    return lambda root: (root / "server-uuid.index").write_text(change(layout.read_index(root)[0]))


def _splice(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    def damage(root: Path) -> None:
        path = folder_of(root) / name
        path.write_bytes(change(path.read_bytes()))

    return damage


def _set(**fields: object) -> Callable[[Path], object]:
    return lambda root: change_meta(root, **fields)


HEAD = len(format_description()) + 4
DAMAGES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a byte of a row": (
        _splice(NAMES[0], lambda d: d[:400] + bytes([d[400] ^ 4]) + d[401:]),
        "TR304",
        "checksum",
    ),
    "the magic": (_splice(NAMES[1], lambda d: b"\xfebim" + d[4:]), "TR304", "magic"),
    "FORMAT_DESCRIPTION is missing": (_splice(NAMES[1], lambda d: d[:4] + d[HEAD:]), "TR304", "FORMAT_DESC"),
    "a size of 3": (
        _splice(NAMES[0], lambda d: d[: HEAD + 9] + b"\3\0\0\0" + d[HEAD + 13 :]),
        "TR304",
        "3 bytes",
    ),
    "a size beyond the file": (
        _splice(NAMES[0], lambda d: d[: HEAD + 9] + b"\0\0\0\x7f" + d[HEAD + 13 :]),
        "TR304",
        "ends within an event",
    ),
    "a finished file lost half an event": (_truncate(NAMES[0], 3), "TR304", "ends within an event"),
    "a finished file lost its last transaction": (
        _truncate(NAMES[0], len(rotate(NAMES[1]) + b"".join(group(2)))),
        "TR335",
        f"is missing: {SOURCE}:2",
    ),
    "a file is missing": (_delete(NAMES[1]), "TR303", f"between {NAMES[0]} and {NAMES[2]}"),
    "the active file is missing": (_delete(NAMES[2]), "TR303", f"refers to {NAMES[2]}, which is missing"),
    "the active file lost bytes": (_truncate(NAMES[2], 5), "TR334", "but the file has only"),
    "relay.meta is missing": (_delete("relay.meta"), "TR333", "relay.meta is missing"),
    "relay.meta is garbled": (_write("{subdir}/relay.meta", "binlog-name = 7"), "TR306", "cannot be read"),
    "relay.meta is empty": (_write("{subdir}/relay.meta", " "), "TR306", "cannot be read"),
    "relay.meta is ahead": (_set(pos=10**6), "TR334", "records 1,000,000 bytes"),
    "relay.meta is ahead by a file": (_set(file="mysql-bin.000004"), "TR303", "mysql-bin.000004"),
    "relay.meta is behind by files": (_set(file=NAMES[0]), "TR334", "2 more files follow"),
    "relay.meta points into an event": (_set(pos=HEAD + 5), "TR334", "points into an event"),
    "relay.meta points into a transaction": (
        _set(pos=HEAD + len(previous(4)) + len(gtid(5)), gtid_set=f"{SOURCE}:1-4"),
        "TR334",
        "points into a transaction",
    ),
    "relay.meta lacks transactions": (_set(gtid_set=f"{SOURCE}:1-5"), "TR336", f"lacks {SOURCE}:6"),
    "relay.meta has transactions of nowhere": (
        _set(gtid_set=f"{SOURCE}:1-9"),
        "TR336",
        f"has {SOURCE}:7-9",
    ),
    "relay.meta has no GTID set": (_set(gtid_set="what"), "TR306", "not a server UUID"),
    "the index names nothing": (
        _index(lambda n: f"{n}\n{OTHER}.000002\n"),
        "TR332",
        "that sub-directory does not exist",
    ),
    "the index is empty": (_index(lambda n: "\n"), "TR306", "not the name of a relay sub-directory"),
    "the index is garbled": (_index(lambda n: n[:-3]), "TR306", "not the name of a relay sub-directory"),
    "the index has a line twice": (_index(lambda n: f"{n}\n{n}\n"), "TR307", "more than once"),
    "the index has a serial twice": (_index(lambda n: f"{n}\n{OTHER}.000001\n"), "TR307", "more than once"),
    "the index is out of order": (_index(lambda n: f"{OTHER}.000002\n{n}\n"), "TR307", "order"),
    "recovered.toml is garbled": (_write("recovered.toml", "positions = 7"), "TR306", "recovered.toml"),
    "start.toml is garbled": (_write("start.toml", "binlog-name = "), "TR306", "start.toml"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_every_kind_of_damage_is_named(name: str, root: Path) -> None:
    damage, code, text = DAMAGES[name]
    assert verify(root).findings == []
    damage(root)
    found = verify(root).findings
    assert any(f.code == code and text in f.message for f in found), found
    assert all(f.location and f.hint for f in found)


AT_START = [
    name
    for name in DAMAGES
    # What only a pass over finished files, or all GTIDs, can tell.
    if not name.startswith(
        ("a byte", "a size", "relay.meta lacks", "relay.meta has", "start.toml", "recovered")
    )
]


@pytest.mark.parametrize("name", AT_START)
def test_a_producer_stops_at_what_can_be_seen_quickly(name: str, root: Path) -> None:
    damage, code, _ = DAMAGES[name]
    damage(root)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    with pytest.raises(RelayError, match=r"TR3\d\d") as caught:
        RelayWriter.open(root)
    assert caught.value.hint
    assert code in codes(root)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_a_damaged_byte_of_the_active_file_stops_a_producer(root: Path) -> None:
    _splice(NAMES[2], lambda d: d[:400] + bytes([d[400] ^ 4]) + d[401:])(root)
    with pytest.raises(RelayError, match=r"TR304.*checksum.*mysql-bin.000003:\d+"):
        RelayWriter.open(root)


def test_a_directory_that_is_not_in_the_index(root: Path) -> None:
    shutil.copytree(folder_of(root), root / f"{OTHER}.000002")
    assert codes(root) == ["TR332"]
    (root / "server-uuid.index").unlink()
    assert codes(root) == ["TR332", "TR332"]
    with pytest.raises(RelayError, match="TR332"):
        RelayWriter.open(root)


def test_what_a_crash_leaves_is_no_damage(root: Path) -> None:
    """Bytes behind relay.meta, a next file with its magic only, a sub-directory without files."""
    path = folder_of(root) / NAMES[2]
    path.write_bytes(path.read_bytes() + b"".join(group(7)) + gtid(8)[:-3])
    (folder_of(root) / "mysql-bin.000004").write_bytes(framing.MAGIC)
    (root / f"{OTHER}.000002").mkdir()
    report = verify(root)
    assert report.findings == []
    assert "after relay.meta's position" in report.notes[0]
    relay = RelayWriter.open(root)
    assert relay.position.file == NAMES[2]
    relay.open_subdir(OTHER)
    relay.close()
    assert verify(root).sound


def test_a_log_that_is_written_to_is_sound_at_every_moment(tmp_path: Path) -> None:
    root = tmp_path / "relay"
    relay = RelayWriter.open(root, clock=lambda: 0.0)  # relay.meta is written at rotations only
    relay.open_subdir(SOURCE)
    assert verify(root).sound
    last = 0
    relay.track_gtids(lambda: f"{SOURCE}:1-{last}" if last else "")
    for number in range(3):
        relay.rotate(NAMES[number])
        assert verify(root).sound
        put(relay, format_description(), previous(last))
        for _ in range(3):
            put(relay, *group(last + 1))
            last += 1
            relay.sync()
            assert verify(root).findings == []
            relay.append([rows()], None)
            assert verify(root).findings == []
            relay.cut_back()
        put(relay, rotate(f"mysql-bin.{number + 2:06d}"))
    relay.close()
    assert verify(root).findings == []


def test_the_end_positions_wrap_beyond_4_gib(tmp_path: Path) -> None:
    offset = (1 << 32) - 300
    path = tmp_path / NAMES[0]
    data, end = framing.MAGIC, 4 + offset
    first = format_description()[:-4]
    for one in [first, *(e[:-4] for e in group(1) + group(2))]:
        end += len(one) + 4
        body = bytearray(one)
        # The head of a part says where it ends there, all else where it ends upstream.
        body[13:17] = struct.pack("<I", end - offset if one is first else end & 0xFFFFFFFF)
        data += bytes(body) + struct.pack("<I", zlib.crc32(body))
    path.write_bytes(data)
    check = file_check.FileCheck.of(path, len(data), GtidChain(), upstream_offset=offset)
    assert end > 1 << 32
    assert check.faults == []
    assert check.boundary == len(data)
    # A whole event is gone: each checksum is right, and the positions tell.
    cut = len(first) + 8 + len(gtid(1))
    path.write_bytes(data[: len(first) + 8] + data[cut:])
    check = file_check.FileCheck.of(path, len(data) - len(gtid(1)), GtidChain(), upstream_offset=offset)
    assert check.faults[0].code == "TR331"


def test_events_larger_than_what_is_read_at_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_check, "CHUNK_SIZE", 32)
    assert verify(root).findings == []
    whole = verify(root).events
    monkeypatch.undo()
    assert whole == verify(root).events
    monkeypatch.setattr(file_check, "CHUNK_SIZE", 32)
    _splice(NAMES[0], lambda d: d[:400] + bytes([d[400] ^ 4]) + d[401:])(root)
    assert codes(root) == ["TR304"]


def test_a_switch_of_the_server_is_followed_by_gtid(root: Path) -> None:
    relay = RelayWriter.open(root)
    relay.open_subdir(OTHER)
    relay.rotate("other.000009")
    put(relay, format_description(), previous(4), *group(5), *group(6), *group(7))
    relay.track_gtids(lambda: f"{SOURCE}:1-7")
    relay.close()
    assert verify(root).findings == []


def test_a_switch_that_leaves_transactions_out_is_found(root: Path) -> None:
    relay = RelayWriter.open(root)
    relay.open_subdir(OTHER)
    relay.rotate("other.000009")
    put(relay, format_description(), previous(8), *group(9))
    relay.track_gtids(lambda: f"{SOURCE}:1-9")
    relay.close()
    [finding] = verify(root).findings
    assert (finding.code, f"after {SOURCE}:7-8" in finding.message) == ("TR335", True)


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    """One file of the upstream in three parts of two transactions each, and the next file."""
    root = tmp_path / "parts"
    relay = RelayWriter.open(root)
    relay.open_subdir(SOURCE)
    relay.rotate(NAMES[0])
    put(relay, format_description(), previous(0))
    for number in range(1, 7):
        put(relay, *group(number))
        relay.track_gtids(lambda last=number: f"{SOURCE}:1-{last}")
        if number in (2, 4):
            assert relay.begin_part(MysqlGtidSet.parse(f"{SOURCE}:1-{number}"))
    put(relay, rotate(NAMES[1]))
    relay.rotate(NAMES[1])
    put(relay, format_description(), previous(6), *group(7))
    relay.track_gtids(lambda: f"{SOURCE}:1-7")
    relay.close()
    return root


def test_parts_of_a_file_are_sound_and_follow_each_other(parts: Path) -> None:
    files = layout.binlog_files(folder_of(parts))
    assert [layout.upstream_file(name) for name in files] == [NAMES[0]] * 3 + [NAMES[1]]
    report = verify(parts)
    assert (report.findings, report.notes, report.files) == ([], [], 4)
    check_at_start(parts)


@pytest.mark.parametrize("removed", [0, 1, 2])
def test_a_missing_part_is_found(parts: Path, removed: int) -> None:
    (folder_of(parts) / layout.binlog_files(folder_of(parts))[removed]).unlink()
    if removed == 0:  # as after a purge: the parts behind it are whole by themselves
        assert verify(parts).findings == []
        return
    code = "TR303" if removed == 1 else "TR335"  # only the next file's GTIDs tell how many parts there were
    assert codes(parts)[0] == code
    with pytest.raises(RelayError, match=code):
        RelayWriter.open(parts)


def test_a_part_that_lost_its_end_or_begins_with_another_set(parts: Path) -> None:
    first, second, *_ = layout.binlog_files(folder_of(parts))
    path = folder_of(parts) / first
    whole = path.read_bytes()
    path.write_bytes(whole[: -len(b"".join(group(2)))])
    found = verify(parts).findings
    assert [f.code for f in found] == ["TR303"]
    path.write_bytes(whole)
    path = folder_of(parts) / second
    path.write_bytes(path.read_bytes().replace(previous(2)[19:-4], previous(1)[19:-4]))
    assert "TR304" in codes(parts)


def test_what_a_crash_leaves_at_the_begin_of_a_part_is_no_damage(parts: Path) -> None:
    """The part is there with its head, and relay.meta still ends with the one before."""
    first, second, third, last = layout.binlog_files(folder_of(parts))
    for name in (third, last):
        (folder_of(parts) / name).unlink()
    path = folder_of(parts) / second
    head = len(format_description()) + 4 + len(previous(2))
    os.truncate(path, head)
    end = (folder_of(parts) / first).stat().st_size
    change_meta(parts, file=NAMES[0], pos=end, gtid_set=f"{SOURCE}:1-2")
    assert verify(parts).findings == []
    relay = RelayWriter.open(parts)
    assert (relay.position.file, relay.position.pos) == (first, end)
    relay.close()
    os.truncate(folder_of(parts) / first, end - 10)
    assert codes(parts) == ["TR334"]


def test_a_discard_that_was_killed_is_completed_by_the_next(root: Path) -> None:
    """`relay-log-recovery`: the index has let the later sub-directory go, and its files are still there."""
    here = RelayPosition(folder_of(root).name, NAMES[0], (folder_of(root) / NAMES[0]).stat().st_size)
    relay = RelayWriter.open(root)
    relay.open_subdir(OTHER)
    relay.rotate("other.000009")
    put(relay, format_description(), previous(6), *group(7))
    relay.close()
    layout.write_index(root, layout.read_index(root)[:1])
    assert codes(root) == ["TR332"]
    assert discard_after(root, here, f"{SOURCE}:1-2") > 0
    assert verify(root).findings == []
    assert layout.binlog_files(folder_of(root)) == [NAMES[0]]


def test_a_part_may_be_ahead_of_relay_meta_but_not_two(parts: Path) -> None:
    """relay.meta is written now and then, and where a part begins it need not be."""
    first, second, third, last = layout.binlog_files(folder_of(parts))
    ends = [(folder_of(parts) / name).stat().st_size for name in (first, second)]
    (folder_of(parts) / last).unlink()
    change_meta(parts, file=NAMES[0], pos=layout.part_offset(second) + ends[1], gtid_set=f"{SOURCE}:1-4")
    assert verify(parts).findings == []
    change_meta(parts, file=NAMES[0], pos=ends[0], gtid_set=f"{SOURCE}:1-2")
    assert codes(parts) == ["TR334"]
    (folder_of(parts) / third).unlink()
    assert verify(parts).findings == []
    relay = RelayWriter.open(parts)
    assert (relay.position.file, relay.position.pos) == (first, ends[0])
    relay.close()


def test_gtid_purged_upstream_is_no_gap(tmp_path: Path) -> None:
    """`SET GLOBAL gtid_purged` ends the file, and the next one names more than the files hold."""
    root = tmp_path / "relay"
    relay = RelayWriter.open(root)
    relay.open_subdir(SOURCE)
    relay.rotate(NAMES[0])
    put(relay, format_description(), previous(0), *group(1), rotate(NAMES[1]))
    relay.rotate(NAMES[1])
    put(relay, format_description(), previous(50), *group(51))
    relay.track_gtids(lambda: f"{SOURCE}:1-51")
    relay.close()
    assert verify(root).findings == []


def test_without_earlier_files_relay_meta_may_name_more(root: Path) -> None:
    """After a purge of the sub-directories before, nothing shows what they held."""
    relay = RelayWriter.open(root)
    relay.open_subdir(OTHER)
    relay.rotate("other.000009")
    put(relay, format_description(), previous(4), *group(5), *group(6), *group(7))
    relay.track_gtids(lambda: f"{SOURCE}:1-7,{OTHER}:1-3")
    relay.close()
    assert codes(root) == ["TR336"]
    shutil.rmtree(folder_of(root))
    layout.write_index(root, layout.read_index(root)[1:])
    assert verify(root).findings == []


def test_a_missing_relay_meta_can_be_written_anew_from_what_verify_says(root: Path) -> None:
    meta = layout.read_meta(folder_of(root))
    (folder_of(root) / "relay.meta").unlink()
    [note] = verify(root).notes
    text = f'binlog-name = "{meta.file}", binlog-pos = {meta.pos}, binlog-gtid = "{meta.gtid_set}"'
    assert note.endswith(text)


def test_a_large_event_needs_no_memory_of_its_size(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_check, "CHUNK_SIZE", 4096)
    relay = RelayWriter.open(root)
    put(relay, gtid(7), rows(100_000), xid())
    relay.track_gtids(lambda: f"{SOURCE}:1-7")
    relay.close()
    sizes: list[int] = []
    real = zlib.crc32
    monkeypatch.setattr(file_check, "crc32", lambda data, *seed: sizes.append(len(data)) or real(data, *seed))
    assert verify(root).findings == []
    assert max(sizes) <= 2 * 4096


@settings(deadline=None, max_examples=400)
@given(name=st.sampled_from(sorted(LOGS)), data=st.data())
def test_every_flipped_bit_is_found_or_harmless(name: str, data: st.DataObject, tmp_path_factory) -> None:
    root = copy_of(name, tmp_path_factory.mktemp("flip"))
    before = events_of(root)
    metas = [layout.read_meta(root / subdir) for subdir in layout.read_index(root)]
    files = sorted(path for path in root.rglob("*") if path.is_file())
    sizes = [path.stat().st_size for path in files]
    at = data.draw(st.integers(0, 8 * sum(sizes) - 1))
    path = flip(files, at)
    report = verify(root)
    if report.sound and path.suffix.lstrip(".").isdigit():
        assert events_of(root) == before, f"{path.name}: bit {at}"
        raise AssertionError("no bit of a file whose events have checksums is without meaning")
    if report.sound and path.name != "start.toml":
        found = [layout.read_meta(root / subdir) for subdir in layout.read_index(root)]
        same = [(m.file, m.pos, m.gtid_set.lower()) for m in found]
        assert same == [(m.file, m.pos, m.gtid_set.lower()) for m in metas]
    shutil.rmtree(root)


def test_every_bit_of_a_servers_log_is_covered() -> None:
    """Not a sample: each bit of a file, against the pass over that file alone."""
    path = next(LOGS["mysql"].glob("*.000001/mysql-bin.000003"))
    data = path.read_bytes()
    scratch = Path(f"/dev/shm/tailrace-bits-{os.getpid()}")
    try:
        for bit in range(8 * len(data)):
            changed = bytearray(data)
            changed[bit >> 3] ^= 1 << (bit & 7)
            scratch.write_bytes(changed)
            check = file_check.FileCheck.of(scratch, len(data), GtidChain())
            assert check.faults or check.torn_at is not None, f"byte {bit >> 3}, bit {bit & 7}"
    finally:
        scratch.unlink(missing_ok=True)


def test_what_is_read_is_what_was_verified(tmp_path: Path) -> None:
    root = copy_of("mariadb", tmp_path)
    reader = RelayReader(root)
    data = b"".join(block.data for block in iter(lambda: reader.read_block(), None))
    assert data == b"".join(bytes for _, _, bytes in events_of(root))
