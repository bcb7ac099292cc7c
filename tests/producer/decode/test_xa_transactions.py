"""XA transactions on real servers: their rows are published at the COMMIT, whatever happens in between."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from producer.settings import RelaySettings
from relay_store.layout.readers import read_readers
from schemas.errors import DecodeError
from tests.support.binlogs.binlog_rows import binlog_end
from tests.support.epochs.producer_case import Case
from tests.support.waiting import wait_until

pytestmark = pytest.mark.servers


@pytest.fixture(autouse=True)
def _nothing_stays_prepared(case: Case) -> Iterator[None]:
    """A prepared transaction holds its locks: the test's database could not be dropped."""
    yield
    converted = case.upstream.flavor == "mysql"
    for form, gtrid, _, data in case.sql("XA RECOVER CONVERT XID" if converted else "XA RECOVER"):
        digits = data[2:] if converted else data.hex()
        case.sql(f"XA ROLLBACK X'{digits[: gtrid * 2]}',X'{digits[gtrid * 2 :]}',{form}")


def _prepare(case: Case, xid: str, *statements: str, settings: tuple[str, ...] = ()) -> None:
    """Prepare an XA transaction and leave it."""
    with case.upstream.connect(database=case.db) as connection, connection.cursor() as cursor:
        for statement in (*settings, f"XA START {xid}", *statements, f"XA END {xid}", f"XA PREPARE {xid}"):
            cursor.execute(statement)
        session = connection.thread_id()
    # Nobody else may commit it before the server has seen that its session is gone.
    left = f"SELECT 1 FROM information_schema.processlist WHERE id = {session}"
    wait_until(lambda: not case.sql(left), "the session ends")


def _changes(case: Case) -> list[tuple[str, str]]:
    """Operation and value of each row of ``t``, in the log's order."""
    rows = [(row.op, row.avro()) for row in case.published().all_rows if row.structure.table == "t"]
    return [(op, (record["after"] or record["before"])["v"]) for op, record in rows]


@pytest.mark.parametrize(
    ("flavor", "settings"),
    [
        ("mysql", ()),
        ("mysql", ("SET SESSION binlog_transaction_compression = ON",)),
        ("mariadb", ()),
    ],
)
def test_rows_take_effect_at_the_commit(case: Case, settings: tuple[str, ...]) -> None:
    """Two open at once, other work and a rotation between, one rolled back; the producer starts anew each time."""
    # InnoDB keeps the gap locked where a savepoint was undone: nobody else inserts between these.
    case.sql("INSERT INTO t (id, v) VALUES (1, 'plain'), (2, 'plain'), (15, 'plain')")
    case.catch_up()
    _prepare(case, "'a','b',3", "INSERT INTO t (id, v) VALUES (10, 'a')", "SAVEPOINT s",
             "INSERT INTO t (id, v) VALUES (11, 'lost')", "ROLLBACK TO s",
             "UPDATE t SET v = 'changed by a' WHERE id = 1", settings=settings)  # fmt: skip
    case.catch_up()
    _prepare(case, "X'ff00','',7", "INSERT INTO t (id, v) VALUES (20, 'never')", settings=settings)
    case.sql("INSERT INTO t (id, v) VALUES (30, 'between')", "FLUSH BINARY LOGS")
    case.catch_up()
    assert _changes(case) == [("c", "plain")] * 3 + [("c", "between")]
    prepared = case.published().epochs[-1].prepared
    assert [p.xid for p in prepared] == ["X'61',X'62',3", "X'ff00',X'',7"]
    # No purge may delete what the COMMIT will need.
    (mark,) = read_readers(case.config.relay.dir)
    assert (mark.position.file, mark.position.pos) == (prepared[0].relay_file, prepared[0].relay_pos)
    case.sql("INSERT INTO t (id, v) VALUES (31, 'also between')", "XA ROLLBACK X'ff00','',7",
             "XA COMMIT 'a','b',3", "INSERT INTO t (id, v) VALUES (32, 'after')")  # fmt: skip
    case.catch_up()
    case.sql(
        *settings, "XA START 'one'", "DELETE FROM t WHERE id = 2", "XA END 'one'", "XA COMMIT 'one' ONE PHASE"
    )
    # The same XIDs once more, for other rows.
    _prepare(case, "'a','b',3", "INSERT INTO t (id, v) VALUES (40, 'a again')", settings=settings)
    case.sql("XA COMMIT 'a','b',3")
    case.catch_up()
    assert _changes(case)[4:] == [
        ("c", "also between"), ("c", "a"), ("u", "changed by a"), ("c", "after"), ("d", "plain"), ("c", "a again"),
    ]  # fmt: skip
    published = case.published()
    assert published.epochs[-1].prepared == ()
    assert sorted(tuple(i.values()) for i in published.tables()["t"].values()) == case.content("t")
    # One transaction's rows have one GTID, that of the COMMIT, which comes behind the one between.
    gtids = [row.avro()["source"]["gtid"] for row in published.all_rows]
    assert gtids[5] == gtids[6]
    numbers = [int(gtid.replace(":", "-").rsplit("-", 1)[1]) for gtid in gtids]
    assert numbers == sorted(numbers)


def test_a_killed_producer_finds_prepared_rows_again(case: Case) -> None:
    """Dead between PREPARE and COMMIT, before and behind the epoch's commit, and while it commits the rows."""
    case.sql("INSERT INTO t (id, v) VALUES (1, 'plain')")
    for n, place in enumerate(("publish.before_commit", "publish.after_commit")):
        case.sql("CREATE TABLE IF NOT EXISTS z (i INT PRIMARY KEY)")
        _prepare(case, f"'x{n}'", f"INSERT INTO t (id, v) VALUES ({10 + n}, 'x')")
        assert case.process(crash_at=place).wait(60) == -signal.SIGKILL
    case.sql("XA COMMIT 'x0'", "INSERT INTO t (id, v) VALUES (2, 'plain')", "XA COMMIT 'x1'")
    for place in ("publish.before_commit", "publish.after_commit"):
        assert case.process(crash_at=place).wait(60) == -signal.SIGKILL
    case.catch_up()
    assert [i["id"] for i in case.published().tables()["t"].values()] == [1, 10, 2, 11]


def test_a_large_prepared_transaction_is_published_in_parts(case: Case) -> None:
    """120,000 rows, read again in blocks from the relay log, in one epoch."""
    rows = "SELECT 'row' FROM information_schema.COLLATIONS a JOIN information_schema.COLLATIONS b"
    _prepare(case, "'big'", f"INSERT INTO t (v) {rows} JOIN information_schema.COLLATIONS c LIMIT 120000")
    case.catch_up()
    assert case.published().all_rows == []
    case.sql("XA COMMIT 'big'")
    case.catch_up()
    assert [epoch.rows for epoch in case.published().epochs if epoch.rows] == [120_000]


def test_a_commit_of_what_was_prepared_before_the_log(case: Case, tmp_path: Path) -> None:
    """The rows cannot be known: it stops at the COMMIT. A ROLLBACK of such a transaction changes nothing."""
    _prepare(case, "'early'", "INSERT INTO t (id, v) VALUES (1, 'early')")
    _prepare(case, "'dropped'", "INSERT INTO t (id, v) VALUES (2, 'dropped')")
    case.sql("FLUSH BINARY LOGS")
    late = replace(
        case,
        config=replace(
            case.config, prefix=f"{case.config.prefix}-late", relay=RelaySettings(dir=tmp_path / "late")
        ),
    )
    late.catch_up()
    case.sql("XA ROLLBACK 'dropped'", "INSERT INTO t (id, v) VALUES (3, 'plain')")
    late.catch_up()
    assert _changes(late) == [("c", "plain")]
    place = binlog_end(case.upstream)
    case.sql("XA COMMIT 'early'")
    with pytest.raises(DecodeError) as caught:
        late.catch_up()
    assert caught.value.code == "TR406"
    assert caught.value.where.file == place[0]
    assert caught.value.where.position
    assert caught.value.where.position > place[1]
    assert caught.value.where.gtid
    assert "XA RECOVER" in caught.value.hint
    case.catch_up()
    assert sorted(i["id"] for i in case.published().tables()["t"].values()) == [1, 3]
