"""The validation's protocol against a model: no false alarm, and no planted difference missed.

Between any two calls the upstream runs transactions and the channel applies some. Values are few, so that rows go back
to earlier values; each key of an upstream read is at a state of its own between the read's bounds, as with commits in
another order than the binlog's, and workers apply keys ahead of the position.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.validate.protocol import Key, Rows, Settled, chunk_suspects, settle

KEYS: list[Key] = [(b"%d" % n,) for n in range(6)]
Values = dict[Key, bytes | None]


class ModelReader:
    """Rows of one snapshot; a chunk is a set of keys."""

    def __init__(self, values: Values) -> None:
        self.values = values

    def rows(self, keys: Collection[Key]) -> Any:
        return {key: ((value,),) for key in keys if (value := self.values[key]) is not None}

    def digests(self, chunk: Collection[Key], buckets: Collection[int]) -> Any:
        return {key: row[0] for key, row in self.rows(chunk).items() if int(key[0]) % 2 in buckets}

    def sums(self, chunk: Collection[Key]) -> Any:
        found: dict[int, tuple[int, int, int]] = {}
        for key, ((value,),) in self.rows(chunk).items():
            count, one, two = found.get(int(key[0]) % 2, (0, 0, 0))
            number = hash((key, value))
            found[int(key[0]) % 2] = (count + 1, one + number, two + number * number)
        return found


class ModelSides:
    """An upstream with a history, and a channel. A position is a number of transactions."""

    def __init__(
        self, random: Random, *, workers: bool, busy: int, keys: list[Key], rewinds: bool = False
    ) -> None:
        self.rewinds, self.repeat_until = rewinds, 0
        self.random, self.workers, self.busy, self.moving = random, workers, busy, keys
        self.log: list[dict[Key, bytes | None]] = []
        self.states: list[Values] = [{key: random.choice([None, b"a", b"b"]) for key in KEYS}]
        self.applied = 0
        self.down: Values = dict(self.states[0])
        self.ahead: dict[Key, int] = {}  # by key: how many transactions are applied
        self.planted: set[Key] = set()

    def plant(self, key: Key) -> None:
        """Change a row downstream by hand."""
        self.down[key] = self.random.choice([v for v in (None, b"a", b"b", b"c") if v != self.down[key]])
        self.planted.add(key)

    def _write(self, key: Key, upto: int) -> None:
        for number in range(self.ahead.get(key, self.applied), upto):
            if key in self.log[number]:
                self.down[key] = self.log[number][key]
                self.planted.discard(key)

    def run(self) -> None:
        """Let time pass."""
        for _ in range(self.random.randint(0, self.busy)):
            changed = self.random.sample(self.moving, min(len(self.moving), self.random.randint(0, 2)))
            change = {key: self.random.choice([None, b"a", b"b"]) for key in changed}
            self.log.append(change)
            self.states.append(self.states[-1] | change)
        if self.rewinds and self.random.random() < 0.1:
            self.repeat_until = max(self.repeat_until, self.applied, *self.ahead.values(), 0)
            self.applied, self.ahead = self.random.randint(0, self.applied), {}
        self.apply(self.random.randint(self.applied, len(self.log)))
        if self.workers:
            slice_end = self.random.randint(self.applied, len(self.log))
            for key in self.random.sample(KEYS, self.random.randint(0, len(KEYS))):
                if slice_end > self.ahead.get(key, 0):
                    self._write(key, slice_end)
                    self.ahead[key] = slice_end

    def apply(self, upto: int) -> None:
        """Move the position."""
        for key in KEYS:
            self._write(key, upto)
        self.applied = max(self.applied, upto)
        self.ahead = {key: max(at, self.applied) for key, at in self.ahead.items()}

    def position(self) -> int:
        self.run()
        return self.applied

    def downstream(self, read: Callable[[ModelReader], Any]) -> tuple[Any, int]:
        self.run()
        return read(ModelReader(dict(self.down))), self.applied

    def upstream(self, read: Callable[[ModelReader], Any], behind: int) -> tuple[Any, int]:
        self.run()
        end = len(self.log)
        seen = {key: self.states[self.random.randint(behind, end)][key] for key in KEYS}
        found = read(ModelReader(seen))
        self.run()
        return found, self.random.randint(end, len(self.log))

    def wait_until_passed(self, end: int) -> bool:
        self.run()
        if self.applied < end:
            self.apply(self.random.randint(end, len(self.log)))
        return True

    def passed(self, position: int, end: int) -> bool:
        return position >= end

    def touched(self, rows: Rows, after: int, until: int) -> Collection[Key]:
        top = len(self.log) if self.workers or until < self.repeat_until else until
        self.run()
        return {key for key in rows if any(key in change for change in self.log[after:top])}


def validated(sides: ModelSides) -> Settled:
    _, suspects = chunk_suspects(sides, KEYS)
    return settle(sides, suspects)


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32), st.booleans(), st.integers(0, 4), st.booleans())
def test_nothing_is_reported_that_is_equal(seed: int, workers: bool, busy: int, rewinds: bool) -> None:
    sides = ModelSides(Random(seed), workers=workers, busy=busy, keys=KEYS, rewinds=rewinds)
    for _ in range(5):
        sides.run()
        assert not validated(sides).different


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32), st.booleans(), st.integers(0, 3), st.sets(st.sampled_from(KEYS), min_size=1))
def test_each_planted_difference_is_found(seed: int, workers: bool, busy: int, planted: set[Key]) -> None:
    sides = ModelSides(Random(seed), workers=workers, busy=busy, keys=KEYS)
    sides.run()
    # What is planted while a worker is ahead may look like the state before the worker's write.
    sides.apply(max(sides.ahead.values(), default=0))
    for key in sorted(planted):
        sides.plant(key)
    before = set(sides.planted)
    settled = validated(sides)
    assert set(settled.different) <= before
    # What is not reported has been written again by the channel meanwhile, is equal, or still moves.
    left = {key for key in sides.planted if sides.down[key] != sides.states[sides.applied][key]}
    unmoved = {key for key in left if not any(key in change for change in sides.log[sides.applied :])}
    assert unmoved <= set(settled.different) | settled.pending


@pytest.mark.parametrize("workers", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_rows_at_rest_are_never_pending(seed: int, workers: bool) -> None:
    sides = ModelSides(Random(seed), workers=workers, busy=3, keys=KEYS[:3])
    sides.run()
    truth = {key: sides.states[0][key] for key in KEYS}
    for key in KEYS[3:]:
        sides.plant(key)
    settled = validated(sides)
    at_rest = {key for key in KEYS[3:] if sides.down[key] != truth[key]}
    assert {key for key in settled.different if key in KEYS[3:]} == at_rest
    assert settled.pending <= set(KEYS[:3])


def test_rows_that_move_all_the_time_are_pending() -> None:
    class Restless(ModelSides):
        def touched(self, rows: Rows, after: int, until: int) -> Collection[Key]:
            return rows.keys()

    sides = Restless(Random(1), workers=False, busy=0, keys=KEYS)
    sides.plant(KEYS[0])
    assert validated(sides) == Settled({}, frozenset({KEYS[0]}))
