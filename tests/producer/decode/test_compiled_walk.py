"""Compiled code makes the same epochs as the publisher's own walk, whatever is in the log."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from producer.decode.open_group import GTID_EVENTS
from producer.epochs.open_epoch import EpochLimits
from relay_store.read.reader import RelayBlock
from schemas.binlog import framing
from schemas.errors import TailraceError
from tests.support.binlogs.epochs import epochs, groups_of, of_several_sources, repeated, with_partitions
from tests.support.golden.golden_binlogs import FILE, NAMES, SUBDIR, events_in, flavor_of, golden_log


def _log(name: str, root: Path, times: int = 3, *, parted: bool = False) -> list[bytes]:
    """The golden log with its groups repeated, as events; prepared transactions are read from its file."""
    first, *others = events_in(golden_log(name))
    events = [first, *(event for group in repeated(groups_of(others), times) for event in group)]
    if parted:
        events = [with_partitions(event, number) for number, event in enumerate(events)]
    (root / SUBDIR).mkdir(exist_ok=True)
    (root / SUBDIR / FILE).write_bytes(framing.MAGIC + b"".join(events))
    return events


def _blocks(events: list[bytes], sizes: list[int]) -> list[RelayBlock]:
    """Blocks of so many events, of the last size from there on."""
    blocks, pos = [], framing.FIRST_POSITION
    sizes = list(sizes)
    while events:
        size = sizes.pop(0) if len(sizes) > 1 else sizes[0]
        data, events = b"".join(events[:size]), events[size:]
        blocks.append(RelayBlock(SUBDIR, FILE, pos, data))
        pos += len(data)
    return blocks


def _limits(max_rows: int, max_bytes: int = 1 << 40) -> EpochLimits:
    return EpochLimits(max_rows, max_bytes, 1e9, 1e9)


@pytest.mark.parametrize("name", NAMES)
def test_the_servers_logs_come_to_the_same_epochs(name: str, tmp_path: Path) -> None:
    events = _log(name, tmp_path)
    blocks, flavor = _blocks(events, [25]), flavor_of(name)
    plain = epochs(blocks, flavor, tmp_path, _limits(7))
    compiled = epochs(blocks, flavor, tmp_path, _limits(7), compiled=True)
    assert compiled.epochs == plain.epochs
    assert compiled.groups > 5


@pytest.mark.parametrize("name", ["mysql_images", "mariadb_images"])
def test_row_images_that_lack_columns_are_decoded_by_compiled_code(name: str, tmp_path: Path) -> None:
    blocks, flavor = _blocks(_log(name, tmp_path, 12), [25]), flavor_of(name)
    plain, compiled = (epochs(blocks, flavor, tmp_path, _limits(40), compiled=way) for way in (False, True))
    assert compiled.epochs == plain.epochs
    # The rest are MariaDB's UPDATEs, of which the statements decide, documents that come as diffs, and statements.
    assert compiled.groups > 250


@pytest.mark.parametrize("name", ["mysql", "mysql_images"])
def test_rows_of_tables_with_partitions_are_decoded_by_compiled_code(name: str, tmp_path: Path) -> None:
    flavor = flavor_of(name)
    without = epochs(_blocks(_log(name, tmp_path), [25]), flavor, tmp_path, _limits(7), compiled=True)
    blocks = _blocks(_log(name, tmp_path, parted=True), [25])
    plain, compiled = (epochs(blocks, flavor, tmp_path, _limits(7), compiled=way) for way in (False, True))
    assert compiled.epochs == plain.epochs
    assert compiled.groups == without.groups


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(NAMES),
    sizes=st.lists(st.integers(1, 90), min_size=1, max_size=12),
    times=st.integers(1, 4),
    max_rows=st.sampled_from([1, 3, 20, 10_000]),
    max_bytes=st.sampled_from([300, 5000, 1 << 40]),
    exclude=st.sampled_from([(), ("*.t",)]),
)
def test_however_blocks_are_cut(
    tmp_path: Path,
    name: str,
    sizes: list[int],
    times: int,
    max_rows: int,
    max_bytes: int,
    exclude: tuple[str, ...],
) -> None:
    blocks, limits = _blocks(_log(name, tmp_path, times), sizes), _limits(max_rows, max_bytes)
    plain = epochs(blocks, flavor_of(name), tmp_path, limits, exclude=exclude)
    assert (
        epochs(blocks, flavor_of(name), tmp_path, limits, compiled=True, exclude=exclude).epochs
        == plain.epochs
    )


@pytest.mark.parametrize("name", NAMES)
def test_gtids_of_several_sources(name: str, tmp_path: Path) -> None:
    """They come in runs of successive numbers, which end where another source, server or a gap begins."""
    for seed in range(4):
        blocks, flavor = (
            _blocks(of_several_sources(_log(name, tmp_path, 8), random.Random(seed)), [200]),
            flavor_of(name),
        )
        plain, compiled = (
            epochs(blocks, flavor, tmp_path, _limits(7), compiled=way) for way in (False, True)
        )
        assert compiled.epochs == plain.epochs
        assert compiled.groups > 5


def _outcome(blocks: list[RelayBlock], name: str, root: Path, compiled: bool) -> Any:
    try:
        return epochs(blocks, flavor_of(name), root, _limits(20), compiled=compiled).epochs
    except TailraceError as error:
        return error.code


@pytest.mark.parametrize("name", ["mysql", "mariadb", "mysql_images", "mariadb_images"])
def test_a_damaged_log_never_comes_to_other_rows(name: str, tmp_path: Path) -> None:
    """Events within groups changed, lost, doubled or exchanged.

    A TABLE_MAP of an earlier group may be missed, which is an error.
    """
    refused = 0
    for seed in range(12):
        rng = random.Random(seed)
        events = _log(name, tmp_path)
        inside = [n for n, event in enumerate(events) if n and event[4] not in GTID_EVENTS]
        i = rng.choice(inside)
        match rng.randrange(4):
            case 0:
                at = rng.randrange(framing.HEADER_SIZE, len(events[i]))
                events[i] = events[i][:at] + bytes((rng.randrange(256),)) + events[i][at + 1 :]
            case 1:
                del events[i]
            case 2:
                events.insert(i, events[i])
            case 3:
                j = rng.choice(inside)
                events[i], events[j] = events[j], events[i]
        blocks = _blocks(events, [rng.randrange(5, 60)])
        plain, compiled = (_outcome(blocks, name, tmp_path, way) for way in (False, True))
        assert compiled in (plain, "TR411"), seed
        refused += isinstance(plain, str)
    shutil.rmtree(tmp_path)
    assert refused > 0
