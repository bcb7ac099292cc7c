"""Copies of tables in the log on real servers: in the end the upstream's rows, whatever changed and died meanwhile."""

from __future__ import annotations

import contextlib
import signal
from dataclasses import replace
from random import Random
from typing import cast

import pytest

from compose.databases import Database
from schemas.access.server_url import ServerUrl
from schemas.errors import DownstreamError
from schemas.structure import TableStructure
from schemas.wire.epoch import BEGIN, END, ROWS, CopyStep
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.slices import cut
from spark_consumer.job.batches import COPIED_TIMES
from spark_consumer.plan.refusal import EventRefused
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.rules.event_filter import EventRule
from spark_consumer.rules.expressions.filter import ExpressionRule
from spark_consumer.rules.route import Route
from tailrace.assemble.sink import open_sink
from tests.support.applying.copying import COPIED, COPY, Copier, create_table
from tests.support.applying.model import TABLES, Model
from tests.support.applying.model_steps import leave_out
from tests.support.applying.parts import MemoryLog, apply_in_child, apply_log
from tests.support.epochs.fake_topic import Image, delete, insert, read, update
from tests.support.names import own_name

pytestmark = pytest.mark.servers

CRASHES = (
    "ddl.before",
    "ddl.after",
    "apply.before_commit",
    "apply.after_commit",
    "worker.after_commit",
    "copied.after_share",
    "copied.after_share:2",
    "copied.after_rows",
    "",
)
BESIDE = ("nontransactional.after_mark", "nontransactional.after_row", "nontransactional.after_all")


@pytest.fixture
def db(request: pytest.FixtureRequest, downstream: Database) -> str:
    """A database and channel of the test's own."""
    name = own_name("y_", request)
    downstream.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
    return name


@pytest.fixture
def config(downstream: Database, db: str) -> ConsumerConfig:
    return ConsumerConfig("", "p", ServerUrl.parse(downstream.url("tailrace")), channel=db, retry_time=5)


def create_tables(server: Database, db: str, *tables: str) -> None:
    server.execute(
        f"USE {db}",
        "SET foreign_key_checks = 0",
        *(f"CREATE TABLE {table} {TABLES[table]}" for table in tables),
    )


def check_rows(server: Database, copier: Copier) -> None:
    """Check that tables of which a copy runs have some of the upstream's rows, and the others all."""
    for table, rows in copier.states[copier.published].items():
        columns = [column.name for column in copier.model.structure(table).columns]
        wanted = sorted((tuple(row[name] for name in columns) for row in rows), key=repr)
        found = sorted(
            server.execute(f"SELECT {', '.join(columns)} FROM {copier.model.db}.{table}"), key=repr
        )
        if table in copier.running:
            assert set(found) <= set(wanted), table
        else:
            assert found == wanted, table


@pytest.mark.parametrize(("engine", "seed"), [("InnoDB", 0), ("InnoDB", 1), ("MyISAM", 2), ("MyISAM", 3)])
def test_random_copies_end_equal_whatever_is_killed(
    downstream: Database, db: str, config: ConsumerConfig, engine: str, seed: int
) -> None:
    random = Random(seed)
    model = Model(db, random)
    for _ in range(8):
        model.run(20)
    model.tables |= {"head": [], "tail": []}
    beside = engine == "MyISAM"
    # A table without transactions needs a key.
    copied = sorted(set(COPIED) - {"bag"}) if beside else COPIED
    create_tables(downstream, db, *(set(TABLES) - set(copied)), *(() if beside else random.sample(copied, 3)))
    model.tables["bag"] = [] if beside else model.tables["bag"]
    copier = Copier(model, random, engine=engine, copied=copied)
    for table in random.sample(copied, len(copied)):
        copier.begin(table, again=False)
    died = 0
    for _ in range(8):
        copier.some_steps(20)
        points = (*CRASHES, *(f"{point}:{random.randrange(1, 9)}" for point in BESIDE)) if beside else CRASHES
        for crash in (random.choice(points), random.choice(points), ""):
            now = replace(
                config,
                consistency=random.choice(("batch", "worker")),
                worker_count=random.choice((2, 4)),
                compact=random.random() < 0.7,
                max_batch_rows=random.choice((1, 10, 30, 1000)),
                statement_rows=random.choice((1, 3, 2000)),
            )
            code = apply_in_child(now, copier.log, crash)
            assert code == 0 or (crash and code == signal.SIGKILL), (crash, now)
            died += code == signal.SIGKILL
        check_rows(downstream, copier)
    copier.finish()
    assert apply_in_child(config, copier.log, "") == 0
    check_rows(downstream, copier)
    assert died >= 2


# the start ------------------------------------------------------------------------------------------


def begin(log: MemoryLog, db: str, table: str, *, again: bool = False, columns: str = "") -> None:
    """Add the start of a copy."""
    step = CopyStep(COPY, db, table, BEGIN, again=again)
    log.add(copy=step, ddl=create_table(db, table, columns))


def put(log: MemoryLog, structure: TableStructure, *images: Image) -> None:
    """Add a chunk of a copy."""
    step = CopyStep(COPY, structure.db, structure.table, ROWS)
    log.add(*(read(structure, image) for image in images), incomplete={structure.table}, copy=step)


def end(log: MemoryLog, db: str, table: str) -> None:
    """Add the end of a copy."""
    log.add(copy=CopyStep(COPY, db, table, END))


def plain(db: str, table: str = "plain") -> TableStructure:
    return replace(Model(db, Random(0)).structure("plain"), table=table)


def row(key: int, number: int | None = None, text: str | None = None) -> Image:
    return {"id": key, "n": number, "s": text}


def left_out(server: Database, channel: str) -> list[str | None]:
    """Return what the audit rows of DDL say, in order."""
    sql = f"SELECT ddl_left_out FROM tailrace.applied_epochs WHERE channel = '{channel}' AND ddl IS NOT NULL"
    return [reason for (reason,) in server.execute(f"{sql} ORDER BY first_epoch")]


def test_a_copy_creates_its_table_takes_an_empty_one_and_empties_one_again(
    downstream: Database, db: str, config: ConsumerConfig
) -> None:
    log = MemoryLog()
    begin(log, db, "plain")
    put(log, plain(db), row(1), row(2))
    end(log, db, "plain")
    begin(log, db, "plain", again=True)
    put(log, plain(db), row(2), row(3))
    end(log, db, "plain")
    create_tables(downstream, db, "uniques")
    begin(log, db, "uniques")
    apply_log(config, log)
    assert downstream.execute(f"SELECT id FROM {db}.plain ORDER BY 1") == [(2,), (3,)]
    assert left_out(downstream, db) == [None, "emptied", "exists"]


def test_rows_of_somebody_else_stop_the_copy_until_they_are_gone(
    downstream: Database, db: str, config: ConsumerConfig
) -> None:
    create_tables(downstream, db, "plain")
    downstream.execute(f"INSERT INTO {db}.plain VALUES (7, 7, 'ours')")
    log = MemoryLog()
    begin(log, db, "plain")
    put(log, plain(db), row(1))
    with pytest.raises(
        DownstreamError, match=f"TR664: a copy of {db}.plain starts here.*it has rows already"
    ) as found:
        apply_log(config, log)
    # There is no event that could be skipped.
    assert not isinstance(found.value, EventRefused)
    assert downstream.execute(f"SELECT id FROM {db}.plain") == [(7,)]
    downstream.execute(f"DELETE FROM {db}.plain")
    apply_log(config, log)
    assert downstream.execute(f"SELECT id FROM {db}.plain") == [(1,)]


def test_values_of_columns_that_only_the_downstream_has_are_not_deleted(
    downstream: Database, db: str, config: ConsumerConfig
) -> None:
    downstream.execute(
        f"CREATE TABLE {db}.plain (id INT PRIMARY KEY, N INT, s VARCHAR(60), ours INT DEFAULT 5)"
    )
    shown = "(\n  `id` int NOT NULL,\n  `n` int,\n  `s` varchar(60),\n  PRIMARY KEY (`id`)\n)"
    log = MemoryLog()
    begin(log, db, "plain", columns=shown)
    put(log, plain(db), row(1, 1), row(2, 2))
    # Rows that are there keep the values.
    log.add(update(plain(db), row(2, 2), row(2, 3)), insert(plain(db), row(3)), incomplete={"plain"})
    apply_log(config, log)
    downstream.execute(f"UPDATE {db}.plain SET ours = 6")
    put(log, plain(db), row(3))
    end(log, db, "plain")
    apply_log(config, log)
    every = [(1, 1, 6), (2, 3, 6), (3, None, 6)]
    assert downstream.execute(f"SELECT id, n, ours FROM {db}.plain ORDER BY 1") == every
    begin(log, db, "plain", again=True, columns=shown)
    with pytest.raises(DownstreamError, match=r"TR664: .*only the downstream has its column ours"):
        apply_log(config, log)
    assert downstream.execute(f"SELECT id, n, ours FROM {db}.plain ORDER BY 1") == every


def test_a_view_in_the_tables_place_stops_the_copy(
    downstream: Database, db: str, config: ConsumerConfig
) -> None:
    downstream.execute(f"CREATE VIEW {db}.plain AS SELECT 1 AS id, 2 AS n, 'x' AS s")
    log = MemoryLog()
    begin(log, db, "plain", again=True)
    with pytest.raises(DownstreamError, match=r"TR664: .*there is a VIEW in its place"):
        apply_log(config, log)


@pytest.mark.parametrize("crash", ["ddl.before", "ddl.after", "apply.before_commit", "apply.after_commit"])
@pytest.mark.parametrize("engine", ["InnoDB", "MyISAM"])
def test_the_start_of_a_copy_may_be_killed_anywhere(
    downstream: Database, db: str, config: ConsumerConfig, crash: str, engine: str
) -> None:
    log = MemoryLog()
    columns = f"{TABLES['plain']} ENGINE={engine}"
    for chunk in (1, 2):
        begin(log, db, "plain", again=chunk > 1, columns=columns)
        assert apply_in_child(config, log, crash) == signal.SIGKILL
        put(log, plain(db), row(chunk), row(9))
        end(log, db, "plain")
        apply_log(config, log)
        assert downstream.execute(f"SELECT id FROM {db}.plain ORDER BY 1") == [(chunk,), (9,)]


def test_a_parent_is_emptied_although_foreign_keys_refer_to_it(
    downstream: Database, db: str, config: ConsumerConfig
) -> None:
    create_tables(downstream, db, "head", "tail", "parent", "child")
    for parent, child in (("head", "tail"), ("parent", "child")):
        downstream.execute(
            f"INSERT INTO {db}.{parent} VALUES (1, NULL, NULL), (2, NULL, NULL)",
            f"INSERT INTO {db}.{child} VALUES (5, 1, NULL)",
        )
    log = MemoryLog()
    for table in ("head", "parent"):
        begin(log, db, table, again=True)
        put(log, plain(db, table), row(1, 1), row(3))
        end(log, db, table)
    apply_log(config, log)
    for parent, child in (("head", "tail"), ("parent", "child")):
        assert downstream.execute(f"SELECT id, n FROM {db}.{parent} ORDER BY 1") == [(1, 1), (3, None)]
        assert downstream.execute(f"SELECT id, n FROM {db}.{child}") == [(5, 1)]


def test_a_table_of_the_upstream_that_the_channel_leaves_out_is_not_touched(
    downstream: Database, db: str, config: ConsumerConfig
) -> None:
    create_tables(downstream, db, "plain", "uniques")
    downstream.execute(
        f"INSERT INTO {db}.plain VALUES (7, 7, 'ours')", f"INSERT INTO {db}.uniques VALUES (7, 7, NULL)"
    )
    log = MemoryLog()
    for table in ("plain", "uniques"):
        begin(log, db, table, again=True)
        put(log, plain(db, table), row(1))
        end(log, db, table)
    filters = (EventRule(db, "Ignore", table_pattern="uniques", events=("all dml",)),)
    apply_log(replace(config, exclude=(f"{db}.plain",), filters=filters), log)
    for table in ("plain", "uniques"):
        assert downstream.execute(f"SELECT id FROM {db}.{table}") == [(7,)]


def merged_config(config: ConsumerConfig, db: str) -> ConsumerConfig:
    return replace(config, routes=(Route(db, db, table_pattern="shard_*", target_table="plain"),))


def test_first_copies_of_several_tables_go_into_one(
    downstream: Database, db: str, config: ConsumerConfig
) -> None:
    log = MemoryLog()
    for number in (1, 2):
        table = f"shard_{number}"
        begin(log, db, table, columns=TABLES["plain"])
        put(log, plain(db, table), row(number), row(number + 10))
        log.add(
            update(plain(db, table), row(number + 20), row(number + 20, 5)),
            delete(plain(db, table), row(number + 30)),
            incomplete={table},
        )
        end(log, db, table)
    merged = merged_config(config, db)
    apply_log(merged, log)
    every = [(1, None), (2, None), (11, None), (12, None), (21, 5), (22, 5)]
    assert downstream.execute(f"SELECT id, n FROM {db}.plain ORDER BY 1") == every
    begin(log, db, "shard_1", again=True, columns=TABLES["plain"])
    with pytest.raises(DownstreamError, match=r"TR664: .*its rows may be of other upstream tables as well"):
        apply_log(merged, log)
    assert downstream.execute(f"SELECT id, n FROM {db}.plain ORDER BY 1") == every


# tolerance ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compact", [True, False])
@pytest.mark.parametrize("max_rows", [1, 1000])
def test_changes_of_rows_that_are_not_there_yet(
    downstream: Database, db: str, config: ConsumerConfig, compact: bool, max_rows: int
) -> None:
    structure = plain(db, "uniques")
    log = MemoryLog()
    begin(log, db, "uniques")
    log.add(
        update(structure, row(1, 1), row(1, 10)),
        delete(structure, row(2, 2)),
        update(structure, row(3, 3), row(30, 3)),
        insert(structure, row(4, 4)),
        incomplete={"uniques"},
    )
    # A unique value goes from a row that is there to one that is not.
    log.add(
        update(structure, row(4, 4), row(4, 44)),
        update(structure, row(5, 5), row(5, 4)),
        incomplete={"uniques"},
    )
    put(log, structure, row(5, 4), row(6, 5), row(30, 3))
    end(log, db, "uniques")
    apply_log(replace(config, compact=compact, max_batch_rows=max_rows), log)
    every = [(1, 10), (4, 44), (5, 4), (6, 5), (30, 3)]
    assert downstream.execute(f"SELECT id, n FROM {db}.uniques ORDER BY id") == every
    # Behind the end a row that is missing is an error again.
    log.add(delete(structure, row(99)))
    with pytest.raises(DownstreamError, match="TR603"):
        apply_log(replace(config, compact=compact), log)


def test_a_table_without_a_key_does_not_change_while_it_is_copied(
    downstream: Database, db: str, config: ConsumerConfig
) -> None:
    bag = Model(db, Random(0)).structure("bag")
    image = {"n": 1, "s": "x"}
    log = MemoryLog()
    begin(log, db, "bag")
    put(log, bag, image, image)
    end(log, db, "bag")
    log.add(delete(bag, image))
    apply_log(config, log)
    assert downstream.execute(f"SELECT n FROM {db}.bag") == [(1,)]
    log.add(insert(bag, image), incomplete={"bag"})
    with pytest.raises(DownstreamError, match=r"TR665: .*no key finds its rows"):
        apply_log(config, log)


def test_cascades_run_when_the_parent_is_complete(
    downstream: Database, db: str, config: ConsumerConfig
) -> None:
    head, tail = plain(db, "head"), plain(db, "tail")
    log = MemoryLog()
    begin(log, db, "head")
    put(log, head, row(1), row(3), row(4))
    # The rows of the child are copied behind those of the parent; one of these is not there yet.
    log.add(delete(head, row(3)), delete(head, row(2)), incomplete={"head"})
    end(log, db, "head")
    begin(log, db, "tail")
    put(log, tail, row(7, 1), row(8, 4))
    log.add(insert(tail, row(5, 4)), incomplete={"tail"})
    log.add(delete(head, row(4)))
    put(log, tail, row(9, 1))
    end(log, db, "tail")
    apply_log(config, log)
    assert downstream.execute(f"SELECT id FROM {db}.head") == [(1,)]
    assert downstream.execute(f"SELECT id FROM {db}.tail ORDER BY 1") == [(7,), (9,)]


def filtered(config: ConsumerConfig, db: str, *events: str, **expressions: str) -> ConsumerConfig:
    """Return the configuration with filters for the table ``plain``."""
    filters = (EventRule(db, "Ignore", table_pattern="plain", events=events),) if events else ()
    rules = (ExpressionRule(schema_=db, table="plain", **expressions),) if expressions else ()
    return replace(config, filters=filters, expressions=rules)


@pytest.mark.parametrize(
    ("events", "expressions", "found"),
    [
        # A row whose update is left out is there as it was copied, or as if it was copied after the update.
        (["update"], {}, [(1, 1), (2, 20), (3, 3), (40, 4), (5, 5)]),
        (["insert"], {}, []),
        (["delete"], {}, [(1, 10), (2, 20), (3, 3), (40, 4), (50, 5), (6, 6)]),
        ([], {"insert_value_expr": "n >= 10"}, [(1, 10), (3, 3), (40, 4), (50, 5)]),
        ([], {"update_new_value_expr": "n >= 10"}, [(1, 1), (2, 20), (3, 3), (40, 4), (50, 5)]),
        ([], {"update_old_value_expr": "n > 4"}, [(1, 10), (2, 20), (3, 3), (40, 4), (5, 5)]),
    ],
    ids=str,
)
def test_filters_leave_out_changes_and_no_rows(
    downstream: Database,
    db: str,
    config: ConsumerConfig,
    events: list[str],
    expressions: dict[str, str],
    found: list[tuple[int, int]],
) -> None:
    structure = plain(db)
    log = MemoryLog()
    begin(log, db, "plain")
    put(log, structure, row(1, 1), row(5, 5), row(6, 6))
    # Rows 2 and 4 are not copied yet, and are left out of the next chunk.
    log.add(
        update(structure, row(1, 1), row(1, 10)),
        update(structure, row(2, 2), row(2, 20)),
        update(structure, row(4, 4), row(40, 4)),
        update(structure, row(5, 5), row(50, 5)),
        delete(structure, row(6, 6)),
        incomplete={"plain"},
    )
    put(log, structure, row(3, 3))
    end(log, db, "plain")
    apply_log(filtered(config, db, *events, **expressions), log)
    rows = downstream.execute(f"SELECT id, n FROM {db}.plain")
    assert sorted(rows) == sorted(found)


def test_rows_that_are_there_are_written_again_and_unique_values_of_others_stop_the_copy(
    downstream: Database, db: str, config: ConsumerConfig
) -> None:
    log = MemoryLog()
    structure = plain(db, "uniques")
    begin(log, db, "uniques")
    put(log, structure, row(1, 1), row(2, 2))
    put(log, structure, row(2, 2), row(3, 3), row(4, 4), row(5, 5))
    apply_log(replace(config, statement_rows=1, worker_count=1), log)
    there = [(number, number) for number in range(1, 6)]
    assert downstream.execute(f"SELECT id, n FROM {db}.uniques ORDER BY 1") == there
    downstream.execute(f"INSERT INTO {db}.uniques VALUES (9, 7, NULL)")
    put(log, structure, row(5, 5), row(6, 6), row(7, 7))
    with pytest.raises(DownstreamError, match=r"TR604: .*1062 Duplicate entry '7' for key") as refused:
        apply_log(config, log)
    # Another connection may have written the sixth row.
    assert "some rows of the copy may be written" in refused.value.advice
    found = downstream.execute(f"SELECT id, n FROM {db}.uniques")
    assert {*there, (9, 7)} <= set(found) <= {*there, (6, 6), (9, 7)}
    downstream.execute(f"DELETE FROM {db}.uniques WHERE id = 9")
    apply_log(config, log)
    assert downstream.execute(f"SELECT id, n FROM {db}.uniques ORDER BY 1") == [*there, (6, 6), (7, 7)]


def test_chunks_at_one_position_are_told_apart_in_tables_without_transactions(
    downstream: Database, db: str, config: ConsumerConfig
) -> None:
    log = MemoryLog(numbered=True)
    begin(log, db, "uniques", columns=f"{TABLES['uniques']} ENGINE=MyISAM")
    apply_log(config, log)
    structure = plain(db, "uniques")
    put(log, structure, row(1, 1), row(2, 2))
    put(log, structure, row(3, 3), row(4, 4))
    # Each row is written alone, and the third one is the last before the crash.
    assert apply_in_child(config, log, "nontransactional.after_row:3") == signal.SIGKILL
    assert downstream.execute(f"SELECT id FROM {db}.uniques ORDER BY 1") == [(1,), (2,), (3,)]
    apply_log(replace(config, max_batch_rows=1), log)
    assert downstream.execute(f"SELECT id FROM {db}.uniques ORDER BY 1") == [(1,), (2,), (3,), (4,)]


def test_images_that_lack_columns_change_only_rows_that_are_there(
    downstream: Database, db: str, config: ConsumerConfig
) -> None:
    whole = plain(db)
    partial = replace(whole, before_columns=("id",), after_columns=("id", "n"))
    log = MemoryLog()
    begin(log, db, "plain")
    put(log, whole, row(1, 1, "a"), row(2, 2, "b"))
    log.add(
        *(update(partial, {"id": key}, {"id": key, "n": 10 * key}) for key in (1, 3)), incomplete={"plain"}
    )
    log.add(update(partial, {"id": 2}, {"id": 20, "n": 20}), incomplete={"plain"})
    put(log, whole, row(3, 30, "c"))
    apply_log(config, log)
    every = [(1, 10, "a"), (3, 30, "c"), (20, 20, "b")]
    assert downstream.execute(f"SELECT id, n, s FROM {db}.plain ORDER BY 1") == every
    # The rest of this row is not known, and the copy may be past its new key.
    log.add(update(partial, {"id": 4}, {"id": 0, "n": 4}), incomplete={"plain"})
    with pytest.raises(EventRefused, match="TR666: a copy of the table runs"):
        apply_log(config, log)


def test_a_skipped_start_of_a_copy_needs_an_empty_table_as_well(
    downstream: Database, db: str, config: ConsumerConfig
) -> None:
    log = MemoryLog()
    begin(log, db, "plain", columns="(id INT PRIMARY KEY, CHECK (nothing > 0))")
    put(log, plain(db), row(1))
    with pytest.raises(EventRefused, match="TR620") as refused:
        apply_log(config, log)
    leave_out(config, refused.value)
    create_tables(downstream, db, "plain")
    downstream.execute(f"INSERT INTO {db}.plain VALUES (7, 7, 'ours')")
    with pytest.raises(DownstreamError, match=r"TR664: .*it has rows already"):
        apply_log(config, log)
    downstream.execute(f"TRUNCATE TABLE {db}.plain")
    apply_log(config, log)
    assert downstream.execute(f"SELECT id FROM {db}.plain") == [(1,)]
    assert left_out(downstream, db) == ["skipped"]


def test_a_large_slice_of_a_table_that_is_altered_meanwhile_is_divided(
    downstream: Database, db: str, config: ConsumerConfig
) -> None:
    log = MemoryLog()
    begin(log, db, "plain")
    apply_log(config, log)
    structure = plain(db)
    for number in range(4):
        put(log, structure, row(2 * number), row(2 * number + 1))
    limited = replace(config, max_batch_rows=2)
    with contextlib.closing(open_sink(limited, cast(LogReader, log))) as sink:
        sink.resume(log)
        [slice_] = cut(log.logged[1:], limited.max_batch_rows, limited.max_batch_bytes, COPIED_TIMES)
        prepared = sink.plan(slice_, log.known)()
        # A column that only the downstream has: its rows are written like changes from now on.
        downstream.execute(f"ALTER TABLE {db}.plain ADD COLUMN ours INT DEFAULT 5")
        sink.apply(prepared)
        assert sink.position.epoch == slice_.last.epoch
    assert downstream.execute(f"SELECT id, ours FROM {db}.plain ORDER BY id") == [(n, 5) for n in range(8)]
