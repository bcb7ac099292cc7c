"""A downstream server, its client, or only a connection killed in the middle of DDL of every kind.

The server is a real one and dies by SIGKILL at random moments; `TAILRACE_KILLS=500` goes on for longer than CI has
time for, `TAILRACE_SEED` repeats a run as far as moments can be repeated. After each statement both servers must have
the same definitions and rows: nothing done twice, nothing left out, no question to an operator.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from compose.databases import FLAVORS, Database
from schemas.access.server_url import ServerUrl
from schemas.wire.epoch import SchemaChanged
from spark_consumer.apply.ddl.outcome import snapshot_now
from spark_consumer.rules.ddl_options import DdlOptions
from spark_consumer.target.session import closing, connect
from tests.support.applying.apply_steps import apply_steps, open_applier
from tests.support.applying.binlog_applied import Channel, definitions, epochs_since
from tests.support.binlogs.binlog_rows import binlog_end
from tests.support.processes.killing import Child, Killer, ServerLostError
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.servers, pytest.mark.long]

Break = Callable[[Database, str], None]
KILLS = int(os.environ.get("TAILRACE_KILLS", "14"))
SEED = int(os.environ.get("TAILRACE_SEED", "0")) or random.randrange(1 << 30)


@dataclass(frozen=True)
class Story:
    """Statements on tables that are there; each line is one, in the database `{db}`.

    Attributes:
        begin: brought over undisturbed.
        then: brought over with kills in between.
        only: the flavor that knows them.
        options: of the channel.
        spares: the flavor whose server is not killed in it, since that is known to end in a stop.
    """

    name: str
    begin: str
    then: str
    only: str = ""
    options: dict[str, Any] | None = None
    spares: str = ""


NUMBERS = "WITH RECURSIVE s AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM s WHERE n < 900) SELECT n, n FROM s"
RANGES = ", ".join(f"PARTITION p{n} VALUES LESS THAN ({n + 1}0)" for n in range(3))
TABLES = f"""
CREATE TABLE a (id INT PRIMARY KEY, v INT)
INSERT INTO a {NUMBERS}
CREATE TABLE b (id INT PRIMARY KEY, v INT)
INSERT INTO b VALUES (1, 100)
CREATE TABLE c (id INT PRIMARY KEY, v INT)
INSERT INTO c VALUES (1, 200), (2, 201)
"""
PARTED = f"""
CREATE TABLE p (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id) ({RANGES})
INSERT INTO p VALUES (1, 1), (11, 11), (12, 12), (21, 21)
CREATE TABLE x (id INT PRIMARY KEY, v INT)
INSERT INTO x VALUES (2, 1000)
"""
STORIES = [
    Story("swaps", TABLES, """
RENAME TABLE a TO z, b TO a, z TO b
INSERT INTO a VALUES (5000, 1)
RENAME TABLE a TO z, b TO a, c TO b, z TO c
RENAME TABLE a TO z, b TO a, z TO b
RENAME TABLE a TO a1
ALTER TABLE a1 RENAME TO a
RENAME TABLE b TO z, c TO b, z TO c
"""),
    Story("truncate", TABLES + PARTED, """
TRUNCATE TABLE a
INSERT INTO a VALUES (7, 7)
TRUNCATE TABLE p
INSERT INTO p VALUES (5, 5), (15, 15)
ALTER TABLE p TRUNCATE PARTITION p0, p1
INSERT INTO p VALUES (6, 6)
"""),
    Story("create and drop", TABLES, """
CREATE TABLE d (id INT PRIMARY KEY, v INT NOT NULL DEFAULT 3, KEY (v))
INSERT INTO d (id) VALUES (1)
CREATE TABLE e LIKE a
CREATE TABLE IF NOT EXISTS a (other INT)
CREATE TABLE f AS SELECT 1 AS k, 'x' AS s UNION SELECT 2, 'y'
DROP TABLE a, b, c
DROP TABLE IF EXISTS a, d
CREATE TABLE a (id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 4
DROP TABLE e, f, a
"""),
    Story("alter", TABLES, """
ALTER TABLE a ADD COLUMN w INT NOT NULL DEFAULT 7
ALTER TABLE a ADD COLUMN y INT DEFAULT 8, ALGORITHM=COPY
ALTER TABLE a ADD KEY (v), ADD COLUMN u INT FIRST, DROP COLUMN w
ALTER TABLE a MODIFY v BIGINT
ALTER TABLE a RENAME COLUMN v TO y, RENAME COLUMN y TO v
ALTER TABLE a CHANGE u q INT, ADD COLUMN at DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6)
ALTER TABLE a DROP COLUMN q, ADD COLUMN q INT DEFAULT 5, COMMENT 'x'
ALTER TABLE a RENAME TO a2, ADD COLUMN r INT
ALTER TABLE a2 FORCE
CREATE INDEX i ON a2 (q)
CREATE UNIQUE INDEX j ON b (v)
DROP INDEX i ON a2
ALTER TABLE b ADD COLUMN n INT AUTO_INCREMENT UNIQUE
ALTER TABLE b AUTO_INCREMENT = 500
ALTER TABLE c ADD CONSTRAINT k FOREIGN KEY (v) REFERENCES later (id)
ALTER TABLE a2 CONVERT TO CHARACTER SET latin1
"""),
    Story("columns change places", TABLES, """
ALTER TABLE a CHANGE id v INT NOT NULL, CHANGE v id INT NULL FIRST
ALTER TABLE b ADD COLUMN w INT AFTER v
UPDATE b SET w = 77
ALTER TABLE b CHANGE v w INT, CHANGE w v INT AFTER id
ALTER TABLE b CHANGE v w INT, CHANGE w v INT AFTER id
ALTER TABLE b DROP COLUMN v, RENAME COLUMN w TO v, ADD COLUMN w INT
UPDATE b SET w = 78
ALTER TABLE b DROP COLUMN v, CHANGE w v INT, ADD COLUMN w INT
"""),
    Story("partitions", PARTED, """
ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE x
INSERT INTO x VALUES (900, 1)
DELETE FROM x
INSERT INTO x VALUES (13, 13)
ALTER TABLE p EXCHANGE PARTITION p1 WITH TABLE x
ALTER TABLE p ADD PARTITION (PARTITION p3 VALUES LESS THAN (40))
ALTER TABLE p REORGANIZE PARTITION p0, p1 INTO (PARTITION p01 VALUES LESS THAN (20))
ALTER TABLE p REBUILD PARTITION p2
ALTER TABLE p DROP PARTITION p2, p3
RENAME TABLE x TO y
"""),
    Story("partitions by hash", PARTED, """
ALTER TABLE p REMOVE PARTITIONING
ALTER TABLE p PARTITION BY HASH (id) PARTITIONS 3
ALTER TABLE p ADD PARTITION PARTITIONS 2
ALTER TABLE p COALESCE PARTITION 1
""", spares="mariadb"),  # A copy of a partitioned table that is killed may leave one that it cannot open: TR621.
    Story("databases", "CREATE TABLE t (id INT PRIMARY KEY)", """
CREATE DATABASE {db}_2 CHARACTER SET latin1
ALTER DATABASE {db}_2 CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
CREATE TABLE {db}_2.t (id INT PRIMARY KEY)
CREATE TABLE {db}_2.u (id INT PRIMARY KEY)
RENAME TABLE t TO {db}_2.t2, {db}_2.t TO {db}.t
DROP DATABASE {db}_2
CREATE DATABASE {db}_2
CREATE VIEW {db}_2.v AS SELECT 1 AS y
DROP DATABASE {db}_2
"""),
    Story("views and programs", TABLES, """
CREATE VIEW v AS SELECT id FROM a
CREATE VIEW w AS SELECT v FROM b
CREATE OR REPLACE VIEW v AS SELECT v FROM a
ALTER VIEW w AS SELECT id, v FROM b
RENAME TABLE v TO z, w TO v, z TO w
DROP VIEW v, w
CREATE PROCEDURE pr() SELECT 1
ALTER PROCEDURE pr COMMENT 'x'
CREATE FUNCTION f() RETURNS INT RETURN 5
DROP PROCEDURE pr
CREATE EVENT e ON SCHEDULE EVERY 1 DAY DISABLE DO SELECT 1
ALTER EVENT e RENAME TO e2
ALTER EVENT e2 COMMENT 'y'
DROP EVENT e2
DROP FUNCTION f
"""),
    Story("without transactions", """
CREATE TABLE m (id INT PRIMARY KEY, v INT) ENGINE=MyISAM
CREATE TABLE n (id INT PRIMARY KEY, v INT) ENGINE=MyISAM COMMENT='n'
""", """
RENAME TABLE m TO z, n TO m, z TO n
ALTER TABLE m ADD COLUMN w INT
CREATE TABLE o (id INT PRIMARY KEY) ENGINE=MyISAM
TRUNCATE TABLE n
ALTER TABLE m ENGINE=InnoDB
ALTER TABLE m ENGINE=MyISAM
DROP TABLE o
CREATE INDEX i ON n (v)
DROP DATABASE {db}
CREATE DATABASE {db}
""", spares="mysql"),  # It may lose a table of MyISAM: TR621.
    Story("gh-ost", """
CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR(9))
INSERT INTO t VALUES (1, 'a'), (2, 'b')
""", """
create /* gh-ost */ table `{db}`.`_t_gho` like `{db}`.`t`
alter /* gh-ost */ table `{db}`.`_t_gho` add column v int not null default 7, drop column s
alter /* gh-ost */ table `{db}`.`_t_gho` add key (v)
insert /* gh-ost */ ignore into `{db}`.`_t_gho` (id) select id from `{db}`.`t`
rename /* gh-ost */ table `{db}`.`t` to `{db}`.`_t_del`, `{db}`.`_t_gho` to `{db}`.`t`
INSERT INTO t VALUES (4, 8)
drop /* gh-ost */ table if exists `{db}`.`_t_del`
""", options={"ddl": DdlOptions(online_ddl=True)}),
    Story("accounts", "CREATE TABLE t (id INT PRIMARY KEY)", """
CREATE USER `{db}_1` IDENTIFIED BY 'x', `{db}_2` IDENTIFIED BY 'y'
GRANT SELECT, INSERT ON {db}.* TO `{db}_1`, `{db}_2`
REVOKE INSERT ON {db}.* FROM `{db}_1`
RENAME USER `{db}_1` TO `{db}_3`, `{db}_2` TO `{db}_1`, `{db}_3` TO `{db}_2`
DROP USER `{db}_1`, `{db}_2`
""", options={"ddl": DdlOptions(accounts="apply")}),
    Story("partitions that become tables", PARTED, """
ALTER TABLE p CONVERT PARTITION p2 TO TABLE y
ALTER TABLE p CONVERT TABLE y TO PARTITION p2 VALUES LESS THAN (30)
INSERT INTO p VALUES (22, 22)
""", only="mariadb", spares="mariadb"),  # One that is killed may leave no table at all: TR621.
    Story("MariaDB's own", TABLES, """
CREATE OR REPLACE TABLE b (id INT PRIMARY KEY, other INT)
INSERT INTO b VALUES (1, 1)
CREATE OR REPLACE TABLE b LIKE a
ALTER TABLE a ADD COLUMN IF NOT EXISTS w INT DEFAULT 4
ALTER TABLE a ADD COLUMN IF NOT EXISTS w INT DEFAULT 5
CREATE INDEX IF NOT EXISTS k ON a (v)
CREATE SEQUENCE s START WITH 5 INCREMENT BY 3
ALTER SEQUENCE s RESTART 50
RENAME TABLE s TO s2
DROP SEQUENCE s2
CREATE TABLE ar (id INT PRIMARY KEY, v INT) ENGINE=Aria
RENAME TABLE ar TO z, b TO ar, z TO b
ALTER TABLE a ADD SYSTEM VERSIONING
CREATE OR REPLACE VIEW v AS SELECT 1 AS y
CREATE OR REPLACE DATABASE {db}_2 CHARACTER SET latin1
""", only="mariadb"),
]  # fmt: skip


@pytest.fixture(
    scope="module", params=["mariadb", "mariadb without a binlog", "mysql", "mysql without GTIDs"]
)
def killed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A downstream of the module's own, with and without a ledger."""
    flavor, _, lacking = request.param.partition(" without ")
    args = {
        "": [],
        "a binlog": ["--skip-log-bin"],
        "GTIDs": ["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"],
    }[lacking]
    server = FLAVORS[flavor](tmp_path_factory.mktemp("killed"), role="downstream", server_id=110, args=args)
    try:
        start_afresh(server)
        yield server
    finally:
        server.kill()


def start_afresh(server: Database) -> None:
    """Start it with data of its own, whatever it had before."""
    shutil.rmtree(server.directory)
    server.start()
    # MySQL's GTIDs would prove what InnoDB's ids have to show.
    server.execute("GRANT PROCESS ON *.* TO tailrace@'%'")


@pytest.fixture
def source(killed: Database, request: pytest.FixtureRequest) -> Database:
    """An upstream of the same flavor."""
    found: Database = request.getfixturevalue(f"upstream_{killed.flavor}")
    return found


def test_whatever_is_killed_within_a_ddl_it_happens_once(killed: Database, source: Database) -> None:
    rng = random.Random(SEED)
    killer = Killer(killed, rng, KILLS)
    stories = [story for story in STORIES if story.only in ("", killed.flavor)]
    print(f"TAILRACE_SEED={SEED}")
    told = lost = 0
    while killer.left > 0:
        if told % len(stories) == 0:
            rng.shuffle(stories)
        db = f"k{told}_{killed.port}"
        try:
            tell(stories[told % len(stories)], db, source, killer)
        except ServerLostError:
            assert killed.flavor == "mariadb"
            lost += 1
            drop(source, db)
            start_afresh(killed)
        told += 1
    print(killer.done, lost)
    assert lost <= 1 + KILLS // 100


def tell(story: Story, db: str, source: Database, killer: Killer) -> None:
    """Bring a story over to the killed server, statement by statement."""
    begin = binlog_end(source)
    accounts = "accounts" in str(story.options)
    user = "root" if accounts else "tailrace"
    channel = Channel(killer.server, db, user, **(story.options or {}))

    for statement in lines(f"CREATE DATABASE {{db}}\n{story.begin}", db):
        run_upstream(source, db, statement)
    epochs = epochs_since(source, begin, accounts=accounts)
    channel.apply(epochs).close()
    for statement in lines(story.then, db):
        begin = binlog_end(source)
        run_upstream(source, db, statement)
        epochs += epochs_since(source, begin, accounts=accounts, number=len(epochs))
        killer.bring_through(partial(channel.apply, epochs), spared=story.spares == source.flavor)
        wanted, found = everything(source, db, accounts), everything(killer.server, db, accounts)
        assert found == wanted, (story.name, statement)
    channel_done(killer.server, db)
    for server in (source, killer.server):
        drop(server, db)


def drop(server: Database, db: str) -> None:
    """Drop what a story has made."""
    users = ", ".join(f"{db}_{number}" for number in (1, 2, 3))
    server.execute(
        f"DROP DATABASE IF EXISTS {db}", f"DROP DATABASE IF EXISTS {db}_2", f"DROP USER IF EXISTS {users}"
    )


def lines(text: str, db: str) -> list[str]:
    return [line.replace("{db}", db) for line in text.split("\n") if line]


def everything(server: Database, db: str, accounts: bool) -> dict[str, Any]:
    """All that a story may change."""
    databases = [name for (name,) in server.execute(f"SHOW DATABASES LIKE '{db}%'")]
    found = {
        what: str(shown).replace("REPLICA", "SLAVE")
        for what, shown in definitions(server, *databases).items()
    }
    for what in [name for name in found if "._t_" in name.replace("`", "")]:
        # What an online schema change hides is upstream alone.
        del found[what]
    for what, shown in found.items():
        # An event is disabled here on purpose, and counters are no part of a structure.
        found[what] = shown.replace("DISABLE ON SLAVE", "DISABLE")
    if accounts:
        for (user,) in server.execute(f"SELECT DISTINCT User FROM mysql.user WHERE User LIKE '{db}%'"):
            found[f"user {user}"] = str(sorted(server.execute(f"SHOW GRANTS FOR '{user}'")))
    return found


def channel_done(server: Database, channel: str) -> None:
    """Nothing is in doubt any more."""
    where = f"WHERE Channel_name = '{channel}'"
    assert server.execute(f"SELECT ddl_intent FROM tailrace.relay_log_info {where}") == [(None,)]


def without_row(server: Database, db: str) -> None:
    """Make the empty table s a sequence that has lost its row."""
    shutil.copy(server.data / f"{db}_other" / "q.frm", server.data / db / "s.frm")


def without_files(pattern: str) -> Break:
    """Files of the database that are gone once the server is down."""

    def remove(server: Database, db: str) -> None:
        for file in (server.data / db).glob(pattern):
            file.unlink()

    return remove


@dataclass(frozen=True)
class Leftover:
    """What a crash within a statement has left, made by other means.

    Attributes:
        begin: what is there.
        statement: the one in whose middle it was.
        done: what is done of it while the server runs; a statement under the channel's number if it begins with ``!``.
        down: what is done to the files of the server.
    """

    begin: str
    statement: str
    done: str
    down: Break | None = None


COLUMNS = "CREATE TABLE a (id INT PRIMARY KEY, v INT)\nINSERT INTO a VALUES (1, 1)"
OTHER = "CREATE TABLE b (id INT PRIMARY KEY, v INT)\nINSERT INTO b VALUES (2, 2)"
RANGE = (
    "CREATE TABLE p (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (9))"
)
SWAP = "RENAME TABLE a TO z, b TO a, z TO b"
WIDE = "CREATE TABLE a (id INT PRIMARY KEY, v INT, w INT)\nINSERT INTO a VALUES (1, 2, 3)"
MOVE = "ALTER TABLE a DROP COLUMN v, RENAME COLUMN w TO v, ADD COLUMN w INT"
EXCHANGE = "ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE a"
LEFTOVERS = {
    # crash recovery has finished it, and logged it under another GTID or not at all
    "alter": Leftover(COLUMNS, "ALTER TABLE a ADD w INT DEFAULT 5", "ALTER TABLE a ADD w INT DEFAULT 5"),
    "columns": Leftover(WIDE, MOVE, MOVE),
    "columns not moved": Leftover(WIDE, MOVE, ""),
    "swap": Leftover(f"{COLUMNS}\n{OTHER}", SWAP, SWAP),
    "not swapped": Leftover(f"{COLUMNS}\n{OTHER}", SWAP, ""),
    "exchange": Leftover(f"{COLUMNS}\n{RANGE}\nINSERT INTO p VALUES (3, 3)", EXCHANGE, EXCHANGE),
    "drop": Leftover(f"{COLUMNS}\n{OTHER}", "DROP TABLE a, b", "DROP TABLE a"),
    "truncate": Leftover(COLUMNS, "TRUNCATE TABLE a", "TRUNCATE TABLE a"),
    "replaced": Leftover(COLUMNS, "CREATE OR REPLACE TABLE a (x INT)", "DROP TABLE a"),
    "event": Leftover("", "CREATE EVENT e ON SCHEDULE AT '2037-01-01' DISABLE DO SELECT 1",
                      "CREATE EVENT e ON SCHEDULE AT '2037-01-01' DISABLE ON SLAVE DO SELECT 1"),
    # it was logged, and is lost
    "procedure": Leftover("", "CREATE PROCEDURE f() SELECT 1", "!CREATE PROCEDURE f() SELECT 1\nDROP PROCEDURE f"),
    # half of it
    "database": Leftover("", "CREATE DATABASE {db}_2 CHARACTER SET latin1", "CREATE DATABASE {db}_2"),
    "sequence": Leftover("", "CREATE SEQUENCE s START WITH 5", "CREATE SEQUENCE s"),
    "sequence without a row": Leftover("", "CREATE SEQUENCE s START WITH 5", "CREATE DATABASE {db}_other\n"
                                       "CREATE SEQUENCE {db}_other.q\n"
                                       "CREATE TABLE s AS SELECT * FROM {db}_other.q LIMIT 0", without_row),
    "partitions": Leftover("", RANGE, RANGE, without_files("p.*")),
}  # fmt: skip


def test_other_accounts_say_nothing_of_an_interrupted_one(killed: Database) -> None:
    """Though they have its host, its plugin and what else its statement names."""
    plugin = "caching_sha2_password" if killed.flavor == "mysql" else "mysql_native_password"
    # As servers log it.
    statement = f"CREATE USER 'mine'@'%' IDENTIFIED WITH '{plugin}'"
    ddl = SchemaChanged(statement, "", "CREATE USER", (), killed.flavor, timestamp=0)
    with closing(connect(ServerUrl.parse(killed.url("root")))) as session:
        try:
            before = snapshot_now(session, ddl)
            killed.execute(statement.replace("mine", "other"), "GRANT SELECT ON *.* TO other@'%'")
            assert snapshot_now(session, ddl).objects == before.objects
            killed.execute(statement)
            assert snapshot_now(session, ddl).objects != before.objects
        finally:
            killed.execute("DROP USER IF EXISTS mine@'%', other@'%'")


@pytest.mark.parametrize("flavor", ["mariadb"])
def test_what_mariadbs_recovery_leaves_is_brought_to_its_end(
    upstream: Database, mariadb_server: Callable[..., Database]
) -> None:
    """Under the channel's number or not, done or half done: the tables tell, whatever the binlog says."""
    down = mariadb_server(role="downstream", server_id=111)
    channels = {}
    for number, (what, leftover) in enumerate(LEFTOVERS.items()):
        db = f"left{number}_{down.port}"
        begin = binlog_end(upstream)
        for statement in lines(f"CREATE DATABASE {db}\n{leftover.begin}\n{leftover.statement}", db):
            run_upstream(upstream, db, statement)
        epochs = epochs_since(upstream, begin)
        channel = Channel(down, db)
        channel.apply(epochs[:-1]).close()
        assert channel.apply_until_it_dies(epochs, "ddl.before") == signal.SIGKILL
        for statement in lines(leftover.done, db):
            with down.connect() as connection, connection.cursor() as cursor:
                if statement.startswith("!"):
                    [[domain, last]] = down.execute(
                        f"SELECT ledger_domain, ledger_seq FROM tailrace.relay_log_info WHERE Channel_name = '{db}'"
                    )
                    cursor.execute(f"SET gtid_domain_id = {domain}")
                    cursor.execute(f"SET gtid_seq_no = {last + 1}")
                cursor.execute(f"USE {db}")
                cursor.execute(statement.removeprefix("!"))
        channels[what, db] = channel, epochs
    down.kill()
    for what, db in channels:
        if remove := LEFTOVERS[what].down:
            remove(down, db)
    down.start()
    for (what, db), (channel, epochs) in channels.items():
        channel.apply(epochs).close()
        down.execute(f"DROP DATABASE IF EXISTS {db}_other")
        assert everything(down, db, False) == everything(upstream, db, False), what
        channel_done(down, db)


def run_upstream(source: Database, db: str, statement: str) -> None:
    with source.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET foreign_key_checks = 0")
        if statement != f"CREATE DATABASE {db}":
            cursor.execute(f"USE {db}")
        cursor.execute(statement)


@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_ordinary_batches_are_there_once_wherever_the_server_is_killed(
    flavor: str, server: Callable[..., Database]
) -> None:
    """The position is in the transaction of the data, whatever recovery makes of binlog and InnoDB."""
    down = server(flavor, role="downstream", server_id=112)
    down.execute(
        "CREATE DATABASE o",
        "CREATE TABLE o.counted (n INT)",
        "INSERT INTO o.counted VALUES (0)",
        "CREATE TABLE o.each_one (epoch INT)",
    )
    kills = max(4, KILLS // 3)
    steps = [
        {"rows": [("UPDATE o.counted SET n = n + 1", 1), (f"INSERT INTO o.each_one VALUES ({epoch})", 1)]}
        for epoch in range(80 * kills)
    ]
    rng = random.Random(SEED)
    open_applier(down.url("tailrace"), "o").close()

    def start() -> Child:
        return Child(lambda: apply_steps(open_applier(down.url("tailrace"), "o"), steps))

    child = start()
    for _ in range(kills):
        wait_until(partial(has_moved, down, applied(down)), "the channel moves on")
        time.sleep(rng.random() * 0.2)
        down.kill()
        if also := rng.random() < 0.5:
            child.kill()
            child.end()
        down.start()
        if also:
            child = start()
    assert child.end() == (0, "")
    assert down.execute("SELECT n FROM o.counted") == [(len(steps),)]
    found = down.execute("SELECT COUNT(*), COUNT(DISTINCT epoch) FROM o.each_one")
    assert found == [(len(steps), len(steps))]


def applied(server: Database) -> int:
    """The channel's position."""
    [[epoch]] = server.execute("SELECT epoch FROM tailrace.relay_log_info")
    return int(epoch)


def has_moved(server: Database, before: int) -> bool:
    return applied(server) != before
