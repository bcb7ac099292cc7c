"""What runs in an event's place: which statements may run a second time, over what they have done."""

from __future__ import annotations

import pytest

from schemas.ddl.lexer import FLAVORS
from schemas.errors import EventId
from schemas.structure import TableStructure
from spark_consumer.apply.prepared import PreparedRows, Writes, apply_directives
from spark_consumer.apply.tables.error_log import Directive
from spark_consumer.epochs.slices import LoggedEpoch, Slice
from spark_consumer.plan.plan import ApplyMode, TablePlan
from spark_consumer.plan.refusal import Event
from spark_consumer.plan.replacement import read_repeatable
from spark_consumer.plan.statements import Limits
from spark_consumer.rows.ordered import OrderedRow, statements
from tests.support.epochs.fake_topic import integer
from tests.support.epochs.records import epoch_record


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE d.t SET v = 5, `s` = 'it''s', t.n = -1.5, x = NULL WHERE id = 4",
        "update `d`.`t` set v=0x0f, b=X'00', c=_latin1'a', d=DATE'2020-01-01'"
        " where (id,v) in ((1,2),(3,4)) or `v` is null",
        r"UPDATE d.t SET s = 'a\' WHERE s = '\' AND v BETWEEN 1 AND 2 AND NOT (v <=> 3) -- done",
        "DELETE FROM d.t WHERE id IN (1, 2) AND s LIKE 'x%'",
        "DELETE /* all */ FROM d.t WHERE v * 2 > 5 - id;",
    ],
)
@pytest.mark.parametrize("flavor", FLAVORS)
def test_what_sets_or_removes_rows_that_it_names_runs_as_it_is(statement: str, flavor: str) -> None:
    found = read_repeatable(statement, flavor)  # type: ignore[arg-type]
    assert found is not None
    assert (found.sql, found.rows, found.table[:2]) == (statement, None, ("d", "t"))


def test_an_insert_becomes_replace() -> None:
    found = read_repeatable(
        "/* INSERT */ insert into d.t (Id, s, v) values (1, 'insert', NULL), (2, NULL, 3);", "mysql"
    )
    assert found is not None
    assert found.sql == "/* INSERT */ REPLACE into d.t (Id, s, v) values (1, 'insert', NULL), (2, NULL, 3);"
    assert found.given(["a", "b", "c"]) == {"id"}
    found = read_repeatable("REPLACE d.t VALUES (1, 2)", "mariadb")
    assert found is not None
    assert (found.sql, found.given(["A", "b"]), found.given(["a"])) == (
        "REPLACE d.t VALUES (1, 2)",
        {"a", "b"},
        set(),
    )


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE d.t SET v = v + 1 WHERE id = 4",
        "UPDATE d.t SET v = w WHERE id = 4",
        "UPDATE d.t SET v = 1 + 1 WHERE id = 4",
        "UPDATE d.t SET v = NOW() WHERE id = 4",
        "UPDATE d.t SET v = CURRENT_TIMESTAMP WHERE id = 4",
        "UPDATE d.t SET v = DEFAULT WHERE id = 4",
        "UPDATE d.t SET v = @v WHERE id = 4",
        "UPDATE d.t SET v = 5",
        "UPDATE d.t SET v = 5 WHERE id = 4 LIMIT 1",
        "UPDATE d.t SET v = 5 WHERE id = 4 ORDER BY id",
        "UPDATE d.t SET v = 5 WHERE id = (SELECT 1)",
        "UPDATE d.t SET v = 5 WHERE id = RAND()",
        "UPDATE d.t SET v = 5 WHERE id = `f`(1)",
        "UPDATE d.t SET v = 5 WHERE id = @x",
        "UPDATE d.t SET v = 5 WHERE at < CURRENT_DATE",
        "UPDATE d.t, d.u SET t.v = 5 WHERE t.id = u.id",
        "UPDATE IGNORE d.t SET v = 5 WHERE id = 4",
        "UPDATE t SET v = 5 WHERE id = 4",
        "DELETE FROM d.t",
        "DELETE FROM d.t WHERE id = 4 LIMIT 1",
        "DELETE d.t FROM d.t JOIN d.u WHERE t.id = 4",
        "INSERT INTO d.t SELECT 1",
        "INSERT INTO d.t (a) VALUES (1) ON DUPLICATE KEY UPDATE a = a + 1",
        "INSERT INTO d.t (a) VALUES (UUID())",
        "INSERT INTO d.t (a) VALUES (1, DEFAULT)",
        "INSERT INTO d.t SET a = 1",
        "INSERT IGNORE INTO d.t (a) VALUES (1)",
        "INSERT INTO d.t (a) VALUES (1); DELETE FROM d.t WHERE a = 1",
        "WITH x AS (SELECT 1) DELETE FROM d.t WHERE id = 1",
        "UPDATE d.t SET s = 'a",
        "",
    ],
)
def test_what_may_do_something_else_the_second_time_is_not_repeated(statement: str) -> None:
    assert read_repeatable(statement, "mysql") is None


def test_what_runs_in_the_place_of_a_delete_removes_nothing_of_its_own() -> None:
    """The event would have taken along what hangs on its row."""
    structure = TableStructure("d", "t", (integer("id"),), ("id",))
    table = TablePlan(b"", structure, ApplyMode.ORDERED, ("d", "t"), ("id",), cascades=True)
    row = OrderedRow(table, 7, 3, 0, ord("d"), b"`id`=1", None, None)
    [made] = statements([row], Limits(2_000))
    assert made.cascade_from == b"`id`=1"
    event = Event(7, 3, "g", 5, "`id`=1", "f", 4, "r")
    slice_ = Slice((LoggedEpoch(epoch_record(7, rows=4), 7),))
    prepared = PreparedRows(slice_, Writes(ordered=(made,)), events={EventId(7, 3): event})
    decision = Directive(1, 7, 3, "g", 5, ("UPDATE d.t SET id = 2 WHERE id = 1",))
    [instead] = apply_directives(prepared, {EventId(7, 3): decision}, "mysql").writes.ordered
    assert (instead.sql, instead.cascade_from, instead.is_operators) == (
        decision.statements[0].encode(),
        None,
        True,
    )
