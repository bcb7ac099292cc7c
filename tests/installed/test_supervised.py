"""A pair from the wheel under a supervisor that follows the units: restarts, stops, an upgrade and a downgrade."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from compose.databases import Database
from compose.kafka import Kafka
from tailrace.systemd import CHANNEL, PRODUCER, unit
from tests.support.processes.installed import Installed
from tests.support.processes.supervised import SupervisedUnit
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.servers, pytest.mark.long]
DB = "supervised_t"


class _Pair:
    """A producer and a channel as two services, and the servers beside them."""

    def __init__(
        self, folder: Path, installed: Installed, upstream: Database, downstream: Database, kafka: Kafka
    ) -> None:
        self.folder, self.upstream, self.downstream, self.installed = folder, upstream, downstream, installed
        self.config = folder / "tailrace.toml"
        self.config.write_text(
            f'[source]\nurl = "mysql://tailrace@127.0.0.1:{upstream.port}/"\nserver-id = 7402\n'
            f'[relay]\ndir = "{folder}/relay"\n'
            f'[kafka]\nbootstrap-servers = "{kafka.bootstrap}"\nprefix = "supervised{time.time_ns()}"\n'
            f'[target]\nurl = "mysql://tailrace@127.0.0.1:{downstream.port}/"\n'
            f'[consumer]\ncheckpoint-dir = "{folder}/checkpoint"\n"spark.master" = "local[1]"\n'
            f'[tables]\ninclude = ["{DB}.*"]\n'
        )
        self.rows = 0
        self.producer = self.service(PRODUCER)
        self.channel = self.service(CHANNEL)

    def service(self, name: str, folder: str = "") -> SupervisedUnit:
        """Return a service, with the passwords in its environment as from ``secrets.env``."""
        secrets = {f"TAILRACE_{side}_PASSWORD": "tailrace" for side in ("SOURCE", "TARGET")}
        environment = self.installed.environment | secrets
        text = unit(name, self.installed.program)
        return SupervisedUnit(text, self.config, self.folder / (folder or name), environment, instance="main")

    def flows(self) -> None:
        """Write a row upstream, and wait until it is downstream."""
        self.rows += 1
        self.upstream.execute(f"INSERT INTO {DB}.t VALUES ({self.rows}, 0)")
        query = f"SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = '{DB}'"
        wait_until(lambda: self.downstream.execute(query) == [(1,)], self.log)
        wait_until(
            lambda: self.downstream.execute(f"SELECT COUNT(*) FROM {DB}.t") == [(self.rows,)], self.log
        )

    def log(self) -> str:
        return self.producer.log()[-3000:] + self.channel.log()[-3000:]

    def set_formats(self, owner: str, comment: str) -> None:
        """Give the relay directory and the downstream's tables another format: ``owner`` is the line in owner.toml."""
        path = self.folder / "relay" / "owner.toml"
        kept = [line for line in path.read_text().splitlines() if not line.startswith("format")]
        path.write_text("\n".join([*kept, owner, ""]))
        self.downstream.execute(f"ALTER TABLE tailrace.relay_log_info COMMENT '{comment}'")

    def stored(self) -> tuple[object, ...]:
        """Return everything that a start may change; the error of the last one is kept beside it."""
        files = {
            path: (path.stat().st_mtime_ns, path.stat().st_size)
            for path in (self.folder / "relay").rglob("*")
            if path.is_file() and path.name != "last-error.json"
        }
        rows = self.downstream.execute("SELECT * FROM tailrace.relay_log_info ORDER BY prefix, Channel_name")
        return files, rows


@pytest.fixture
def pair(
    tmp_path: Path,
    installed: Installed,
    upstream_mariadb: Database,
    downstream_mariadb: Database,
    kafka: Kafka,
) -> Iterator[_Pair]:
    upstream_mariadb.execute(f"CREATE DATABASE {DB}", f"CREATE TABLE {DB}.t (id INT PRIMARY KEY, v INT)")
    made = _Pair(tmp_path, installed, upstream_mariadb, downstream_mariadb, kafka)
    yield made
    made.producer.close()
    made.channel.close()
    made.set_formats("format = 1", "Tailrace, format 1: position per channel")


def test_a_pair_lives_under_a_supervisor_and_through_an_upgrade(pair: _Pair) -> None:
    producer, channel = pair.producer, pair.channel
    producer.start()
    channel.start()
    pair.flows()
    assert channel.is_ready
    assert producer.is_ready

    # Killed: it is started again. Another start may help: so is a second producer, until the first one ends.
    _killed_is_started_again(pair)
    second = pair.service(PRODUCER, "second")
    second.start_without_waiting()
    wait_until(lambda: second.ended[:2] == [75, 75], second.log)
    second.stop()
    assert "TR301" in second.log()

    # Stopped: in order, and it stays down.
    for service in (channel, producer):
        service.stop()
        assert (service.ended[-1], "STOPPING=1" in service.told) == (0, True), service.log()

    # Old state and new code: the first releases wrote no format. A newer format is refused, and nothing is touched.
    pair.set_formats("format = 2", "Tailrace, format 2: position per channel")
    before = pair.stored()
    for service in (producer, channel):
        service.start()
        assert (service.active, service.ended[-1]) == (False, 1), service.log()
        assert '"TR191"' in service.log().splitlines()[-1]
    assert pair.stored() == before
    pair.set_formats("", "Tailrace: position per channel")
    producer.start()
    channel.start()
    pair.flows()

    # What a human must look at stays down, and the producer goes on.
    pair.downstream.execute(f"DELETE FROM {DB}.t WHERE id = 1")
    pair.upstream.execute(f"UPDATE {DB}.t SET v = 1 WHERE id = 1")
    wait_until(lambda: not channel.active, channel.log)
    assert (channel.ended[-1], producer.active) == (1, True), channel.log()
    producer.stop()


def _killed_is_started_again(pair: _Pair) -> None:
    channel = pair.channel
    first = channel.process
    assert first is not None
    first.kill()
    wait_until(lambda: channel.process is not first and channel.active, channel.log)
    pair.flows()
    assert channel.ended == [-9]
