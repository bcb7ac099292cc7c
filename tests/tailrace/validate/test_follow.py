"""``validate --follow`` on real servers: differences are found under load and after kills, and none is invented."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spark_consumer.apply.tables import validation
from spark_consumer.apply.tables.validation import Validated
from spark_consumer.target.session import closing, connect
from tailrace.commands.app import app
from tailrace.status.collect import collect
from tailrace.validate import Report, follow
from tests.support.applying.validated import Channel, change_busy_tables, make_busy_tables
from tests.support.waiting import wait_until

pytestmark = pytest.mark.servers

Make = Callable[..., Channel]


class Killed(Exception):
    """Ends a validation at a random moment; only what it has written is left."""


def _follow(pipe: Channel, stop: threading.Event, kill_after: int | None, every: float) -> None:
    """Follow until a number of looks, or until stopped."""
    looks = itertools.count(1)

    def progress(report: Report) -> None:
        if next(looks) == kill_after:
            raise Killed

    with suppress(Killed):
        follow(pipe.config, None, stop, every, progress=progress)


def _proved(pipe: Channel) -> dict[str, Validated]:
    """Return the rows of tailrace.validation, by table without its database; the channel's is ''."""
    with closing(connect(pipe.consumer.target)) as session:
        found = validation.read(session.rows, pipe.consumer.key.prefix).get(pipe.consumer.key.name, {})
    return {name.partition(".")[2]: row for name, row in found.items()}


def _differences(pipe: Channel) -> list[str]:
    return sorted(line for row in _proved(pipe).values() for line in row.differences)


def test_under_load_and_kills_planted_differences_are_found_and_none_invented(channel: Make) -> None:
    pipe = channel("mariadb", "mysql", "worker")
    make_busy_tables(pipe)
    chance, numbers = random.Random(11), itertools.count()
    stop, kills = threading.Event(), iter([chance.randrange(1, 15)])

    def work() -> None:
        for _ in range(2):
            change_busy_tables(pipe, chance, next(numbers))
        pipe.replicate()

    with pipe.running(work, lambda: _follow(pipe, stop, next(kills, None), every=3600.0)):
        pipe.there_sql(
            "UPDATE flags SET v = 1 WHERE id = 1950",
            "DELETE FROM flags WHERE id = 1951",
            "INSERT INTO flags VALUES (5000, 0)",
        )
        wait_until(lambda: len(_differences(pipe)) >= 3, lambda: _proved(pipe))
        stop.set()
    assert _differences(pipe) == [
        "id=1950  different values",
        "id=1951  only upstream",
        "id=5000  only downstream",
    ]


@contextmanager
def _following(pipe: Channel) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=follow, args=(pipe.config, None, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_only_changed_rows_are_looked_at_after_a_restart(channel: Make, monkeypatch: Any) -> None:
    monkeypatch.setattr("tailrace.validate.follower._AGAIN", 0.2)
    pipe = channel("mysql", "mariadb", route="followed_v")
    pipe.log.sql(
        "SET time_zone = '+00:00'",
        "CREATE TABLE t (a DECIMAL(6,3), t TIMESTAMP(3), y YEAR, b BIT(9), o BINARY(3), v INT,"
        " PRIMARY KEY (a, t, y, b, o))",
        "CREATE TABLE w (w VARCHAR(9) CHARACTER SET latin1 PRIMARY KEY, v INT)",
        *(
            f"INSERT INTO t VALUES ({n}.5, '2024-01-01 00:00:00.{n:03}', {2000 + n}, {n}, '{n}', 0)"
            for n in range(9)
        ),
        "INSERT INTO w VALUES ('é', 0), ('ä', 0)",
    )
    pipe.replicate()
    equal = {"": "equal", "t": "equal", "w": "equal"}
    with _following(pipe):
        wait_until(lambda: {name: row.verdict for name, row in _proved(pipe).items()} == equal)
    pipe.log.sql("UPDATE t SET v = 1 WHERE y <= 2004", "UPDATE w SET v = 1 WHERE w = 'é'")
    pipe.replicate()
    pipe.there_sql(
        "ALTER TABLE t ADD COLUMN extra INT", "UPDATE t SET v = 2 WHERE y >= 2004", "UPDATE w SET v = 2"
    )
    with _following(pipe):
        wait_until(lambda: len(_differences(pipe)) == 2, lambda: _proved(pipe))
        [row, word] = _differences(pipe)
        assert row.startswith("a=4.500, t=2024-01-01 00:00:00.004, y=2004, b=")
        assert word.endswith("  different values")
        [state] = [one for one in collect(pipe.config)["downstream"]["channels"] if one["channel"] == pipe.db]
        found = state["validation"]
        assert (found["different"], found["tables"]["different"], found["gtids"]) == (2, 2, state["gtids"])
        assert [table["table"] for table in found["not_equal"]] == ["followed_v.t", "followed_v.w"]
        pipe.there_sql("UPDATE t SET v = 1 WHERE y = 2004", "UPDATE w SET v = 1 WHERE w = 'é'")
        wait_until(lambda: not _differences(pipe))
    assert _proved(pipe)[""].rows == 6


def test_the_command_ends_with_its_signal(channel: Make, tmp_path: Path) -> None:
    pipe = channel("mysql", "mysql")
    pipe.log.sql("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    pipe.replicate()
    pipe.there_sql("INSERT INTO t VALUES (2)")
    file = str(tmp_path / "tailrace.toml")
    command = [sys.executable, "-m", "tailrace", "validate", "--config", file, "--follow", "--every", "1h"]
    with subprocess.Popen(command) as process:
        wait_until(lambda: _differences(pipe) or process.poll() is not None)
        process.send_signal(signal.SIGTERM)
    assert (process.returncode, _differences(pipe)) == (4, ["id=2  only downstream"])
    shown = CliRunner().invoke(app, ["status", "--config", file]).stdout
    assert "1 table different" in shown
    assert "t: 1 row different" in shown
