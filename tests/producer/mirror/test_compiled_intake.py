"""Compiled code takes the same events into the relay log as the mirror's own loop, and refuses the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from producer.mirror.intake import Intake
from producer.settings import RelaySettings
from relay_store.layout import directory as layout
from relay_store.write.writer import RelayWriter
from schemas.binlog import framing
from schemas.binlog.compiled import calls
from schemas.binlog.compiled.calls import Events, Packets
from schemas.compiled.code import CompiledCode, no_folder
from schemas.errors import TailraceError
from schemas.gtid.sets import Flavor, empty_gtid_set
from tests.support.binlogs.compiled import compiled_library
from tests.support.binlogs.epochs import of_several_sources
from tests.support.golden.golden_binlogs import FILE, NAMES, SUBDIR, events_in, flavor_of, golden_log

_UUID = SUBDIR.partition(".")[0]
_SETTINGS = {
    "usual": RelaySettings(),
    "small parts": RelaySettings(max_file_size=3000),
    "syncs": RelaySettings(sync_relay_log=2),
}


def _packets(events: list[bytes]) -> bytes:
    return b"".join((len(event) + 1).to_bytes(3, "little") + b"\1\0" + event for event in events)


def _pieces(data: bytes, rng: random.Random) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = rng.choice((50, 700, 5000, 100_000))
        yield data[at : at + size]
        at += size


def _outcome(root: Path, pieces: list[bytes], flavor: Flavor, settings: RelaySettings, compiled: bool) -> Any:
    """What is in the relay log and what the mirror knows of it, behind each piece, and the error that ended it."""
    code = CompiledCode("mirror", no_folder)
    code.library = compiled_library() if compiled else None
    relay = RelayWriter.open(root)
    relay.open_subdir(_UUID)
    relay.rotate(FILE)
    gtids = empty_gtid_set(flavor).tracker()
    intake = Intake(relay, gtids, framing.FIRST_POSITION, settings, code=code)
    intake.begin()
    seen: list[Any] = []
    rest, need = b"", 0
    try:
        for piece in pieces:
            rest += piece
            while len(rest) >= need and rest:
                used, need = intake.take(rest)
                rest = rest[used:]
            seen.append(
                (relay.position, relay.boundary, str(gtids), intake.events, intake.bytes, relay.syncs)
            )
    except TailraceError as error:
        seen.append((error.code, error.message, error.where, relay.boundary, str(gtids)))
    finally:
        relay.close()
    folder = root / layout.read_index(root)[0]
    return seen, {path.name: path.read_bytes() for path in folder.iterdir()}


def _damaged(events: list[bytes], rng: random.Random) -> list[bytes]:
    events, i = list(events), rng.randrange(1, len(events))
    at = rng.choice((rng.randrange(framing.HEADER_SIZE), rng.randrange(len(events[i]))))
    match rng.randrange(4):
        case 0:
            events[i] = events[i][:at] + bytes((rng.randrange(256),)) + events[i][at + 1 :]
        case 1:
            del events[i]
        case 2:
            events.insert(i, events[i])
        case 3:
            events[i] = events[i][: at + 1]
    return events


@pytest.mark.parametrize("settings", _SETTINGS.values(), ids=_SETTINGS)
@pytest.mark.parametrize("name", NAMES)
def test_the_relay_log_is_the_same(
    name: str, settings: RelaySettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flavor, events = flavor_of(name), events_in(golden_log(name))
    taken, take = 0, Packets.__call__

    def counted(*arguments: Any) -> Events:
        nonlocal taken
        found = take(*arguments)
        taken += found.events
        return found

    monkeypatch.setattr(Packets, "__call__", counted)
    refused = 0
    for seed in range(16):
        rng = random.Random(seed)
        # Room for a few events at a time, and not for the largest ones; or for all.
        monkeypatch.setattr(calls, "_MOST_BYTES", rng.choice((700, 1 << 20)))
        told = of_several_sources(events, rng) if seed % 2 else events
        sent = _packets(_damaged(told, rng) if seed % 4 else told)
        pieces = [*_pieces(sent, rng)]
        plain, compiled = (
            _outcome(tmp_path / f"{seed}{way}", pieces, flavor, settings, way) for way in (False, True)
        )
        assert compiled == plain, seed
        refused += isinstance(plain[0][-1][0], str)
    assert 0 < refused < 16
    # Half of the events at least, although most of these logs are damaged.
    assert taken > 8 * len(events) / 2
