"""UPDATEs of some columns, on real servers: these are set in place where that is safe, with any row images."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import pytest
from structlog.testing import capture_logs

from compose.databases import Database
from schemas.access.server_url import ServerUrl
from schemas.ddl.lexer import Flavor
from schemas.errors import DownstreamError
from schemas.structure import TableStructure
from schemas.wire.avro_schema import KEY_CHANGE
from spark_consumer.plan.refusal import EventRefused
from spark_consumer.rules.config import ConsumerConfig
from tests.support.applying.binlog_applied import Channel, Epoch, definitions, epochs_since
from tests.support.applying.model_steps import leave_out
from tests.support.applying.parts import MemoryLog, apply_log
from tests.support.applying.sent import note_statements
from tests.support.binlogs.binlog_rows import binlog_end
from tests.support.epochs.fake_topic import delete, insert, integer, update
from tests.support.names import own_database

pytestmark = [pytest.mark.servers, pytest.mark.parametrize("flavor", ["mysql", "mariadb"], indirect=True)]

# What the changes do not name has to stay as it is.
_TABLE = (
    "id INT PRIMARY KEY, a INT NOT NULL, b VARCHAR(60) NOT NULL, c DECIMAL(9,3), e ENUM('x','y') NOT NULL,"
    " st SET('p','q') NOT NULL, bi BIT(5) NOT NULL, y YEAR NOT NULL, ti TIME(3) NOT NULL, da DATE NOT NULL,"
    " dt DATETIME(6) NOT NULL, bl LONGBLOB NOT NULL, bn BINARY(3) NOT NULL, j JSON NOT NULL, f DOUBLE NOT NULL,"
    " u VARCHAR(40) NOT NULL DEFAULT (UUID()),"
    " ts TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),"
    " no INT NOT NULL AUTO_INCREMENT, KEY (no)"
)
_VALUES = (
    "'b', NULL, 'y', 'p,q', b'101', 1999, '-01:02:03.5', '2024-02-29', '2024-02-29 01:02:03.456789', X'00FF',"
    " X'010203', '[1]', 1e300, 'given', '2020-02-02'"
)
_IMAGE = "SET SESSION binlog_row_image = '{}'"
_SETS = (
    "a = {n}",
    "b = 'b{n}'",
    "a = {n}, c = {n}.5",
    "b = 'x{n}', bl = REPEAT('é', {n})",
    "j = '[{n}]', e = 'x'",
)
_HINDRANCES = {
    # The placeholder breaks it.
    "check": ", CHECK (a > 0 AND f > 1)",
    "generated": ", g TINYINT AS (IF(y = 0, 300, 5)) STORED INVISIBLE",
    "unique": ", UNIQUE (no)",
}


@pytest.fixture
def db(request: pytest.FixtureRequest, upstream: Database, downstream: Database) -> Iterator[str]:
    yield from own_database("cols_", request, upstream, downstream)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The statements that change rows of the table."""
    return note_statements(monkeypatch, b"`t`")


def _rows(first: int, count: int) -> str:
    rows = (f"({n}, {n + 1}, {_VALUES}, {n + 1})" for n in range(first, first + count))
    return f"INSERT INTO t VALUES {', '.join(rows)}"


def _epochs(
    upstream: Database, db: str, *groups: list[str], more: str = "", image: str = "MINIMAL"
) -> list[Epoch]:
    """A table with eight rows, and a transaction with such images for each group."""
    begin = binlog_end(upstream)
    upstream.execute(f"CREATE DATABASE {db}", f"CREATE TABLE {db}.t ({_TABLE}{more})")
    for number, statements in enumerate([[_rows(0, 8)], *groups]):
        upstream.execute(f"USE {db}", _IMAGE.format(image), "BEGIN", *statements, "COMMIT")
        # A DDL ends the epoch.
        upstream.execute(f"ALTER TABLE {db}.t COMMENT '{number}'")
    return epochs_since(upstream, begin)


def _changes(random: Random, there: list[int], count: int, images: Sequence[str]) -> Iterator[str]:
    """Random changes of a table with these rows."""
    coming = 1000 * count
    for n in range(1, count + 1):
        yield _IMAGE.format(random.choice(images))
        kind = random.random()
        if kind < 0.1:
            yield _rows(coming, 3)
            there += range(coming, coming + 3)
            coming += 3
        elif kind < 0.2 and there:
            gone = there.pop(random.randrange(len(there)))
            yield f"DELETE FROM t WHERE id = {gone}"
            if random.random() < 0.5:
                yield f"INSERT INTO t (id, a, b, j) VALUES ({gone}, {n}, 'again', '[]')"
                there.append(gone)
        else:
            ids = ", ".join(map(str, random.sample(there, min(len(there), random.choice((1, 1, 2, 5))))))
            yield f"UPDATE t SET {random.choice(_SETS).format(n=n)} WHERE id IN ({ids or -1})"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("images", [["MINIMAL"], ["FULL"], ["MINIMAL", "FULL"]], ids="-".join)
def test_changes_of_some_columns_end_as_upstream(
    upstream: Database, downstream: Database, db: str, seed: int, images: list[str], sent: list[bytes]
) -> None:
    random = Random(seed)
    # What a row that is inserted without these columns gets, every server has to make up alike.
    lax = ["SET SESSION sql_mode = ''"]
    there = list(range(8))
    epochs = _epochs(
        upstream, db, *(lax + list(_changes(random, there, count, images)) for count in range(40, 44))
    )
    with capture_logs() as logs:
        Channel(downstream, db).apply(epochs)
    assert definitions(downstream, db) == definitions(upstream, db)
    assert not [entry for entry in logs if entry["event"] == "compacted_less"]
    assert sum(b" ON DUPLICATE KEY UPDATE " in sql for sql in sent) >= 4


def test_many_changes_are_few_statements(
    upstream: Database, downstream: Database, db: str, sent: list[bytes]
) -> None:
    changes = [_rows(8, 500), "UPDATE t SET a = a + 1, b = 'new'", "UPDATE t SET b = REPEAT('y', 20)"]
    many = [f"UPDATE t SET b = 'z{n}' WHERE id = {n % 300}" for n in range(900)]
    epochs = _epochs(upstream, db, changes, many)
    Channel(downstream, db).apply(epochs)
    assert definitions(downstream, db) == definitions(upstream, db)
    updates = [sql for sql in sent if b" ON DUPLICATE KEY UPDATE " in sql]
    assert 2 <= len(updates) <= 9
    assert not [sql for sql in sent if sql.startswith(b"UPDATE `")]


def test_a_single_row_is_changed_by_its_key(
    upstream: Database, downstream: Database, db: str, sent: list[bytes]
) -> None:
    epochs = _epochs(upstream, db, ["UPDATE t SET a = 50 WHERE id = 3", "UPDATE t SET a = 51 WHERE id = 3"])
    Channel(downstream, db).apply(epochs)
    assert definitions(downstream, db) == definitions(upstream, db)
    [update] = [sql for sql in sent if sql.startswith(b"UPDATE `")]
    assert b"`a`=51" in update


def test_whole_images_set_what_changed(
    upstream: Database, downstream: Database, db: str, sent: list[bytes]
) -> None:
    changes = [_rows(8, 500), "UPDATE t SET a = a + 1, b = 'new'"]
    later = ["UPDATE t SET j = '[7]' WHERE id < 400", "UPDATE t SET bl = REPEAT('y', 2000) WHERE id = 3"]
    epochs = _epochs(upstream, db, changes, later, ["UPDATE t SET y = 2000 WHERE id = 4"], image="FULL")
    Channel(downstream, db).apply(epochs)
    assert definitions(downstream, db) == definitions(upstream, db)
    tails = {sql.rpartition(b" ON DUPLICATE KEY UPDATE ")[2] for sql in sent if b" ON DUPLICATE KEY " in sql}
    assert len(tails) == 2
    assert {tail.count(b"=") for tail in tails} == {4}
    [single] = [sql for sql in sent if sql.startswith(b"UPDATE `")]
    assert b"`y`='2000'," in single
    assert single.count(b"=") == 4


@pytest.mark.parametrize("image", ["MINIMAL", "FULL"])
@pytest.mark.parametrize(
    ("gone", "rows"),
    [("2", "2"), ("2", "2, 3"), ("2, 3", "2, 3"), ("2, 3", "1, 2, 3")],
    ids=["single", "one", "all", "some"],
)
def test_a_row_that_is_missing_stops_the_channel_at_its_event(
    upstream: Database, downstream: Database, db: str, gone: str, rows: str, image: str
) -> None:
    changes = ["DELETE FROM t WHERE id = 0", f"UPDATE t SET a = 50 WHERE id IN ({rows})"]
    epochs = _epochs(upstream, db, changes, image=image)
    channel = Channel(downstream, db)
    channel.apply(epochs[:-3])
    downstream.execute(f"DELETE FROM {db}.t WHERE id IN ({gone})")
    before = downstream.execute(f"SELECT * FROM {db}.t")
    with pytest.raises(DownstreamError) as stopped:
        channel.apply(epochs)
    assert stopped.value.code == "TR603"
    assert stopped.value.where.event is not None
    assert downstream.execute(f"SELECT * FROM {db}.t") == before


@pytest.mark.parametrize("image", ["MINIMAL", "FULL"])
@pytest.mark.parametrize("hindrance", _HINDRANCES)
def test_what_hinders_changes_of_some_columns_does_not_hinder_others(
    upstream: Database, downstream: Database, db: str, hindrance: str, image: str
) -> None:
    groups = [[f"UPDATE t SET a = a + {n}, b = '{n}' WHERE id > 2", f"UPDATE t SET a = {n}"] for n in (1, 2)]
    epochs = _epochs(upstream, db, *groups, more=_HINDRANCES[hindrance], image=image)
    Channel(downstream, db).apply(epochs)
    assert definitions(downstream, db) == definitions(upstream, db)


@pytest.mark.parametrize("image", ["MINIMAL", "FULL"])
def test_an_index_of_an_expression_may_refuse_a_placeholder(
    upstream: Database, downstream: Database, db: str, flavor: Flavor, image: str
) -> None:
    # MariaDB has no such index.
    more = ", KEY k ((CAST(b AS UNSIGNED)))" if flavor == "mysql" else ""
    numbers = [f"UPDATE t SET b = '{n}1' WHERE id = {n}" for n in range(4)]
    first = [_rows(0, 4).replace("'b'", "'5'"), *numbers]
    begin = binlog_end(upstream)
    upstream.execute(f"CREATE DATABASE {db}", f"CREATE TABLE {db}.t ({_TABLE}{more})")
    for group in (first, ["UPDATE t SET a = a + 3"], ["UPDATE t SET a = a + 4"]):
        upstream.execute(f"USE {db}", _IMAGE.format(image), "BEGIN", *group, "COMMIT")
        upstream.execute(f"ALTER TABLE {db}.t COMMENT '{len(group)}'")
    with capture_logs() as logs:
        Channel(downstream, db).apply(epochs_since(upstream, begin))
    assert definitions(downstream, db) == definitions(upstream, db)
    assert sum(entry["event"] == "compacted_less" for entry in logs) == (flavor == "mysql")


def test_a_row_of_which_a_change_was_left_out_gets_all_columns_with_the_next_one(
    downstream: Database, db: str, sent: list[bytes]
) -> None:
    names = ("id", *"abcdefgh")
    downstream.execute(
        f"CREATE DATABASE {db}",
        *(
            f"CREATE TABLE {db}.{t} (id INT PRIMARY KEY, {' INT, '.join(names[1:])} INT)"
            for t in ("t", "other")
        ),
    )
    columns = (integer("id"), *(integer(name, nullable=True) for name in names[1:]))
    table, other = (TableStructure(db, name, columns, ("id",)) for name in ("t", "other"))
    zero = dict.fromkeys(names, 0)
    log = MemoryLog()
    log.add(insert(table, zero), insert(other, zero))
    config = ConsumerConfig("", "p", ServerUrl.parse(downstream.url("tailrace")), channel=db)
    apply_log(config, log)
    downstream.execute(f"DELETE FROM {db}.t")
    log.add(update(table, zero, zero | {"a": 1}))
    with pytest.raises(EventRefused) as refused:
        apply_log(config, log)
    leave_out(config, refused.value)
    downstream.execute(f"INSERT INTO {db}.t VALUES ({', '.join('0' for _ in names)})")
    log.add(*(update(it, zero | {"a": 1}, zero | {"a": 1, "b": 2}) for it in (table, other)))
    apply_log(config, log)
    assert downstream.execute(f"SELECT id, a, b FROM {db}.t") == [(0, 1, 2)]
    # Nothing was left out of this one, which did not change in the log either.
    assert downstream.execute(f"SELECT id, a, b FROM {db}.other") == [(0, 0, 2)]


_UNIQUE = (
    "id INT PRIMARY KEY, u INT UNIQUE, v VARCHAR(20) COLLATE utf8mb4_general_ci, w INT, UNIQUE (v(2), w)"
)
# So many columns that those that stay are left out.
_WIDE = "a INT, b INT, c INT, d INT, e INT NOT NULL DEFAULT 5, f INT, g TEXT, h INT, i INT"


def _moves(random: Random, count: int, images: Sequence[str]) -> Iterator[str]:
    """Random changes of eight rows, which the upstream ignores where a unique value is taken."""
    # A key change whose images lack columns would put the table in order.
    moves_keys = int(images == ["FULL"])
    for n in range(count):
        i, j, value = random.randrange(8), random.randrange(8), random.randrange(10)
        word = random.choice(("a", "A", "b", "ö", "o", "cd"))
        kinds = (
            [f"UPDATE IGNORE t SET u = {value} WHERE id = {i}"],
            [f"UPDATE IGNORE t SET v = '{word}', w = {value} WHERE id = {i}"],
            [f"UPDATE IGNORE t SET w = {value} WHERE id IN ({i}, {j})"],
            [f"UPDATE IGNORE t SET {'adf'[n % 3]} = {n} WHERE id <> {i}"],
            [f"UPDATE IGNORE t SET u = NULL WHERE id = {i}", f"UPDATE IGNORE t SET u = {i} WHERE id = {j}"],
            [
                f"DELETE FROM t WHERE id = {i}",
                f"INSERT IGNORE INTO t (id, u, v, w) VALUES ({i}, {j}, '{word}', {value})",
            ],
            [f"UPDATE IGNORE t SET id = {j} WHERE id = {i}"],
        )
        yield _IMAGE.format(random.choice(images))
        yield from random.choices(kinds, (2, 2, 2, 4, 2, 2, moves_keys))[0]


@pytest.mark.parametrize("more", ["a INT, d INT, f INT", _WIDE], ids=["narrow", "wide"])
@pytest.mark.parametrize("images", ["FULL", "MINIMAL", "NOBLOB", "MIXED"])
@pytest.mark.parametrize("seed", range(3))
def test_rows_with_several_unique_keys_end_as_upstream(
    upstream: Database,
    downstream: Database,
    db: str,
    seed: int,
    images: str,
    more: str,
    sent: list[bytes],
) -> None:
    random = Random(seed)
    of = ["MINIMAL", "NOBLOB", "FULL"] if images == "MIXED" else [images]
    begin = binlog_end(upstream)
    rows = ", ".join(f"({n}, {n}, 'r{n}', {n})" for n in range(8))
    upstream.execute(
        f"CREATE DATABASE {db}",
        f"CREATE TABLE {db}.t ({_UNIQUE}, {more})",
        f"INSERT INTO {db}.t (id, u, v, w) VALUES {rows}",
    )
    for number in range(8):
        stay = [_IMAGE.format(of[0]), f"UPDATE t SET d = {number} WHERE id <> {number}"]
        moves = _moves(random, 2 + 3 * number, of) if number % 3 else stay
        upstream.execute(f"USE {db}", "BEGIN", *moves, "COMMIT")
        upstream.execute(f"ALTER TABLE {db}.t COMMENT '{number}'")
    with capture_logs() as logs:
        Channel(downstream, db).apply(epochs_since(upstream, begin))
    assert definitions(downstream, db) == definitions(upstream, db)
    # Rows that take each other's values cannot be changed in any order, nor written as a whole without their columns.
    assert of != ["FULL"] or not [entry for entry in logs if entry["event"] == "compacted_less"]
    assert [sql for sql in sent if b"=IF(" in sql]
    assert [sql for sql in sent if sql.startswith(b"DELETE")]


_KEYS = {
    "auto": ("INT AUTO_INCREMENT", "n"),
    "large": ("BIGINT UNSIGNED AUTO_INCREMENT", "18446744073709551600 + n"),
    "text": ("VARCHAR(20) COLLATE utf8mb4_general_ci", "CONCAT('Ä', n)"),
    "latin": ("VARCHAR(20) CHARACTER SET latin1", "CONCAT('ä', n)"),
    "bytes": ("VARBINARY(20)", "CONCAT(X'00FF80', n)"),
    "decimal": ("DECIMAL(40,3)", "1234567890123456789012345678901234567.125 + n"),
    "double": ("DOUBLE", "n / 3"),
    "time": ("DATETIME(6)", "'2024-01-01 00:00:00.123456' + INTERVAL n SECOND"),
    "stamp": ("TIMESTAMP(3)", "'2024-10-27 01:00:00.125' + INTERVAL n SECOND"),
    "bit": ("BIT(60)", "(1 << 59) + n"),
    "member": ("ENUM('a', 'b', 'c', 'd', 'e', 'f', 'g', 'h')", "n"),
}


@pytest.mark.parametrize("image", ["FULL", "MINIMAL"])
@pytest.mark.parametrize("kind", _KEYS)
def test_another_row_with_a_unique_value_is_not_changed(
    upstream: Database, downstream: Database, db: str, kind: str, image: str, sent: list[bytes]
) -> None:
    column, value = _KEYS[kind]
    begin = binlog_end(upstream)
    numbers = " UNION ALL ".join(f"SELECT {n} AS n" for n in range(1, 9))
    upstream.execute(
        f"CREATE DATABASE {db}",
        # The placeholder of `u` is the first row's.
        f"CREATE TABLE {db}.t (id {column}, part INT, u INT NOT NULL UNIQUE, w INT, PRIMARY KEY (id, part))",
        f"INSERT INTO {db}.t SELECT {value}, 1, n - 1, 0 FROM ({numbers}) AS numbers",
        f"ALTER TABLE {db}.t COMMENT 'before'",
        _IMAGE.format(image),
        f"UPDATE {db}.t SET w = 1 WHERE u > 2",
        f"ALTER TABLE {db}.t COMMENT 'between'",
    )
    channel = Channel(downstream, db)
    channel.apply(epochs_since(upstream, begin))
    assert definitions(downstream, db) == definitions(upstream, db)
    assert [sql for sql in sent if b"<=>" in sql]
    # Its key is another one, so the row that the upstream changes is missing.
    downstream.execute(f"UPDATE {db}.t SET part = 2 WHERE u = 4")
    before = downstream.execute(f"SELECT * FROM {db}.t ORDER BY u")
    upstream.execute(
        _IMAGE.format(image),
        f"UPDATE {db}.t SET w = 5 WHERE u BETWEEN 2 AND 6",
        f"ALTER TABLE {db}.t COMMENT 'after'",
    )
    with capture_logs() as logs, pytest.raises(DownstreamError) as stopped:
        channel.apply(epochs_since(upstream, begin))
    assert stopped.value.code == "TR603"
    assert [entry["event"] for entry in logs].count("compacted_less") == 1
    assert downstream.execute(f"SELECT * FROM {db}.t ORDER BY u") == before


def test_a_key_that_changes_puts_its_table_in_order_from_then_on(
    upstream: Database, downstream: Database, db: str, sent: list[bytes]
) -> None:
    epochs = _epochs(
        upstream,
        db,
        ["UPDATE t SET a = 20 WHERE id > 3"],
        ["UPDATE t SET b = 'c'", "UPDATE t SET id = id + 100 WHERE id > 4", "UPDATE t SET a = 7"],
        ["UPDATE t SET a = 8"],
    )
    with capture_logs() as logs:
        Channel(downstream, db).apply(epochs)
    assert definitions(downstream, db) == definitions(upstream, db)
    assert [entry["tables"] for entry in logs if entry["event"] == "compacted_less"] == [[f"{db}.t"]]
    assert sum(b" ON DUPLICATE KEY UPDATE " in sql for sql in sent) == 1


@pytest.mark.parametrize(
    ("image", "more"),
    [("MINIMAL", ""), ("FULL", ""), ("FULL", ", UNIQUE (no)")],
    ids=["minimal", "full", "unique"],
)
@pytest.mark.parametrize("crash", ["apply.before_commit", "apply.after_commit"])
def test_changes_in_place_happen_once_whenever_it_is_killed(
    upstream: Database, downstream: Database, db: str, crash: str, image: str, more: str
) -> None:
    changes = ["UPDATE t SET a = 20 WHERE id > 3"], ["UPDATE t SET b = CONCAT(b, a)"]
    epochs = _epochs(upstream, db, *changes, more=more, image=image)
    channel = Channel(downstream, db)
    deaths = [channel.apply_until_it_dies(epochs[:end], crash) for end in range(1, len(epochs) + 1)]
    assert deaths.count(signal.SIGKILL) >= 3
    channel.apply(epochs)
    assert definitions(downstream, db) == definitions(upstream, db)


def test_a_large_transaction_changes_columns_run_by_run(downstream: Database, db: str) -> None:
    downstream.execute(
        f"CREATE DATABASE {db}",
        f"CREATE TABLE {db}.t (id INT PRIMARY KEY, a INT NOT NULL, b INT NOT NULL)",
        f"INSERT INTO {db}.t VALUES {', '.join(f'({n}, {n}, {n})' for n in range(30))}",
    )
    full = TableStructure(db, "t", (integer("id"), integer("a"), integer("b")), ("id",))
    sets = replace(full, before_columns=("id",), after_columns=("id", "a"))
    log = MemoryLog(run_rows=7)
    changes = [update(sets, {"id": n % 30}, {"id": n % 30, "a": 1000 + n}) for n in range(70)]
    moved = [delete(sets, {"id": 3}, KEY_CHANGE), insert(sets, {"id": 103, "a": 5}, KEY_CHANGE)]
    log.add(*changes, *moved, update(sets, {"id": 103}, {"id": 103, "a": 6}))
    assert len(log.logged[-1].record.runs) > 5
    config = ConsumerConfig("", "p", ServerUrl.parse(downstream.url("tailrace")), channel=db)
    with capture_logs() as logs:
        apply_log(config, log)
    assert [entry["tables"] for entry in logs if entry["event"] == "compacted_less"] == [[f"{db}.t"]]
    last = {n % 30: 1000 + n for n in range(70)}
    expected = [(n, last[n], n) for n in range(30) if n != 3] + [(103, 6, 3)]
    assert downstream.execute(f"SELECT id, a, b FROM {db}.t ORDER BY id") == expected
