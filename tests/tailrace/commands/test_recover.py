"""The downstream brought forward from the relay log alone, killed on the way, and then back to the usual life."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pymysql.connections import Connection

from compose.databases import Database
from compose.kafka import Kafka
from producer.mirror.loop import Mirror
from producer.settings import RelaySettings
from producer.upstream.connect import describe
from relay_store.layout.directory import binlog_files, read_index
from relay_store.layout.epoch_ends import RECOVERED_NAME
from relay_store.write.writer import RelayWriter
from schemas.access.server_url import ServerUrl
from schemas.errors import ExitCode, LogError
from schemas.gtid.sets import MysqlGtidSet
from spark_consumer.apply.tables import channel_tables, position_store
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.position import BEFORE_ALL, ChannelStart
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.target.session import closing, connect
from tailrace.assemble.sink import open_sink
from tailrace.config.channels import server_channel
from tailrace.config.file import load
from tests.support.applying.consuming import consume
from tests.support.processes.river import River
from tests.support.statements.workload import FLAT, SCHEMA, run_ddl, run_dml, run_flat
from tests.support.waiting import wait_until

pytestmark = pytest.mark.servers

NO_KAFKA = cast(Kafka, SimpleNamespace(bootstrap="127.0.0.1:1"))
MakeRiver = Callable[[str, str], River]
PAIRS = [("mysql", "mariadb"), ("mariadb", "mysql"), ("no_gtids", "mysql")]
NO_GTIDS = ["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"]


@pytest.fixture
def river(tmp_path: Path, server: Callable[..., Database], kafka: Kafka) -> MakeRiver:
    """Two fresh servers with the workload's tables upstream; `recover` is told of no server but the downstream."""

    def make(upstream: str, downstream: str) -> River:
        plain = upstream == "no_gtids"
        options = {"args": NO_GTIDS} if plain else {}
        up = server("mysql" if plain else upstream, role="upstream", server_id=1, **options)
        down = server(downstream, role="downstream", server_id=2)
        up.execute(*SCHEMA, FLAT, "CREATE TABLE river.last (id INT PRIMARY KEY)")
        it = River(tmp_path, up, down, kafka)
        gone = re.sub(r"127.0.0.1:\d+", "127.0.0.1:1", it.config.read_text().split("[target]")[0])
        kept = it.config.read_text().split("[target]")[1]
        (tmp_path / "alone.toml").write_text(f"{gone}[target]{kept}")
        return it

    return make


def settings(it: River) -> ConsumerConfig:
    """The consumer's configuration."""
    return server_channel(load(it.config))


def recover(it: River, crash_at: str = "") -> int:
    """`tailrace recover` with an upstream and a Kafka that nobody reaches; its exit code."""
    return it.run("recover", "--config", str(it.folder / "alone.toml"), crash_at=crash_at)


def consume_until_it_dies(it: River, crash_at: str) -> int:
    """The consumer in a process of its own; its exit code."""
    command = [sys.executable, "-m", "tests.support.applying.consuming", str(it.config)]
    return subprocess.run(command, env=os.environ | {"TAILRACE_CRASH_AT": crash_at}, check=False).returncode


def mirror(it: River) -> None:
    """Fetch all there is upstream into the relay log, and publish nothing."""
    url = ServerUrl.parse(it.upstream.url("tailrace"))
    info = describe(url)
    relay, stop = RelayWriter.open(it.folder / "relay"), threading.Event()
    mirror = Mirror(url, relay, RelaySettings(), server_id=77)
    thread = threading.Thread(target=mirror.run, args=(stop,))
    thread.start()
    wait_until(lambda: mirror.reached(info.file, info.position), "everything is mirrored")
    stop.set()
    thread.join()
    relay.close()


def tear(it: River) -> None:
    """Leave the relay log as a kill -9 would within the last transaction, with relay.meta long out of date."""
    root = it.folder / "relay"
    subdir = read_index(root)[-1]
    with (root / subdir / binlog_files(root / subdir)[-1]).open("r+b") as file:
        file.truncate(file.seek(0, 2) - 40)


def channel(it: River, columns: str) -> tuple[object, ...]:
    """Columns of the channel's position."""
    [row] = it.downstream.execute(f"SELECT {columns} FROM tailrace.relay_log_info")
    return row


def unequal(it: River) -> list[str]:
    """The tables in which the servers differ."""
    return [table.table for table in it.compare().tables if table.verdict != "equal"]


def assert_each_once(it: River, total: int | None = None) -> None:
    """The audit accounts for as many transactions as there are, by default as many as the executed set has."""
    [(executed,)] = it.downstream.execute("SELECT executed_gtid_set FROM tailrace.relay_log_info")
    if total is None and executed:
        total = MysqlGtidSet.parse(executed).count() if ":" in executed else int(executed.rsplit("-", 1)[1])
    [(audited,)] = it.downstream.execute("SELECT SUM(transactions) FROM tailrace.applied_epochs")
    assert total is None or int(audited) == total


def prepared_transaction(it: River) -> Connection[Any]:
    """Prepared before the recovery, to be decided within it."""
    xa = it.upstream.connect()
    with xa.cursor() as cursor:
        for step in ("START 'x'", "INSERT INTO river.last VALUES (2)", "END 'x'", "PREPARE 'x'"):
            cursor.execute(step if step.startswith("INSERT") else f"XA {step}")
    return xa


def published_and_applied_in_part(it: River) -> object:
    """The epoch that the channel stops at.

    Rows of a table without transactions are there, and the position is not: the recovery goes on behind them.
    """
    run_dml(it.upstream, 1, 150)
    run_flat(it.upstream, 1, 30)
    run_ddl(it.upstream, 1)
    run_dml(it.upstream, 2, 100)
    assert it.run("produce", "--until-caught-up") == 0, it.talk()
    consume(settings(it), 2)
    assert consume_until_it_dies(it, "nontransactional.after_row:5") == -signal.SIGKILL
    [stopped_at] = channel(it, "epoch")
    assert it.downstream.execute("SELECT COUNT(*) FROM tailrace.nontransactional_info") == [(1,)]
    return stopped_at


def refused_for_an_open_decision(it: River, stopped_at: object) -> None:
    """A decision whose event is yet to come is about a place in the epoch log; one that is past is nothing to it."""
    decided = (
        f"INSERT INTO tailrace.error_directives VALUES (NULL, '{settings(it).prefix}', 'main', {{}}, -1, '', 0, NULL,"
        " 'skip', '[]', '', '', '', NOW(), {})"
    )
    it.downstream.execute(
        decided.format(stopped_at, "NOW()"), decided.format(int(str(stopped_at)) + 1, "NULL")
    )
    assert recover(it) == 1
    assert '"code": "TR645"' in it.talk()
    it.downstream.execute("DELETE FROM tailrace.error_directives WHERE used_at IS NULL")


def mirrored_only(it: River, xa: Connection[Any]) -> None:
    """Behind what relay.meta vouches for, and the last transaction torn."""
    metas = {path: path.read_bytes() for path in it.folder.glob("relay/*/relay.meta")}
    run_dml(it.upstream, 3, 150)
    run_flat(it.upstream, 2, 60)
    with xa, xa.cursor() as cursor:
        cursor.execute("XA COMMIT 'x'")
    run_ddl(it.upstream, 3)
    it.upstream.execute("INSERT INTO river.last VALUES (1)")
    mirror(it)
    for path, text in metas.items():
        path.write_bytes(text)
    tear(it)


@pytest.mark.parametrize(("upstream", "downstream"), PAIRS)
def test_recovered_without_upstream_and_kafka(river: MakeRiver, upstream: str, downstream: str) -> None:
    it = river(upstream, downstream)
    run_dml(it.upstream, 0, 100)
    xa = prepared_transaction(it)
    assert it.run("produce", "--until-caught-up") == 0, it.talk()
    consume(settings(it))
    assert channel(it, "consistent, epoch_gtid_set") == (1, None)
    stopped_at = published_and_applied_in_part(it)
    refused_for_an_open_decision(it, stopped_at)
    mirrored_only(it, xa)

    points = ("apply.before_commit:2", "apply.after_commit:3", "ddl.before", "ddl.after:2")
    for point in (*points, "nontransactional.after_mark", "nontransactional.after_row:3"):
        assert recover(it, crash_at=point) == -signal.SIGKILL, it.talk()
        assert channel(it, "consistent, epoch") == (0, stopped_at)
    assert recover(it) == 0, it.talk()
    assert channel(it, "consistent, epoch") == (1, stopped_at)
    assert unequal(it) == ["river.last"]
    assert it.downstream.execute("SELECT id FROM river.last") == [(2,)]
    assert_each_once(it)
    before = channel(it, "Relay_log_name, Relay_log_pos, executed_gtid_set, epoch_gtid_set")
    assert recover(it) == 0, it.talk()
    assert channel(it, "Relay_log_name, Relay_log_pos, executed_gtid_set, epoch_gtid_set") == before

    # Upstream and Kafka are back.
    run_dml(it.upstream, 4, 100)
    assert it.run("produce", "--until-caught-up") == 0, it.talk()
    consume(settings(it), 3)
    assert channel(it, "executed_gtid_set") == before[2:3]
    if upstream == "mariadb":
        # The whole consumer, with Spark and a checkpoint that is not there yet.
        assert it.run("consume", "--until-caught-up") == 0, it.talk()
    else:
        consume(settings(it))
    assert channel(it, "epoch_gtid_set, consistent") == (None, 1)
    it.assert_equal()
    assert_each_once(it, sum(logged.record.transactions for logged in LogReader(settings(it)).epochs()))
    assert_each_once(it)


def test_a_relay_log_made_anew_is_entered_by_gtid(river: MakeRiver) -> None:
    """Recovered, the relay log reset, recovered from the new one, and then the usual way."""
    it = river("mysql", "mysql")
    run_dml(it.upstream, 0, 60)
    assert it.run("produce", "--until-caught-up") == 0, it.talk()
    consume(settings(it))
    run_dml(it.upstream, 1, 60)
    mirror(it)
    assert recover(it) == 0, it.talk()
    assert it.run("reset", "--yes") == 0, it.talk()
    it.upstream.execute("FLUSH BINARY LOGS")
    run_dml(it.upstream, 2, 60)
    mirror(it)
    assert recover(it) == 0, it.talk()
    it.assert_equal()
    assert_each_once(it)
    run_dml(it.upstream, 3, 60)
    assert it.run("produce", "--until-caught-up") == 0, it.talk()
    consume(settings(it))
    assert channel(it, "epoch_gtid_set, consistent") == (None, 1)
    it.assert_equal()
    assert_each_once(it)


def test_an_epoch_applied_in_part_stops_and_another_recovery_heals_it(river: MakeRiver) -> None:
    """Epochs that were published without a word of the recovery: recovered.toml was lost."""
    it = river("mariadb", "mariadb")
    run_dml(it.upstream, 0, 30)
    mirror(it)
    make_channel(it)
    assert recover(it) == 0, it.talk()
    (it.folder / "relay" / RECOVERED_NAME).unlink()
    it.upstream.execute("INSERT INTO river.last VALUES (1)")
    mirror(it)
    text = it.config.read_text().replace("max-rows = 40", "max-rows = 100000")
    it.config.write_text(text.replace('"50ms"', '"30s"'))
    assert it.run("produce", "--until-caught-up") == 0, it.talk()
    with pytest.raises(LogError, match="TR562"):
        consume(settings(it))
    assert channel(it, "consistent") == (0,)
    assert recover(it) == 0, it.talk()
    consume(settings(it))
    assert channel(it, "epoch_gtid_set, consistent") == (None, 1)
    it.assert_equal()
    assert_each_once(it)


@pytest.fixture
def alone(server: Callable[..., Database], tmp_path: Path) -> River:
    """A relay log, and a channel that has not applied anything of it; no Kafka ever."""
    up = server("mariadb", role="upstream", server_id=1)
    it = River(tmp_path, up, server("mariadb", role="downstream", server_id=2), NO_KAFKA)
    (tmp_path / "alone.toml").write_text(it.config.read_text())
    up.execute(*SCHEMA)
    run_dml(up, 0, 60)
    up.execute("FLUSH BINARY LOGS")
    run_dml(up, 1, 60)
    mirror(it)
    return it


def make_channel(it: River) -> None:
    with closing(connect(settings(it).target)) as session:
        channel_tables.install(session)
        position_store.create(session, settings(it).key, ChannelStart(BEFORE_ALL, None, "earliest"))


def test_a_channel_that_never_ran_begins_with_the_relay_log(alone: River) -> None:
    assert recover(alone) == 1
    assert "TR612" in alone.talk()
    make_channel(alone)
    [before] = channel(alone, "fencing_token")
    assert recover(alone) == 0, alone.talk()
    alone.assert_equal()
    after, *rest = channel(alone, "fencing_token, epoch, consistent")
    assert (int(str(after)) > int(str(before)), rest) == (True, [-1, 1])
    assert recover(alone) == 0
    assert "nothing_to_recover" in alone.talk()


def test_a_channel_killed_before_its_first_commit_needs_the_logs_begin(river: MakeRiver) -> None:
    it = river("mysql", "mysql")
    run_dml(it.upstream, 0, 30)
    it.upstream.execute("FLUSH BINARY LOGS")
    run_dml(it.upstream, 1, 30)
    assert it.run("produce", "--until-caught-up") == 0, it.talk()
    open_sink(settings(it), LogReader(settings(it))).close()
    assert channel(it, "epoch, executed_gtid_set, began_at, began_whole") == (-1, "", "earliest", 1)
    [(name, pos)] = [channel(it, "Relay_log_name, Relay_log_pos")]
    oldest = it.folder / "relay" / str(name)
    assert (oldest.name, pos) == ("mysql-bin.000001", 4)
    aside = oldest.rename(it.folder / "aside")
    assert recover(it) == 1
    assert "TR341" in it.talk()
    assert it.downstream.execute("SHOW DATABASES LIKE 'river'") == []
    aside.rename(oldest)
    assert recover(it) == 0, it.talk()
    it.assert_equal()
    consume(settings(it))
    assert channel(it, "epoch_gtid_set, consistent") == (None, 1)
    it.assert_equal()
    assert_each_once(it)


def test_a_channel_that_never_ran_does_not_begin_with_what_a_purge_left(alone: River) -> None:
    """What was in the first file would be missing for ever, and the executed set would say that it is there."""
    make_channel(alone)
    root = alone.folder / "relay"
    [subdir] = read_index(root)
    first, second = binlog_files(root / subdir)
    before = channel(alone, "epoch, executed_gtid_set, consistent, fencing_token")
    (root / subdir / first).unlink()
    for place in (
        "NULL",
        f"'{subdir}/{first}', Relay_log_pos = 4, Master_log_name = '{first}', Master_log_pos = 4",
    ):
        alone.downstream.execute(f"UPDATE tailrace.relay_log_info SET Relay_log_name = {place}")
        assert recover(alone) == 1
        assert re.search(f"TR341.*has {subdir}/{second} to {subdir}/{second}", alone.talk())
        assert channel(alone, "epoch, executed_gtid_set, consistent, fencing_token") == before
        assert alone.downstream.execute("SHOW DATABASES LIKE 'river'") == []


def test_what_keeps_it_from_recovering(alone: River) -> None:
    make_channel(alone)
    root = alone.folder / "relay"
    producer = RelayWriter.open(root)
    # Another start helps, once the producer has ended.
    assert recover(alone) == ExitCode.MAY_PASS
    assert "TR301" in alone.talk()
    producer.close()
    assert alone.run("recover", "--config", str(alone.config), "--channel", "other") == 1
    assert "TR612" in alone.talk()
    # Only Kafka has the rows of a copy.
    alone.downstream.execute("UPDATE tailrace.relay_log_info SET copying = 1")
    assert recover(alone) == 1
    assert '"code": "TR579"' in alone.talk()
    alone.downstream.execute("UPDATE tailrace.relay_log_info SET copying = 0")
    # The file that the channel stands in is gone.
    [subdir] = read_index(root)
    first, *_ = binlog_files(root / subdir)
    alone.downstream.execute(
        f"UPDATE tailrace.relay_log_info SET Relay_log_name = '{subdir}/{first}', Relay_log_pos = 400, consistent = 1"
    )
    (root / subdir / first).unlink()
    assert recover(alone) == 1
    assert "TR341" in alone.talk()
    assert channel(alone, "consistent") == (1,)
    assert alone.downstream.execute("SHOW DATABASES LIKE 'river'") == []
    shutil.rmtree(root)
    assert recover(alone) == 1
    assert "TR340" in alone.talk()


def test_a_damaged_event_stops_it_before_the_transaction(alone: River) -> None:
    """Everything before is applied; where and what is said; and nothing is called consistent."""
    make_channel(alone)
    root = alone.folder / "relay"
    [subdir] = read_index(root)
    first, *_ = binlog_files(root / subdir)
    with (root / subdir / first).open("r+b") as file:
        file.seek(-200, 2)
        byte = file.read(1)[0]
        file.seek(-200, 2)
        file.write(bytes([byte ^ 0x10]))
    assert recover(alone) == 1
    assert "TR3" in alone.talk() or "TR4" in alone.talk()
    assert channel(alone, "consistent") == (0,)


def test_an_expression_without_a_sure_result_stops_it(alone: River) -> None:
    alone.upstream.execute(
        "CREATE TABLE river.words (id INT PRIMARY KEY, s VARCHAR(60) COLLATE utf8mb4_general_ci)",
        "INSERT INTO river.words VALUES (1, 'é')",
    )
    mirror(alone)
    make_channel(alone)
    rule = '[[expression-filter]]\nschema = "river"\ntable = "words"\ninsert-value-expr = "s = \'tmp\'"\n'
    path = alone.folder / "alone.toml"
    path.write_text(path.read_text() + rule)
    assert recover(alone) == 1
    assert '"code": "TR634"' in alone.talk()
    assert "table river.words" in alone.talk()
    assert channel(alone, "consistent") == (0,)
    assert alone.downstream.execute("SELECT * FROM river.words") == []


def test_a_refused_row_is_named_without_a_number_to_decide_by(alone: River) -> None:
    alone.upstream.execute("CREATE TABLE river.words (id INT PRIMARY KEY, s VARCHAR(60))")
    mirror(alone)
    make_channel(alone)
    assert recover(alone) == 0, alone.talk()
    alone.downstream.execute("INSERT INTO river.words VALUES (2, 'there')")
    alone.upstream.execute("INSERT INTO river.words VALUES (1, 'a'), (2, 'b')")
    mirror(alone)
    assert recover(alone) == 1
    assert re.search(r'"code": "TR604".*Row: .*`id`=2', alone.talk())
    assert "error skip" not in alone.talk()
    assert alone.downstream.execute("SELECT * FROM river.words") == [(2, "there")]
    assert alone.downstream.execute("SELECT * FROM tailrace.channel_errors") == []
    alone.downstream.execute("DELETE FROM river.words")
    assert recover(alone) == 0, alone.talk()
    alone.assert_equal()
