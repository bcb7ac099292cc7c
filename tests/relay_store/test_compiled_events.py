"""Compiled code finds the end of whole and undamaged events where the reader's own loop does."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import pytest

from relay_store.layout.directory import RelayPosition
from relay_store.read.reader import RelayReader
from schemas.binlog import framing
from schemas.binlog.compiled.calls import WholeEvents
from schemas.errors import RelayError
from tests.support.binlogs.compiled import compiled_library
from tests.support.binlogs.relay_events import event, rows
from tests.support.golden.golden_binlogs import FILE, NAMES, SUBDIR, golden_log

_FIRST = framing.FIRST_POSITION


def test_checksums_of_any_size() -> None:
    find, rng = WholeEvents(compiled_library()), random.Random(1)
    for size in (*range(200), *(rng.randrange(5000) for _ in range(200))):
        one = event(framing.WRITE_ROWS, rng.randbytes(size))
        at = rng.randrange(len(one))
        assert find(one, 0, True) == len(one)
        assert find(rows(3) + one + one[:-1], 0, True) == len(rows(3)) + len(one)
        damaged = one[:at] + bytes((one[at] ^ 1 << rng.randrange(8),)) + one[at + 1 :]
        assert zlib.crc32(damaged) != framing.CRC32_RESIDUE
        assert find(damaged, 0, True) == 0
    assert find(rows(5)[:-1] + b"x", 0, False) == len(rows(5))


def _read(root: Path, *, compiled: bool) -> bytes | str:
    reader = RelayReader(root, RelayPosition(SUBDIR, FILE, _FIRST))
    if compiled:
        reader.whole_events = WholeEvents(compiled_library())
    data = b""
    try:
        while block := reader.read_block():
            data += block.data
    except RelayError as error:
        return str(error)
    finally:
        reader.close()
    return data


@pytest.mark.parametrize("name", NAMES)
def test_damage_is_found_in_the_same_place(name: str, tmp_path: Path) -> None:
    log = golden_log(name)
    path = tmp_path / SUBDIR / FILE
    path.parent.mkdir()
    path.write_bytes(log)
    assert _read(tmp_path, compiled=True) == _read(tmp_path, compiled=False) == log[_FIRST:]
    refused = 0
    for seed in range(40):
        rng = random.Random(seed)
        at = rng.randrange(_FIRST, len(log))
        path.write_bytes(log[:at] + rng.randbytes(1) + log[at + 1 : rng.choice((len(log), at + 500))])
        plain = _read(tmp_path, compiled=False)
        assert _read(tmp_path, compiled=True) == plain, seed
        refused += isinstance(plain, str)
    assert refused > 20
