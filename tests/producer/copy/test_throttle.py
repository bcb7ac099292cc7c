"""How readers of copies are held back: rows a second, and chunks that adapt to the time they take."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from producer.copy.throttle import Throttle
from producer.copy.upstream_reader import next_limit
from producer.settings import CopySettings, replica_url
from schemas.access.server_url import ServerUrl

SOURCE = ServerUrl("127.0.0.1")


class Clock(threading.Event):
    """Whoever waits for this event finds that the time has passed."""

    now = 100.0

    def wait(self, timeout: float | None = None) -> bool:
        self.now += timeout or 0.0
        return False


@given(st.lists(st.integers(0, 5000), max_size=20), st.integers(1, 1000))
def test_no_more_rows_than_allowed(chunks: list[int], most: int) -> None:
    clock = Clock()
    throttle = Throttle(SOURCE, CopySettings(max_rows_per_s=most), lambda: clock.now)
    begin = clock.now
    for rows in chunks:
        throttle.wait(clock)
        throttle.has_read(rows)
    throttle.wait(clock)
    assert sum(chunks) <= most * (clock.now - begin) + 1e-3


def test_without_limits_nobody_waits_and_no_server_is_asked() -> None:
    clock = Clock()
    throttle = Throttle(SOURCE, CopySettings(), lambda: clock.now)
    throttle.wait(clock)
    throttle.has_read(1_000_000)
    throttle.wait(clock)
    assert (clock.now, throttle.paused) == (100.0, None)


@pytest.mark.parametrize("seconds_of", [lambda rows: rows / 20_000, lambda rows: 3.0, lambda rows: 0.0])
def test_chunks_take_the_wanted_time_or_keep_to_their_bounds(seconds_of: Callable[[int], float]) -> None:
    rows = least = 1000
    for _ in range(20):
        rows = next_limit(rows, seconds_of(rows), least, 50_000)
        assert least <= rows <= 50_000
    assert rows == {0.05: 10_000, 3.0: 1000, 0.0: 50_000}[seconds_of(1000)]


@given(st.integers(1, 10**6), st.floats(0, 100), st.integers(1, 1000), st.integers(1000, 10**6))
def test_a_chunk_is_at_most_twice_the_last_one(rows: int, seconds: float, least: int, most: int) -> None:
    assert least <= next_limit(rows, seconds, least, most) <= max(least, min(2 * rows, most))


def test_addresses_of_replicas() -> None:
    source = ServerUrl("db1", 3305, "me", "secret", {"ssl-mode": "required", "unix-socket": "/tmp/s"})
    found = ServerUrl("::1", 3307, "me", "secret", {"ssl-mode": "required"})
    assert replica_url(source, "[::1]:3307") == found
    settings = TypeAdapter(CopySettings)
    given = ("DB2:3307", "db3", "[::1]", "10.0.0.1:3306")
    assert settings.validate_python({"replicas": given}).replicas == given
    assert settings.validate_python({"read_from": ""}).read_from == ""
    with pytest.raises(ValidationError, match="host or host:port"):
        settings.validate_python({"read_from": "me@db2"})
    for wrong in ("", "user@db2", "db2/x", "db2:0", "db2:x", "mysql://db2", "db2?ssl-mode=required"):
        with pytest.raises(ValidationError, match="host or host:port"):
            settings.validate_python({"replicas": (wrong,)})
