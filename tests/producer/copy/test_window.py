"""How many copied rows may lie before a channel, with a made clock and simulated channels."""

from __future__ import annotations

from collections import deque
from statistics import fmean

import pytest

from producer.copy.window import NO_LIMIT, CopyWindow

MB = 1 << 20
STEP = 0.01  # seconds
READ = 120 * MB  # bytes that a reader reads in a second


class Simulated:
    """A channel that takes what is in the log, as a batch, and needs a fixed time for it, and some for each byte."""

    def __init__(self, name: str, latency: float, rate: float) -> None:
        self.name, self.latency, self.rate = name, latency, rate
        self.epoch, self.runs = -1, True
        self.queue: deque[tuple[int, float, int]] = deque()
        self.batch: deque[tuple[int, float, int]] = deque()
        self.ends = 0.0
        self.copied = 0
        self.lags: list[tuple[float, float]] = []

    def step(self, now: float) -> None:
        if not self.runs:
            return
        while self.batch and now >= self.ends:
            self.epoch, at, size = self.batch.popleft()
            self.copied += size
            if not size:
                self.lags.append((at, now - at))
            self.ends += self.batch[0][2] / self.rate if self.batch else 0.0
        if not self.batch and self.queue:
            self.batch, self.queue = self.queue, deque()
            self.ends = now + self.latency + self.batch[0][2] / self.rate

    def lag(self, begin: float, end: float = float("inf")) -> float:
        """The mean lag of changes that were made in a time."""
        return fmean(lag for at, lag in self.lags if begin <= at < end)


class World:
    """A log with changes, and two readers of a table without an end."""

    def __init__(self, *channels: Simulated, changes: bool = True, copies: bool = True) -> None:
        self.now, self.epoch = 0.0, 0
        self.channels, self.changes, self.copies = channels, changes, copies
        self.window = CopyWindow([channel.name for channel in channels], lambda: self.now)
        self.reads: list[tuple[float, int] | None] = [None, None]
        self.written = 0
        self.steps = 0

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP)):
            self.steps += 1
            self.now = self.steps * STEP
            if self.changes and self.steps % 20 == 0:
                self.window.changed()
                self._write(0)
            if self.copies:
                for number in range(len(self.reads)):
                    self._read(number)
            for channel in self.channels:
                channel.step(self.now)
                if self.steps % 10 == 0:
                    self.window.applied(channel.name, channel.epoch)

    def _read(self, number: int) -> None:
        read = self.reads[number]
        if read is not None and self.now >= read[0]:
            self._write(min(read[1], 8 * MB))
            self.window.give_back(read[1])
            self.reads[number] = read = None
        if read is None and self.steps % 5 == 0 and (most := self.window.take(0)):
            self.reads[number] = self.now + min(most, 8 * MB) / READ, most

    def _write(self, size: int) -> None:
        self.epoch += 1
        if size:
            self.window.wrote(self.epoch, 0, size)
            self.written += size
        for channel in self.channels:
            channel.queue.append((self.epoch, self.now, size))


@pytest.mark.parametrize("rate", [5 * MB, 40 * MB])
@pytest.mark.parametrize("latency", [0.05, 0.3, 0.7, 3.0])
def test_changes_are_held_up_for_less_than_a_second_and_the_copy_goes_on(latency: float, rate: float) -> None:
    channel = Simulated("one", latency, rate)
    world = World(channel, copies=False)
    world.run(30)
    base = channel.lag(5, 20)
    world.copies = True
    world.run(200)
    before = channel.copied
    world.run(200)
    assert channel.lag(30, 60) < base + 1
    assert channel.lag(230, 400) < 2 * base + 0.5
    # As much as with a second for copied rows in every other batch, about.
    assert channel.copied - before > 0.5 * 200 * rate / (1 + 2 * latency)


def test_without_changes_nothing_is_held_back() -> None:
    channel = Simulated("one", 0.7, 10 * MB)
    world = World(channel, changes=False)
    world.run(20)
    assert world.written == pytest.approx(len(world.reads) * READ * 20, rel=0.5)
    world.changes = True
    world.run(1)
    assert world.window.take(0) == 0
    world.changes = False
    world.run(100)
    assert world.window.take(0) == NO_LIMIT


def test_without_known_channels_nothing_is_held_back() -> None:
    window = CopyWindow()
    window.changed()
    window.wrote(1, 10, 1 << 40)
    assert window.take(1 << 40) == NO_LIMIT


def test_a_channel_that_stops_or_has_not_begun_is_not_waited_for() -> None:
    channel = Simulated("one", 0.7, 10 * MB)
    channel.runs = False
    world = World(channel)
    for _ in range(3):
        world.run(30)
        assert world.window.take(0) == NO_LIMIT
        before = world.written
        world.run(1)
        assert world.written > before
        # Nothing more is read until it has passed what was written meanwhile.
        channel.runs = True
        world.run(2 * channel.latency + 8 * MB / channel.rate)
        before = world.written
        world.run((before - channel.copied) / channel.rate - 20)
        assert world.written - before < 40 * MB
        world.run(60)
        assert world.written - channel.copied < 4 * channel.rate
        channel.runs = False


def test_a_channel_of_which_nothing_is_known_is_waited_for_shortly() -> None:
    now = 0.0
    window = CopyWindow(["one"], lambda: now)
    window.changed()
    assert window.take(0) == 0
    now = 5.0
    assert window.take(0) == NO_LIMIT
    window.wrote(1, 10, 1 << 30)
    window.applied("one", 0)
    assert window.take(0) == 0
    window.applied("one", None)
    assert window.take(0) == NO_LIMIT
    window.forget("one")
    assert window.take(0) == 0
    now = 10.0
    assert window.take(0) == NO_LIMIT


def test_the_slowest_channel_that_runs_counts() -> None:
    fast, slow = Simulated("fast", 0.3, 60 * MB), Simulated("slow", 0.7, 6 * MB)
    world = World(fast, slow)
    world.run(100)
    assert slow.lag(60, 95) < 1.05 + 1.3
    assert world.written - slow.copied < 4 * slow.rate
    slow.runs = False
    before = fast.copied
    world.run(100)
    assert fast.copied - before > 5 * 100 * slow.rate / 2
    assert fast.lag(150, 195) < 0.45 + 1.3


def test_a_channel_that_is_behind_for_other_reasons_is_not_waited_for() -> None:
    now = 0.0
    window = CopyWindow(["one"], lambda: now)
    window.changed()
    window.applied("one", 5)
    for epoch in range(1000, 1100):
        now += 0.5
        window.changed()
        window.applied("one", epoch - 900)
        if most := window.take(0):
            window.wrote(epoch, 0, min(most, 8 * MB))
            window.give_back(most)
    assert window.take(0) == NO_LIMIT


def test_rows_that_are_read_or_wait_count() -> None:
    now = 0.0
    window = CopyWindow(["one"], lambda: now)
    window.changed()
    window.applied("one", 0)
    small = window.take(0)  # to see how long the channel takes for one chunk
    assert 0 < small < MB
    assert window.take(0) == 0
    window.give_back(small)
    window.wrote(1, 1, 10)
    assert window.take(0) == 0
    now = 1.0
    window.applied("one", 1)
    chunk = window.take(0)
    assert small < chunk < NO_LIMIT
    assert window.take(1 << 30) == 0
    assert window.held_by is None
    now = 20.0
    assert window.take(1 << 30) == 0
    assert window.held_by == "one"
