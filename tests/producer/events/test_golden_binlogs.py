"""Golden binlogs of both servers (``tests/golden/binlogs/make.py``), as they are and damaged in every way."""

from __future__ import annotations

import random
import shutil
from functools import cache
from pathlib import Path

import pytest

from producer.events.compressed import unpacked
from schemas.binlog import framing
from schemas.errors import DecodeError, TailraceError
from schemas.gtid.sets import Flavor
from tests.support.binlogs.decoded import decoded_lines
from tests.support.golden.golden_binlogs import BINLOGS, FILE, NAMES, SUBDIR, events_in, flavor_of, golden_log

_SEEDS = range(12)
_MUTATIONS = 25  # a seed


@cache
def _golden(flavor: str) -> tuple[bytes, str]:
    return golden_log(flavor), (BINLOGS / flavor / "expected.txt").read_text()


def _decode(root: Path, flavor: Flavor, data: bytes) -> str:
    folder = root / SUBDIR
    folder.mkdir(exist_ok=True)
    (folder / FILE).write_bytes(data)
    return "".join(f"{line}\n" for line in decoded_lines(root, SUBDIR, FILE, flavor))


@pytest.mark.parametrize("name", NAMES)
def test_what_the_servers_logged(name: str, tmp_path: Path) -> None:
    data, expected = _golden(name)
    assert _decode(tmp_path, flavor_of(name), data) == expected


def _mutated(events: list[bytes], rng: random.Random) -> bytes:
    """One or a few events changed, lost, doubled or exchanged; their sizes are right, or nearly always."""
    events = list(events)
    for _ in range(rng.choice((1, 1, 2, 5))):
        i = rng.randrange(1, len(events))
        if not events[i]:
            continue
        event = bytearray(events[i])
        body = framing.HEADER_SIZE
        match rng.randrange(9):
            case 0:  # one byte
                event[rng.randrange(body, len(event))] = rng.choice(
                    (0, 1, 0x7F, 0x80, 0xFB, 0xFF, rng.randrange(256))
                )
            case 1:  # one bit
                event[rng.randrange(body, len(event))] ^= 1 << rng.randrange(8)
            case 2:  # cut
                del event[rng.randrange(body, len(event)) :]
            case 3:  # something in between
                at = rng.randrange(body, len(event) + 1)
                event[at:at] = rng.randbytes(rng.randrange(1, 20))
            case 4:  # something out of the middle
                at = rng.randrange(body, len(event))
                del event[at : at + rng.randrange(1, 20)]
            case 5:  # another type
                event[4] = rng.choice(
                    (2, 16, 19, 30, 31, 32, 33, 38, 39, 40, 162, 165, 166, 170, rng.randrange(256))
                )
            case 6:  # lost
                event = bytearray()
            case 7:  # doubled
                events.insert(i, bytes(event))
            case 8:  # exchanged
                j = rng.randrange(1, len(events))
                event, events[j] = bytearray(events[j]), bytes(event)
        if event:
            size = len(event) if rng.random() < 0.98 else rng.choice((0, 18, 19, len(event) + 1, 0xFFFFFFFF))
            event[9:13] = size.to_bytes(4, "little")
        events[i] = bytes(event)
    return framing.MAGIC + b"".join(events)


def _refusal(root: Path, flavor: Flavor, data: bytes) -> TailraceError | None:
    try:
        _decode(root, flavor, data)
    except TailraceError as error:
        return error
    return None


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["mysql", "mariadb", "mysql_images", "mariadb_images"])
def test_any_damage_gives_an_error_with_a_place_or_lines(name: str, tmp_path: Path) -> None:
    """Never another exception, never a hang. (That a byte is wrong at all is for the mirror's checksum to tell.)"""
    (data, _), flavor = _golden(name), flavor_of(name)
    events = events_in(data)
    refused = 0
    for seed in _SEEDS:
        rng = random.Random(seed)
        for _ in range(_MUTATIONS):
            error = _refusal(tmp_path, flavor, _mutated(events, rng))
            if error is not None:
                refused += 1
                assert error.where.file, error
                assert error.hint, error
                assert error.where.position is not None, error
    shutil.rmtree(tmp_path)
    assert refused > len(_SEEDS) * _MUTATIONS // 4


@pytest.mark.parametrize("size", [0, 18, 100])
def test_a_payload_whose_events_lead_nowhere(size: int) -> None:
    with pytest.raises(DecodeError, match="TR414"):
        list(unpacked(b"\x02\x03\xfc\xff\x00\x00" + framing.HEADER.pack(1, framing.XID, 1, size, 0, 0)))
