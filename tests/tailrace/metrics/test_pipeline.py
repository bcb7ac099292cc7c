"""The metrics of a running pipeline, held against what happened to it."""

from __future__ import annotations

import http.client
import re
import signal
import subprocess
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

from compose.processes import free_port
from tests.support.paths import CHECKOUT
from tests.support.processes.operator import DB, Operator
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.servers, pytest.mark.long]
CONSUMER = "tailrace_channel"
AUDITED = "SELECT COUNT(*), MAX(last_epoch) FROM tailrace.applied_epochs"


class Scraper:
    """Reads metrics as Prometheus does."""

    def __init__(self, folder: Path, prefix: str, port: int) -> None:
        self._tokens = {0: folder / "relay", 1: folder / "checkpoint" / "main" / prefix}
        self._port = port

    def ask(self, process: int, path: str, token: str = "") -> tuple[int, str]:
        with closing(http.client.HTTPConnection("127.0.0.1", self._port + process, timeout=10)) as connection:
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def text(self, process: int) -> str:
        status, text = self.ask(process, "/metrics", (self._tokens[process] / "metrics.token").read_text())
        assert status == 200
        return text

    def values(self, process: int) -> dict[str, float]:
        found = re.findall(r"^(tailrace_\w+)(?:\{(.*)\})? (\S+)$", self.text(process), re.MULTILINE)
        return {
            " ".join((name, *re.findall(r'="(\w+)"', labels))): float(value) for name, labels, value in found
        }

    def lag(self) -> float:
        return self.values(1).get(f"{CONSUMER}_lag_seconds main", -1.0)

    def is_ready(self, process: int) -> bool:
        with suppress(OSError):
            return self.ask(process, "/readyz") == (200, "ready\n")
        return False

    def answers(self, process: int) -> bool:
        with suppress(OSError):
            return self.ask(process, "/healthz") == (200, "alive\n")
        return False


@pytest.fixture
def scraper(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> Scraper:
    """Reads the metrics of the operator's processes, at a free port and the one behind it."""
    # Not of the kernel's choice: an outgoing connection may get the port behind it.
    port = free_port()
    monkeypatch.setenv("TAILRACE_METRICS_LISTEN", f"127.0.0.1:{port}")
    return Scraper(operator.folder, operator.folder.name, port)


def test_metrics_are_what_happened(operator: Operator, scraper: Scraper) -> None:
    producer, consumer = operator.start("produce"), operator.start("consume")
    wait_until(lambda: scraper.is_ready(0) and scraper.is_ready(1), lambda: operator.log("consume"), 120)
    _rows_are_counted(operator, scraper)
    operator.upstream.execute("FLUSH BINARY LOGS")
    _a_quiet_upstream_is_no_lag(operator, scraper)
    _a_held_up_channel_is(operator, scraper)
    _without_a_producer_nobody_knows(producer, scraper)
    consumer.send_signal(signal.SIGTERM)
    assert consumer.wait(60) == 0
    assert not scraper.answers(1)


def test_the_producer_tells_of_a_channel_without_a_consumer(operator: Operator, scraper: Scraper) -> None:
    operator.insert(0, 10)
    assert operator.run("run", "--until-caught-up")[0] == 0
    operator.start("produce")
    operator.insert(10, 15)
    behind = "tailrace_followed_channel_transactions main"
    wait_until(
        lambda: scraper.answers(0) and scraper.values(0).get(behind) == 1, lambda: operator.log("produce"), 60
    )
    found = scraper.values(0)
    assert found["tailrace_followed_channel_epoch main"] < found["tailrace_published_epoch"]
    assert scraper.is_ready(0)


def _rows_are_counted(operator: Operator, scraper: Scraper) -> None:
    before, applied = scraper.values(0), scraper.values(1)
    operator.insert(0, 30)
    operator.upstream.execute(f"UPDATE {DB}.t SET v = 'x' WHERE id < 10", f"DELETE FROM {DB}.t WHERE id > 24")
    wanted = {"insert": 30, "update": 10, "delete": 5, "copy": 0}

    def grown(process: int, name: str, start: dict[str, float]) -> dict[str, float]:
        found = scraper.values(process)
        return {op: found[f"{name} {op}"] - start[f"{name} {op}"] for op in wanted}

    wait_until(lambda: grown(1, f"{CONSUMER}_rows_total main", applied) == wanted, "the rows", 60)
    assert grown(0, "tailrace_published_rows_total", before) == wanted
    found, here = scraper.values(0), scraper.values(1)
    assert (
        found["tailrace_published_transactions_total"] - before["tailrace_published_transactions_total"] == 3
    )
    assert found["tailrace_kafka_commit_seconds_count"] == found["tailrace_published_epochs_total"]
    assert found["tailrace_upstream_position_bytes"] >= found["tailrace_mirrored_position_bytes"] > 0
    assert here[f"{CONSUMER}_position_bytes main"] == found["tailrace_mirrored_position_bytes"]
    assert here[f"{CONSUMER}_batch_seconds_sum main apply"] > 0
    assert here[f"{CONSUMER}_statements_total main"] > applied[f"{CONSUMER}_statements_total main"]
    assert found["tailrace_memory_bytes python"] > 30 << 20
    for process in (0, 1):
        promtool = [str(CHECKOUT / ".cache/promtool"), "check", "metrics"]
        subprocess.run(promtool, input=scraper.text(process).encode(), check=True, timeout=60)
        assert "tailrace:" not in scraper.text(process)


def _a_quiet_upstream_is_no_lag(operator: Operator, scraper: Scraper) -> None:
    name = f"{CONSUMER}_complete_timestamp_seconds main"
    before, audited = scraper.values(1), operator.downstream.execute(AUDITED)
    wait_until(lambda: scraper.values(1)[name] > before[name] + 1, "an epoch that says so", 60)
    found = scraper.values(1)
    assert time.time() - found[name] < 15
    assert found[f"{CONSUMER}_epochs_total main"] > before[f"{CONSUMER}_epochs_total main"]
    assert scraper.lag() == 0.0
    assert operator.downstream.execute(AUDITED) == audited


def _a_held_up_channel_is(operator: Operator, scraper: Scraper) -> None:
    with closing(operator.downstream.connect()) as session, session.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute(f"SELECT * FROM {DB}.t WHERE id = 1 FOR UPDATE")
        operator.upstream.execute(f"UPDATE {DB}.t SET v = 'held' WHERE id = 1")
        wait_until(lambda: scraper.lag() > 2, "a lag", 60)
        found = scraper.values(1)
        assert found[f"{CONSUMER}_batch_age_seconds main"] > 0.5
        assert found[f"{CONSUMER}_lag_epochs main"] >= 0
        session.rollback()
    wait_until(lambda: scraper.lag() == 0.0, "no lag", 60)


def _without_a_producer_nobody_knows(producer: subprocess.Popen[bytes], scraper: Scraper) -> None:
    producer.send_signal(signal.SIGTERM)
    assert producer.wait(60) == 0
    assert not scraper.answers(0)
    assert scraper.lag() == 0.0
    wait_until(lambda: scraper.lag() > 30, "what a log that nobody completes means", 60)
    assert scraper.is_ready(1), "it has all that there is"
