"""A paused mirror and a paused publisher: where they stand, and that nothing is lost. An upstream that is made up."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from producer import publish
from producer.decode.decode_rules import DecodeRules
from producer.epochs.open_epoch import EpochLimits, EpochWith, LogState
from producer.mirror import loop
from producer.mirror.loop import Mirror
from producer.publish import Publisher
from producer.settings import RelaySettings
from relay_store.layout import directory as layout
from relay_store.layout.pauses import set_pause
from relay_store.write.writer import RelayWriter
from schemas.binlog import framing
from schemas.tables import TableFilter
from schemas.wire.epoch import ORIGIN, EpochCommitted
from tests.support.binlogs.fake_upstream import FIRST, UUID, fake_upstream
from tests.support.binlogs.relay_events import event, format_description, group, gtid, query, xid
from tests.support.waiting import wait_until

SOURCE = "00010203-0405-0607-0809-0a0b0c0d0e0f"  # of the groups' GTIDs
FILES = (FIRST, "mysql-bin.000002")


def test_a_mirror_stands_behind_a_whole_group_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relay_store.layout.pauses._LOOK", 0.0)
    monkeypatch.setattr(loop, "_POLL", 0.02)
    rotate = event(
        framing.ROTATE, b"\4" + bytes(7) + FIRST.encode(), timestamp=0, flags=framing.FLAG_ARTIFICIAL
    )
    groups = [b"".join(group(number)) for number in (1, 2)]
    head = format_description()
    stop = threading.Event()
    with fake_upstream() as upstream:
        upstream.answers["SHOW BINARY LOG STATUS"] = [[FIRST, 4, "", "", f"{SOURCE}:1-2"]]
        upstream.sends(rotate, head, *group(1))
        relay = RelayWriter.open(tmp_path)
        mirror = Mirror(upstream.url, relay, RelaySettings(), server_id=9)
        thread = threading.Thread(target=mirror.run, args=(stop,))
        thread.start()
        end = 4 + len(head) + len(groups[0])
        wait_until(lambda: relay.tail.position is not None and relay.tail.position.pos == end, seconds=20)
        set_pause(tmp_path, "mirror", True)
        wait_until(lambda: "tailrace pause mirror" in (mirror.progress.paused or ""), seconds=20)
        assert not mirror.progress.connected
        upstream.sends(rotate, *group(2))
        set_pause(tmp_path, "mirror", False)
        wait_until(lambda: mirror.progress.paused is None and mirror.progress.connected, seconds=20)
        wait_until(
            lambda: relay.tail.position is not None and relay.tail.position.pos == end + len(groups[1]),
            seconds=20,
        )
        set_pause(tmp_path, "mirror", True)
        wait_until(lambda: mirror.progress.paused is not None, seconds=20)
        stop.set()
        thread.join(20)
        assert not thread.is_alive()
        relay.close()


class _Log:
    """An epoch log in memory, of the epochs' records."""

    def __init__(self) -> None:
        self.epochs: list[EpochCommitted] = []

    def begin(self) -> None: ...
    def write(self, records: Any) -> None: ...
    def abort(self) -> None: ...

    def commit(
        self,
        epoch_with: EpochWith,
        tracked: tuple[tuple[bytes, bytes | None], ...] = (),
    ) -> EpochCommitted:
        self.epochs.append(epoch_with((), 0, ()))
        return self.epochs[-1]


def _relay_log(root: Path) -> None:
    """Two files with two transactions each."""
    relay = RelayWriter.open(root)
    relay.open_subdir(UUID)
    relay.write_start(layout.StartPosition(FIRST, 4, "", relay.subdir, ORIGIN))
    relay.rotate(FIRST)
    subdir = relay.subdir
    relay.close()
    for file, numbers in zip(FILES, ((1, 2), (3, 4)), strict=True):
        groups = b"".join(gtid(number) + query(b"BEGIN") + xid() for number in numbers)
        (root / subdir / file).write_bytes(framing.MAGIC + format_description() + groups)


def test_a_publisher_stands_behind_the_open_epoch_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "_POLL", 0.001)
    _relay_log(tmp_path)
    log, seen = _Log(), []

    def paused_since() -> str | None:
        """Paused before the first block, and again between the two."""
        seen.append(sum(epoch.transactions for epoch in log.epochs))
        return "2026-11-26" if len(seen) in (1, 2, 5, 6) else None

    limits = EpochLimits(1 << 30, 1 << 40, 1e9, 1e9)
    rules = DecodeRules("mysql", TableFilter(), limits)
    publisher = Publisher(log, tmp_path, None, rules, paused_since=paused_since)
    publisher.run(LogState(None), threading.Event())
    assert seen[:4] == [0, 0, 0, 0]
    # The open epoch was committed before it stood still.
    assert seen[4:7] == [0, 2, 2]
    assert [epoch.transactions for epoch in log.epochs] == [0, 2, 2]
    assert publisher.progress.paused is None
