"""MariaDB's numbers may go back: what is new is told from what other files have brought already."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from producer.decode.duplicate_filter import duplicate_filter
from producer.publish_start import duplicates_after
from relay_store.layout.directory import RelayPosition
from schemas.binlog import framing
from schemas.errors import DecodeError
from schemas.gtid.sets import MariadbGtidSet
from tests.support.binlogs.relay_events import event, format_description, query

FILE = "mysql-bin.000001"
HAD = MariadbGtidSet.parse("0-1-100,7-2-50")


def _gtid(domain: int, server: int, number: int) -> bytes:
    made = event(framing.MARIADB_GTID, struct.pack("<QIB", number, domain, 0) + bytes(6))
    return made[:5] + struct.pack("<I", server) + made[9:]


def _list(*entries: tuple[int, int, int]) -> bytes:
    body = struct.pack("<I", len(entries)) + b"".join(struct.pack("<IIQ", *entry) for entry in entries)
    return event(framing.MARIADB_GTID_LIST, body)


def _file(root: Path, subdir: str, *events: bytes, name: str = FILE) -> RelayPosition:
    """The position behind the events, in a file of the sub-directory."""
    (root / subdir).mkdir(exist_ok=True)
    data = framing.MAGIC + b"".join((format_description(), *events))
    (root / subdir / name).write_bytes(data + query(b"BEGIN"))
    return RelayPosition(subdir, name, len(data))


def test_behind_what_is_there_numbers_may_go_back(tmp_path: Path) -> None:
    here = _file(tmp_path, "s.000001", _list((0, 1, 90), (7, 2, 50)), _gtid(0, 1, 100))
    found = duplicates_after(tmp_path, HAD, here)
    assert not any(
        found.is_duplicate(*gtid) for gtid in [(0, 2, 99), (7, 1, 3), (0, 1, 101), (0, 2, 100), (9, 1, 1)]
    )


def test_what_is_there_is_passed_over_up_to_the_last_one(tmp_path: Path) -> None:
    """A file that another server wrote, or that a start by GTIDs lies in, holds it as well."""
    here = _file(tmp_path, "s.000001", _list((0, 1, 90)), _gtid(0, 1, 97))
    found = duplicates_after(tmp_path, HAD, here)
    assert [found.is_duplicate(0, server, n) for server, n in [(1, 98), (2, 99), (1, 100), (2, 99), (1, 101)]] == [
        True, True, True, False, False,
    ]  # fmt: skip
    assert found.is_duplicate(7, 2, 49)
    assert not found.is_duplicate(7, 2, 51)
    assert not found.is_duplicate(7, 1, 50)


def test_what_is_not_sure_stops(tmp_path: Path) -> None:
    """In another server's files, whose order may be another one; and where the files before would have to be read."""
    switched = duplicate_filter(HAD)
    assert switched.is_duplicate(0, 1, 99)
    assert not switched.is_duplicate(0, 1, 101)
    with pytest.raises(DecodeError, match="TR408") as caught:
        switched.is_duplicate(0, 2, 99)
    assert caught.value.hint
    listed = duplicate_filter(HAD)
    listed.listed(_list((7, 2, 51)))
    with pytest.raises(DecodeError, match="TR408"):
        listed.is_duplicate(7, 1, 50)
    resumed = duplicates_after(tmp_path, HAD, _file(tmp_path, "s.000002", _gtid(0, 1, 100)))
    with pytest.raises(DecodeError, match="TR408"):
        resumed.is_duplicate(0, 1, 99)
    _file(tmp_path, "s.000003")
    position = _file(tmp_path, "s.000003", name="mysql-bin.000002")
    assert duplicates_after(tmp_path, HAD, RelayPosition(position.subdir, position.file, 4)).is_duplicate(
        0, 1, 99
    )
    later = duplicates_after(tmp_path, HAD, position)
    with pytest.raises(DecodeError, match="TR408"):
        later.is_duplicate(0, 1, 99)
    assert not later.is_duplicate(0, 1, 101)
