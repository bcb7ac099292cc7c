"""Binlog files that other servers wrote: formats that are not read are named as such, not taken for damage."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from producer.mirror.intake import Intake
from producer.settings import RelaySettings
from relay_store.check.file import FileCheck
from relay_store.check.gtid_chain import GtidChain
from relay_store.layout.directory import RelayPosition
from relay_store.read.reader import RelayReader
from relay_store.write.writer import RelayWriter
from schemas.binlog import framing
from schemas.errors import RelayError
from schemas.gtid.sets import empty_gtid_set
from tests.support.binlogs.relay_events import format_description, query

SUBDIR, FILE = "s.000001", "mysql-bin.000001"


def _first(version: bytes, tail: bytes, *, kind: int = framing.FORMAT_DESCRIPTION) -> bytes:
    """A first event that says where it ends, and no more about checksums than ``tail`` does."""
    body = struct.pack("<H50sIB", 4, version, 0, 19) + bytes([56, 13, 0, 8, 0, 18, 0, 4, 4, 4, 4, 18]) + tail
    size = framing.HEADER_SIZE + len(body)
    return framing.HEADER.pack(1, kind, 1, size, framing.FIRST_POSITION + size, 0) + body


def _with_checksum(event: bytes) -> bytes:
    size = len(event) + 4
    event = event[:9] + struct.pack("<II", size, framing.FIRST_POSITION + size) + event[17:]
    return event + struct.pack("<I", zlib.crc32(event))


# The last bytes of the old ones are lengths of events, here such that they look like an algorithm, CRC32 too.
MYSQL_55 = _first(b"5.5.27-log", bytes([1, 0, 84, 0, 1]))
MYSQL_50 = _first(b"5.0.91-b22.lucid.0-log", bytes([1, 8, 0, 0, 0]))
MARIADB_52 = _first(b"5.2.14-MariaDB-log", bytes([0, 1, 84, 0, 1]))
START_V3 = _first(b"4.1.22-log", b"", kind=framing.START_V3)
UNKNOWN_CHECKSUM = _with_checksum(_first(b"12.0.1", b"\2"))
FOREIGN = [
    (MYSQL_55, "MySQL 5.5.27-log"), (MYSQL_50, "MySQL 5.0.91"), (MARIADB_52, "MariaDB 5.2.14"),
    (START_V3, "before 5.0"), (UNKNOWN_CHECKSUM, "the unknown checksum algorithm 2"),
]  # fmt: skip


def _written(root: Path, first: bytes) -> Path:
    folder = root / SUBDIR
    folder.mkdir()
    (folder / FILE).write_bytes(framing.MAGIC + first + query(b"BEGIN"))
    return folder / FILE


def _packet(event: bytes) -> bytes:
    return (len(event) + 1).to_bytes(3, "little") + b"\0\0" + event


@pytest.mark.parametrize(("first", "said"), FOREIGN, ids=[said for _, said in FOREIGN])
def test_a_file_of_another_format_is_refused(tmp_path: Path, first: bytes, said: str) -> None:
    path = _written(tmp_path, first)
    with pytest.raises(RelayError, match="TR310") as caught:
        RelayReader(tmp_path, RelayPosition(SUBDIR, FILE, 4)).read_block()
    assert said in caught.value.message
    assert caught.value.hint
    assert (caught.value.where.file, caught.value.where.position) == (f"{SUBDIR}/{FILE}", 4)
    (fault,) = FileCheck.of(path, path.stat().st_size, GtidChain()).faults
    assert (fault.code, fault.pos) == ("TR310", 4)
    assert said in fault.what


@pytest.mark.parametrize(("first", "said"), FOREIGN[:3], ids=[said for _, said in FOREIGN[:3]])
def test_an_upstream_of_another_format_is_refused(tmp_path: Path, first: bytes, said: str) -> None:
    """Before anything of it is in the relay log."""
    relay = RelayWriter.open(tmp_path)
    try:
        relay.open_subdir("3e11fa47-71ca-11e1-9e33-c80aa9429562")
        relay.rotate(FILE)
        intake = Intake(relay, empty_gtid_set("mysql").tracker(), framing.FIRST_POSITION, RelaySettings())
        intake.begin()
        with pytest.raises(RelayError, match="TR310") as caught:
            intake.take(_packet(first))
    finally:
        relay.close()
    assert said in caught.value.message
    assert (caught.value.where.file, caught.value.where.position) == (FILE, 4)


@pytest.mark.parametrize("version", [b"5.6.35-log", b"10.0.15-MariaDB-log", b"8.0.31-google", b"own build"])
def test_damage_is_not_taken_for_another_format(tmp_path: Path, version: bytes) -> None:
    """A sound file of any maker is read; with another byte it is damaged."""
    sound = _with_checksum(_first(version, b"\1"))
    _written(tmp_path, sound)
    block = RelayReader(tmp_path, RelayPosition(SUBDIR, FILE, 4)).read_block()
    assert block is not None
    path = tmp_path / SUBDIR / FILE
    path.write_bytes(framing.MAGIC + sound[:80] + b"\xaa" + sound[81:] + query(b"BEGIN"))
    with pytest.raises(RelayError, match="TR304"):
        RelayReader(tmp_path, RelayPosition(SUBDIR, FILE, 4)).read_block()


@pytest.mark.parametrize(
    ("magic", "said"), [(b"\xfdbin", "encrypted by MySQL"), (b"\x7fELF", "not a binlog file")]
)
def test_what_is_no_binlog_in_clear(tmp_path: Path, magic: bytes, said: str) -> None:
    path = _written(tmp_path, format_description())
    path.write_bytes(magic + path.read_bytes()[4:])
    with pytest.raises(RelayError, match="TR304") as caught:
        RelayReader(tmp_path, RelayPosition(SUBDIR, FILE, 4)).read_block()
    assert said in caught.value.message
    (fault,) = FileCheck.of(path, path.stat().st_size, GtidChain()).faults
    assert said in fault.what


def test_the_formats_in_use_are_not_foreign() -> None:
    assert framing.foreign_format(format_description()) == ""
