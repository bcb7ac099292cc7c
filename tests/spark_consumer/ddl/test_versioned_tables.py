"""MariaDB's system-versioned tables end downstream as the upstream's SELECT has them, with and without metadata."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compose.databases import Database
from schemas.errors import DownstreamError
from tests.support.applying.binlog_applied import Channel, definitions, epochs_since
from tests.support.binlogs.binlog_rows import binlog_end
from tests.support.names import own_name

pytestmark = [pytest.mark.servers, pytest.mark.parametrize("flavor", ["mariadb"])]

_WORK = [
    "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9), n INT, UNIQUE (n)) CHARSET utf8mb4 WITH SYSTEM VERSIONING",
    "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3), (4, 'd', 4)",
    "UPDATE t SET v = 'x' WHERE id < 3",
    "UPDATE t SET v = 'y', n = -n",
    "DELETE FROM t WHERE id = 2",
    "INSERT INTO t VALUES (2, 'again', 2)",
    "DELETE FROM t WHERE id = 2",
    "UPDATE t SET id = 10 WHERE id = 1",
    "UPDATE t SET id = id + 1 WHERE id > 2 ORDER BY id DESC",
    "REPLACE INTO t VALUES (4, 'replaced', 40)",
    "INSERT INTO t VALUES (5, 'p', 5) ON DUPLICATE KEY UPDATE v = 'dup'",
    "BEGIN",
    "INSERT INTO t VALUES (20, 'in', 20)",
    "UPDATE t SET v = 'and' WHERE id = 20",
    "DELETE FROM t WHERE id = 20",
    "INSERT INTO t VALUES (20, 'in', 21)",
    "COMMIT",
    "DELETE HISTORY FROM t",
    "SET SESSION system_versioning_alter_history = KEEP",
    "ALTER TABLE t ADD c INT DEFAULT 7 FIRST, ADD UNIQUE KEY h (v) USING HASH",
    "UPDATE t SET c = id",
    "CREATE TABLE later (id INT NOT NULL UNIQUE, w TEXT WITHOUT SYSTEM VERSIONING) CHARSET utf8mb4",
    "INSERT INTO later VALUES (1, 'a'), (2, 'b')",
    "ALTER TABLE later ADD SYSTEM VERSIONING",
    "UPDATE later SET w = 'c' WHERE id = 1",
    "UPDATE later SET id = 7 WHERE id = 2",
    "CREATE TABLE alike LIKE later",
    "INSERT INTO alike SELECT * FROM later",
    "DELETE FROM alike LIMIT 1",
    "ALTER TABLE later DROP SYSTEM VERSIONING",
    "UPDATE later SET w = 'd' WHERE id = 7",
    "CREATE TABLE parted (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING PARTITION BY SYSTEM_TIME"
    " (PARTITION old HISTORY, PARTITION now CURRENT)",
    "INSERT INTO parted VALUES (1, 1), (2, 2)",
    "UPDATE parted SET v = v + 1",
    "DELETE FROM parted WHERE id = 2",
]


@pytest.fixture
def db(request: pytest.FixtureRequest, upstream: Database, downstream: Database) -> Iterator[str]:
    name = own_name("v_", request)
    upstream.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    downstream.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    yield name
    upstream.execute("SET GLOBAL binlog_row_metadata = 'FULL'", f"DROP DATABASE {name}")


@pytest.mark.parametrize("metadata", ["FULL", "NO_LOG"])
def test_rows_of_the_past_stay_where_they_are(
    db: str, upstream: Database, downstream: Database, metadata: str
) -> None:
    upstream.execute(f"SET GLOBAL binlog_row_metadata = '{metadata}'")
    begin = binlog_end(upstream)
    upstream.execute(f"USE {db}", *_WORK)
    Channel(downstream, db).apply(epochs_since(upstream, begin))
    assert definitions(downstream, db) == definitions(upstream, db)
    past = "SELECT COUNT(*) FROM parted FOR SYSTEM_TIME ALL"
    assert downstream.execute(f"USE {db}", past) == upstream.execute(f"USE {db}", past)


_PERIOD = (
    "s TIMESTAMP(6) GENERATED ALWAYS AS ROW START, e TIMESTAMP(6) GENERATED ALWAYS AS ROW END,"
    " PERIOD FOR SYSTEM_TIME (s, e)"
)


@pytest.mark.parametrize("columns", ["v INT", f"id INT PRIMARY KEY, v INT, {_PERIOD}", f"v INT, {_PERIOD}"])
def test_what_nobody_could_tell_from_rows_of_the_past_stops(
    db: str, upstream: Database, downstream: Database, columns: str
) -> None:
    """Without a key, and where the times are columns that everybody sees; a table that has no history takes all."""
    begin = binlog_end(upstream)
    insert = "INSERT INTO t (id, v) VALUES (1, 1)" if "PRIMARY" in columns else "INSERT INTO t (v) VALUES (1)"
    upstream.execute(
        f"USE {db}", f"CREATE TABLE t ({columns}) WITH SYSTEM VERSIONING", insert,
        "UPDATE t SET v = 2",
    )  # fmt: skip
    epochs = epochs_since(upstream, begin)
    channel = Channel(downstream, db)
    with pytest.raises(DownstreamError, match=r"TR655.*DROP SYSTEM VERSIONING"):
        channel.apply(epochs)
    if "PRIMARY" in columns:
        downstream.execute(
            f"USE {db}",
            "DROP TABLE t",
            "CREATE TABLE t (id INT, v INT, s TIMESTAMP(6) NOT NULL, e TIMESTAMP(6) NOT NULL, PRIMARY KEY (id, e))",
        )
        channel.apply(epochs)
        wanted = "SELECT * FROM t FOR SYSTEM_TIME ALL ORDER BY e"
        every = "SET time_zone = '+00:00'"
        assert downstream.execute(f"USE {db}", every, "SELECT * FROM t ORDER BY e") == upstream.execute(
            f"USE {db}", every, wanted
        )
