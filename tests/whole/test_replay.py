"""Ranges of a real upstream's log, replayed into schemas of their own: exactly, repeatably, and back again.

The consumer runs without Spark here; what divides epochs is the same. One log serves all tests of a flavor.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import structlog
from typer.testing import CliRunner

from compose.databases import Database
from compose.kafka import Kafka
from producer.epochs.open_epoch import EpochLimits
from schemas.access.secrets import TARGET_PASSWORD
from schemas.access.server_url import ServerUrl
from schemas.errors import ConfigError, DownstreamError, LogError
from schemas.gtid.sets import parse_gtid_set
from spark_consumer.apply.tables.position_store import read
from spark_consumer.epochs.position import Position
from spark_consumer.job.rewind import open_rewind
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.rules.event_filter import EventRule
from spark_consumer.rules.route import Route
from spark_consumer.target.session import closing, connect
from tailrace.channels.files import files_channels
from tailrace.commands.app import app
from tests.support.applying.consuming import consume
from tests.support.epochs.source_log import SourceLog, source_log

pytestmark = pytest.mark.servers
_EXECUTED = {"mysql": "SELECT @@GLOBAL.gtid_executed", "mariadb": "SELECT @@GLOBAL.gtid_binlog_pos"}
_TABLES = ("accounts", "moves")
State = dict[str, list[Any]]


@dataclass
class History:
    """A log, and the upstream's rows and executed set behind each of its transactions.

    Attributes:
        places: executed set and rows; the first one is that behind the DDL.
    """

    log: SourceLog
    flavor: str
    target: Database
    folder: Path
    places: list[tuple[str, State]] = field(default_factory=list)

    def note(self) -> None:
        [(executed,)] = self.log.sql(_EXECUTED[self.flavor])
        self.places.append((executed.replace("\n", ""), state(self.log.upstream, self.log.db)))

    def config(self, channel: str, **settings: Any) -> ConsumerConfig:
        """A channel into the schema of its own name."""
        return replace(
            ConsumerConfig(
                self.log.config.bootstrap_servers,
                self.log.config.prefix,
                ServerUrl.parse(self.target.url("tailrace")),
                channel=channel,
                checkpoint_dir=self.folder,
                routes=(Route(self.log.db, channel),),
                until_caught_up=True,
            ),
            **settings,
        )

    def replay(self, channel: str, **settings: Any) -> State:
        consume(self.config(channel, **settings))
        return state(self.target, channel)

    def position(self, channel: str) -> Position:
        with closing(connect(self.config(channel).target)) as session:
            found = read(session, self.config(channel).key)
            assert found is not None
            return found


def state(server: Database, db: str) -> State:
    return {table: server.execute(f"SELECT * FROM {db}.{table} ORDER BY 1, 2, 3") for table in _TABLES}


@pytest.fixture(scope="module", params=["mysql", "mariadb"])
def history(
    request: pytest.FixtureRequest, kafka: Kafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[History]:
    upstream = request.getfixturevalue(f"upstream_{request.param}")
    target = request.getfixturevalue(f"downstream_{request.param}")
    folder = tmp_path_factory.mktemp("replay")
    with source_log(upstream, kafka.bootstrap, folder, epoch=EpochLimits(40, 1 << 20, 60.0)) as log:
        made = History(log, request.param, target, folder)
        write(made, random.Random(7))
        log.publish()
        inside = [epoch for epoch, _ in log.epochs() if epoch.transactions > 3 and epoch.rows]
        assert len(inside) > 3  # there is something to cut
        yield made


def write(made: History, chance: random.Random) -> None:
    """Transactions of inserts, updates, deletes, key changes, and unique values that move; some without rows."""
    log = made.log
    log.sql(
        "CREATE TABLE accounts (id INT PRIMARY KEY, owner VARCHAR(40) UNIQUE, balance DECIMAL(12,2))",
        "CREATE TABLE moves (id INT PRIMARY KEY AUTO_INCREMENT, account INT, amount DECIMAL(12,2))",
    )
    made.note()
    log.sql("INSERT INTO accounts VALUES " + ",".join(f"({n}, 'owner {n}', {n}.25)" for n in range(12)))
    made.note()
    # MariaDB's commit times have whole seconds, and a moment is to be behind the DDL.
    time.sleep(1.1)
    for number in range(60):
        one, other = chance.sample(range(12), 2)
        log.upstream.execute(f"FLUSH TABLES {log.db}.moves") if number % 9 == 4 else None
        with log.upstream.connect(database=log.db, autocommit=False) as connection:
            with connection.cursor() as cursor:
                for statement in changes(number, one, other):
                    cursor.execute(statement)
            connection.commit()
        made.note()


def changes(number: int, one: int, other: int) -> list[str]:
    swapped = [
        f"SELECT owner INTO @one FROM accounts WHERE id = {one}",
        f"SELECT owner INTO @other FROM accounts WHERE id = {other}",
        f"UPDATE accounts SET owner = NULL WHERE id = {one}",
        f"UPDATE accounts SET owner = @one WHERE id = {other}",
        f"UPDATE accounts SET owner = @other, balance = balance + 1 WHERE id = {one}",
    ]
    moved = [
        f"DELETE FROM accounts WHERE id = {one}",
        f"UPDATE accounts SET owner = 'owner of {one}, {number}' WHERE id = {other}",
        f"INSERT INTO accounts VALUES ({one}, 'new {number}', 0)",
    ]
    rekeyed = [
        f"UPDATE accounts SET id = {100 + number} WHERE id = {one}",
        f"UPDATE accounts SET id = {one}, owner = 'back {number}' WHERE id = {100 + number}",
    ]
    booked = [f"INSERT INTO moves (account, amount) VALUES ({one}, {number}.5), ({other}, -{number}.5)"]
    return (swapped, moved, rekeyed, booked, [*booked, *moved])[number % 5]


@pytest.fixture
def schema(history: History) -> Iterator[Callable[..., str]]:
    """Makes a downstream schema, with the tables as they were behind a transaction if one is named."""
    made: list[str] = []

    def make(suffix: str, at: int | None = None) -> str:
        name = f"{history.log.db}_{suffix}"
        made.append(name)
        history.target.execute(f"CREATE DATABASE {name}")
        if at is not None:
            for table, rows in history.places[at][1].items():
                [[_, create]] = history.log.sql(f"SHOW CREATE TABLE {table}")
                with history.target.connect(database=name) as connection, connection.cursor() as cursor:
                    cursor.execute(create)
                    for row in rows:
                        cursor.execute(f"INSERT INTO {table} VALUES ({', '.join(['%s'] * len(row))})", row)
        return name

    yield make
    for name in made:
        history.target.execute(f"DROP DATABASE IF EXISTS {name}")


def same(flavor: str, one: str, other: str) -> bool:
    first, second = (parse_gtid_set(text, flavor) for text in (one, other))  # type: ignore[arg-type]
    return first.contains(second) and second.contains(first)


def test_a_replay_ends_behind_any_transaction_each_time_the_same_and_the_next_run_goes_on(
    history: History, schema: Callable[..., str]
) -> None:
    one, two = schema("one"), schema("two")
    for at in (7, 8, 23, 47):
        executed, rows = history.places[at]
        assert history.replay(one, until=f"gtid:{executed}") == rows
        assert same(history.flavor, history.position(one).executed_gtids, executed)
    assert history.position(one).epoch_rows is not None
    # Another one, at once: the same.
    executed, rows = history.places[47]
    assert history.replay(two, until=f"gtid:{executed}", max_batch_rows=30) == rows
    assert history.replay(two, until=f"gtid:{executed}") == rows
    with pytest.raises(LogError, match=r"TR571.*the channel is already at row \d+ of epoch"):
        history.replay(two, until=f"gtid:{history.places[3][0]}")
    with pytest.raises(LogError, match=r"TR574.*started with --from earliest"):
        history.replay(two, start="epoch:3")
    last = history.places[-1]
    assert history.replay(one) == history.replay(two) == last[1]
    assert same(history.flavor, history.position(two).executed_gtids, last[0])
    # Each transaction is in one batch, whatever its channel was divided into.
    counted = history.target.execute(
        "SELECT SUM(transactions), SUM(inserts + updates + deletes) FROM tailrace.applied_epochs"
        f" WHERE channel IN ('{one}', '{two}') GROUP BY channel"
    )
    published = [epoch for epoch, _ in history.log.epochs()]
    assert set(counted) == {(sum(e.transactions for e in published), sum(e.rows for e in published))}


def test_a_replay_begins_behind_any_transaction(history: History, schema: Callable[..., str]) -> None:
    begin, end = history.places[20], history.places[38]
    name = schema("middle", at=20)
    assert history.replay(name, start=f"gtid:{begin[0]}", until=f"gtid:{end[0]}") == end[1]
    assert history.replay(name, start=f"gtid:{begin[0]}") == history.places[-1][1]


def test_a_replay_ends_before_a_moment_and_another_begins_there(
    history: History, schema: Callable[..., str]
) -> None:
    rows = [row for row in history.log.rows() if row.table == "accounts"]
    moment = rows[len(rows) // 2].source["ts_ms"]
    first = next(row.source["gtid"] for row in history.log.rows() if row.source["ts_ms"] >= moment)
    flavor: Any = history.flavor
    at = next(n for n, (e, _) in enumerate(history.places) if parse_gtid_set(e, flavor).contains(first)) - 1
    text = "time:" + datetime.fromtimestamp(moment / 1000, UTC).isoformat()
    one, two = schema("until"), schema("from", at=max(at, 0))
    if at >= 0:
        assert history.replay(one, until=text) == history.places[at][1]
    assert history.replay(two, start=text) == history.places[-1][1]


def rewound(history: History, channel: str, to: str, **settings: Any) -> Position:
    with open_rewind(history.config(channel, **settings), to) as about:
        about.execute()
    return history.position(channel)


def test_a_rewound_channel_applies_its_history_again_and_is_level_where_it_was(
    history: History, schema: Callable[..., str]
) -> None:
    name = schema("back")
    executed, rows = history.places[51]
    history.replay(name, until=f"gtid:{executed}")
    # Unique values have moved between rows since; so some meet rows of the future on the way.
    position = rewound(history, name, f"gtid:{history.places[6][0]}")
    assert position.repeat_until is not None
    assert same(history.flavor, position.executed_gtids, history.places[6][0])
    assert same(history.flavor, position.repeat_until.executed, executed)
    # Cut off on the way, and rewound once more: it still knows where it was.
    history.replay(name, until=f"gtid:{history.places[30][0]}", max_batch_rows=20)
    assert history.position(name).repeat_until == position.repeat_until
    assert rewound(history, name, f"gtid:{history.places[25][0]}").repeat_until == position.repeat_until
    with pytest.raises(LogError, match="TR575"):
        rewound(history, name, f"gtid:{history.places[26][0]}")
    assert history.replay(name, until=f"gtid:{executed}", max_batch_rows=20) == rows
    position = history.position(name)
    assert position.rewound_from is None
    assert same(history.flavor, position.executed_gtids, executed)
    # From there on nothing is forgiven.
    history.target.execute(f"DELETE FROM {name}.accounts")
    with pytest.raises(DownstreamError, match="TR603"):
        history.replay(name)


def test_what_cannot_be_repeated_is_refused_and_the_channel_goes_on(
    history: History, schema: Callable[..., str]
) -> None:
    name = schema("refused")
    history.replay(name, until=f"gtid:{history.places[20][0]}")
    stood = history.position(name)
    with pytest.raises(
        DownstreamError, match=r"TR576.*CREATE TABLE accounts.*the earliest possible position is epoch:3;"
    ):
        rewound(history, name, "earliest")
    back = f"gtid:{history.places[4][0]}"
    keep = (EventRule(history.log.db, "Ignore", "accounts", ("delete",)),)
    with pytest.raises(DownstreamError, match=r"TR577.*filters leave some of its changes out"):
        rewound(history, name, back, filters=keep)
    with pytest.raises(DownstreamError, match=r"TR577.*compact = false"):
        rewound(history, name, back, compact=False)
    with pytest.raises(DownstreamError, match="TR612"):
        rewound(history, f"{name}_x", back)
    assert history.position(name).log_position == stood.log_position
    assert history.replay(name) == history.places[-1][1]


@pytest.mark.parametrize("kill", ["apply.before_commit", "apply.after_commit"])
def test_a_channel_that_dies_does_not_disturb_another_one(
    history: History, schema: Callable[..., str], kill: str
) -> None:
    """Two channels of one topic into one server, each with its routes and filters; one is killed and comes back."""
    when = kill[6:11]
    whole, part = schema(f"whole_{when}"), schema(f"part_{when}")
    only = EventRule(history.log.db, "Ignore", "moves", ("insert",))
    mine = history.config(part, max_batch_rows=10, filters=(only,))
    killed = threading.Thread(target=lambda: crashed(mine, kill))
    killed.start()
    rows = history.replay(whole, max_batch_rows=25)
    killed.join()
    last = history.places[-1][1]
    assert rows == last
    consume(mine)
    assert state(history.target, part) == {**last, "moves": []}
    assert same(history.flavor, history.position(part).executed_gtids, history.places[-1][0])


def crashed(config: ConsumerConfig, kill: str) -> None:
    """Consume in a process that dies by SIGKILL at its fourth batch."""
    code = (
        "import pickle, sys; sys.path.insert(0, '.');"
        "from tests.support.applying.consuming import consume; consume(pickle.load(sys.stdin.buffer))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=pickle.dumps(config),
        env=os.environ | {"TAILRACE_CRASH_AT": f"{kill}:4", TARGET_PASSWORD: config.target.password},
        timeout=120,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL


def files_of(root: Path) -> list[dict[str, Any]]:
    """All changes in the upstream's order."""
    paths = root.glob("[!_]*/*/*.parquet")
    rows = [row for path in paths for row in pq.read_table(path).to_pylist()]
    return sorted(rows, key=lambda row: (row["epoch"], row["seq"]))


def test_change_files_hold_every_change_once_whatever_happens(history: History, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    name = f"{history.log.db}_files"
    for kill in ("apply.before_commit", "apply.after_commit"):
        crashed(history.config(name, files=one, max_batch_rows=20), kill)
    consume(history.config(name, files=one, max_batch_rows=20))
    # The same history in other batches, cut inside an epoch.
    for until in (f"gtid:{history.places[31][0]}", None):
        consume(history.config(name, files=two, checkpoint_dir=tmp_path, until=until))
    found = files_of(one)
    assert found == files_of(two)
    published = history.log.rows()
    assert [(r["epoch"], r["seq"], r["op"], r["gtid"], r["before"], r["after"]) for r in found] == [
        (r.source["epoch"], r.seq, r.op, r.source["gtid"], r.before, r.after) for r in published
    ]
    changed = [json.loads(p.read_text()) for p in sorted((two / "_tailrace/schema_changes").iterdir())]
    assert [change["kind"] for change in changed] == ["CREATE TABLE"] * 2
    batches = [json.loads(p.read_text()) for p in sorted((two / "_tailrace/batches").iterdir())]
    epochs = [epoch for epoch, _ in history.log.epochs()]
    assert sum(batch["transactions"] for batch in batches) == sum(e.transactions for e in epochs)
    assert same(history.flavor, batches[-1]["executed_gtid_set"], history.places[-1][0])
    [shown] = files_channels(two)
    assert (shown["epoch"], shown["consistent"]) == (epochs[-1].epoch, True)


def _three_channels(folder: Path, history: History, config: ConsumerConfig, name: str) -> Path:
    """The configuration of one that runs, one into files, and one that never ran."""
    file = folder / "tailrace.toml"
    file.write_text(
        f"""
        [kafka]
        bootstrap-servers = "{config.bootstrap_servers}"
        prefix = "{config.prefix}"
        [target]
        url = "{history.target.url("tailrace")}"
        [relay]
        dir = "{folder / "relay"}"
        [consumer]
        checkpoint-dir = "{config.checkpoint_dir}"
        [channel.{name}]
        [[channel.{name}.routes]]
        schema-pattern = "{history.log.db}"
        target-schema = "{name}"
        [channel.lake.target]
        url = "parquet:{folder / "lake"}"
        [channel.new]
        """
    )
    return file


def _channel_command(config: Path, *words: str) -> str:
    done = CliRunner().invoke(app, ["channel", *words, "--config", str(config)])
    structlog.reset_defaults()  # the command's log went to a stream that is closed now
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stdout


def test_channels_are_listed_shown_rewound_and_removed(
    history: History, schema: Callable[..., str], tmp_path: Path
) -> None:
    name = schema("listed")
    config = history.config(name, checkpoint_dir=tmp_path / "checkpoint")
    executed, rows = history.places[40]
    consume(replace(config, until=f"gtid:{executed}"))
    run = partial(_channel_command, _three_channels(tmp_path, history, config, name))
    found = {c["channel"]: c for c in json.loads(run("list", "--json"))["channels"]}
    assert same(history.flavor, found[name]["gtids"], executed)
    assert (found["new"]["epoch"], found["lake"]["epoch"]) == (None, None)
    shown = json.loads(run("show", "--channel", name, "--json"))
    assert shown["counters"]["row_changes"] == sum(
        sum(batch[kind] for kind in ("inserts", "updates", "deletes", "copied")) for batch in shown["batches"]
    )
    with pytest.raises(ConfigError, match="TR111"):
        run("rewind", "--channel", name, "--to", f"gtid:{history.places[30][0]}")
    run("rewind", "--channel", name, "--to", f"gtid:{history.places[30][0]}", "--yes")
    assert "rewound from" in run("list")
    consume(replace(config, until=f"gtid:{executed}"))
    assert state(history.target, name) == rows
    with pytest.raises(ConfigError, match="TR107"):
        run("rewind", "--channel", "lake", "--to", "earliest", "--yes")
    run("remove", "--channel", name, "--yes")
    with pytest.raises(DownstreamError, match="TR612"):
        run("show", "--channel", name)
    assert [path.name for path in config.channel_dir.iterdir()] == ["lock"]
