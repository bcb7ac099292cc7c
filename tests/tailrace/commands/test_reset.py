"""`tailrace reset`: what it forgets, what it keeps, and that going on afterwards repeats nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from compose.databases import Database
from compose.kafka import Kafka
from relay_store.layout.directory import RelayPosition
from relay_store.layout.readers import register
from relay_store.write.writer import RelayWriter
from schemas.errors import ExitCode
from spark_consumer.job.checkpoint import in_use
from spark_consumer.rules.config import ConsumerConfig
from tailrace.config.channels import server_channel
from tailrace.config.file import load
from tests.support.applying.consuming import consume
from tests.support.processes.river import River
from tests.support.statements.workload import SCHEMA, run_ddl, run_dml

pytestmark = pytest.mark.servers


@pytest.fixture
def river(flavor: str, tmp_path: Path, server: Callable[..., Database], kafka: Kafka) -> River:
    """Two fresh servers of one flavor; what was done so far is applied."""
    up = server(flavor, role="upstream", server_id=1)
    it = River(tmp_path, up, server(flavor, role="downstream", server_id=2), kafka)
    up.execute(*SCHEMA)
    run_dml(up, 0, 100)
    assert it.run("produce", "--until-caught-up") == 0, it.talk()
    consume(settings(it))
    return it


def settings(it: River) -> ConsumerConfig:
    return server_channel(load(it.config))


def channel(it: River) -> list[tuple[object, ...]]:
    return it.downstream.execute(
        "SELECT Relay_log_name, executed_gtid_set, epoch FROM tailrace.relay_log_info"
    )


def files(it: River) -> set[str]:
    return {path.name for path in (it.folder / "relay").iterdir()}


def test_reset_forgets_the_relay_log_and_nothing_is_repeated(river: River) -> None:
    before, kept = channel(river), files(river)
    subdir = next(iter((river.folder / "relay").glob("*.000001"))).name
    register(river.folder / "relay", "other", RelayPosition(subdir, "mysql-bin.000001", 4))
    # Nobody to ask, a producer, a consumer: nothing happens.
    assert river.run("reset") == ExitCode.USAGE
    assert "TR111" in river.talk()
    producer = RelayWriter.open(river.folder / "relay")
    assert river.run("reset", "--yes") == ExitCode.MAY_PASS
    assert "TR301" in river.talk()
    producer.close()
    with in_use(settings(river).channel_dir):
        assert river.run("reset", "--yes") == ExitCode.MAY_PASS
    assert "TR614" in river.talk()
    assert (channel(river), files(river) | {"readers"}) == (before, kept | {"readers"})

    assert river.run("reset", "--yes") == 0, river.talk()
    assert "keeps:" in river.talk()
    assert files(river) == {"relay.lock", "purge.lock"}
    assert channel(river) == [(None, *before[0][1:])]
    run_dml(river.upstream, 1, 100)
    run_ddl(river.upstream, 1)
    assert river.run("produce", "--until-caught-up") == 0, river.talk()
    consume(settings(river))
    river.assert_equal()
    # And so it goes after a second one, with nothing new.
    assert river.run("reset", "--yes") == 0, river.talk()
    river.upstream.execute("INSERT INTO river.kept1 VALUES (77, 'x')")
    assert river.run("produce", "--until-caught-up") == 0, river.talk()
    consume(settings(river))
    river.assert_equal()


@pytest.mark.parametrize("flavor", ["mysql"])
def test_reset_all_forgets_the_channel(river: River) -> None:
    [(_, executed, epoch)] = channel(river)
    checkpoint = settings(river).channel_dir
    (checkpoint / "spark" / "commits").mkdir(parents=True)
    assert river.run("reset", "--all", "--yes") == 0, river.talk()
    assert str(executed) in river.talk()
    assert channel(river) == []
    assert river.downstream.execute("SELECT COUNT(*) FROM tailrace.applied_epochs") == [(0,)]
    assert {path.name for path in checkpoint.iterdir()} == {"lock"}
    # Again, with nothing left.
    assert river.run("reset", "--all", "--yes") == 0, river.talk()
    run_dml(river.upstream, 1, 60)
    assert river.run("produce", "--until-caught-up") == 0, river.talk()
    consume(replace(settings(river), start=f"epoch:{int(str(epoch)) + 1}"))
    river.assert_equal()


@pytest.mark.parametrize("flavor", ["mariadb"])
def test_kafka_lost_for_good(river: River) -> None:
    """The channel is begun anew where it stood, on a log and a relay log that begin there too."""
    run_dml(river.upstream, 1, 60)
    [(_, executed, _)] = channel(river)
    assert river.run("reset", "--all", "--yes") == 0, river.talk()
    text = river.config.read_text().replace('prefix = "', 'prefix = "new')
    river.config.write_text(text.replace("[relay]", f'[relay]\nrelay-binlog-gtid = "{executed}"'))
    assert river.run("produce", "--until-caught-up") == 0, river.talk()
    consume(replace(settings(river), start=f"gtid:{executed}"))
    river.assert_equal()
