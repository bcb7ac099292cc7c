"""The row pipeline, rule by rule: the golden files, and laws of its parts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.ddl.cursor import TableName
from schemas.ddl.kinds import Category
from schemas.ddl.names import CannotRename, rename
from schemas.errors import ConfigError, DownstreamError
from schemas.tables import TableFilter
from schemas.wire.epoch import SchemaChanged, TableChanged
from spark_consumer.apply.planner import Refusals, SafeMode
from spark_consumer.ddl.translate import DdlRules
from spark_consumer.rules.event_filter import EVENTS, EventFilter, EventRule
from spark_consumer.rules.route import Route, Router
from spark_consumer.rules.rules import Rules
from tests.support.golden import ddl_golden
from tests.support.golden.pipeline_golden import Case, cases


@pytest.mark.parametrize("case", cases(), ids=lambda c: f"{c.place} {c.title}")
def test_golden(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.artifacts.spark.spark_jars", tuple)
    monkeypatch.setattr("tailrace.artifacts.spark.class_archive", lambda: None)
    assert case.run(tmp_path) == case.expected


@pytest.mark.parametrize(
    ("rules", "may", "may_not"),
    [
        (Rules(), ["shop.t", "other.t"], ["mysql.user", "tailrace.relay_log_info"]),
        (Rules(TableFilter(["shop.*"], ["shop.log"])), ["shop.t"], ["shop.log", "other.t"]),
        (
            Rules(TableFilter(["shop.*"]), router=Router((Route("shop", "copy"),))),
            ["copy.t"],
            ["shop.t", "other.t"],
        ),
        (
            Rules(
                TableFilter(["s?.*"], ["s1.own"]),
                router=Router((Route("s*", "all", "o*", "one"), Route("s1", "x", "own"))),
            ),
            ["all.one", "s1.t", "s2.t"],
            ["all.two", "s1.orders", "x.own", "x.t"],
        ),
        (
            Rules(events=EventFilter((EventRule("shop", "Ignore", "log", ("all dml",)),))),
            ["shop.t"],
            ["shop.log"],
        ),
        (Rules(TableFilter(["Shop.*"]), router=Router((), ())), ["shop.t"], ["other.t"]),
    ],
)
def test_the_downstreams_tables_that_rows_may_go_into(
    rules: Rules, may: list[str], may_not: list[str]
) -> None:
    for name in (*may, *may_not):
        db, table = name.split(".")
        assert rules.may_write_to(db, table) is (name in may), name


def _moved(db: str, table: str | None) -> tuple[str, str | None]:
    return f"new_{db}", None if table is None else f"new_{table}"


@pytest.mark.parametrize(
    "case",
    [c for c in ddl_golden.cases() if c.classify().category is Category.DDL],
    ids=lambda c: f"{c.flavor}-{c.place}",
)
def test_a_renamed_ddl_names_the_new_tables_and_no_old_one(case: ddl_golden.Case) -> None:
    before = case.classify()
    # The tables of a duality view go by no other name in it.
    if "CREATE JSON" in case.statement or ("other. */ t" in case.statement and case.flavor == "mariadb"):
        with pytest.raises(CannotRename):
            rename(case.statement, case.default_db, case.flavor, _moved, sql_mode=case.sql_mode)
        return
    renamed = rename(case.statement, case.default_db, case.flavor, _moved, sql_mode=case.sql_mode)
    again = ddl_golden.Case(case.place, case.flavor, renamed.statement, "", (), case.options).classify()
    assert again.kind == before.kind
    assert again.tables == tuple(
        TableName(
            f"new_{t.db}",
            f"new_{t.table}",
            t.renamed_to_db and f"new_{t.renamed_to_db}",
            t.renamed_to and f"new_{t.renamed_to}",
        )
        for t in before.tables
    )
    if before.database is not None and before.references:
        assert again.database == f"new_{before.database}"


@pytest.mark.parametrize("case", ddl_golden.cases(), ids=lambda c: f"{c.flavor}-{c.place}")
def test_a_ddl_none_of_whose_names_change_stays_as_it_is(case: ddl_golden.Case) -> None:
    if case.classify().category is Category.DDL:
        same = rename(
            case.statement, case.default_db, case.flavor, lambda db, t: (db, t), sql_mode=case.sql_mode
        )
        assert same.statement == case.statement


NAMES = st.sampled_from(["a", "ab", "b"])
PATTERNS = st.sampled_from(["a", "ab", "b", "*", "a*", "?"])
ROUTES = st.builds(Route, PATTERNS, NAMES, st.none() | PATTERNS, st.none()) | st.builds(
    Route, PATTERNS, NAMES, PATTERNS, NAMES
)


@given(st.lists(ROUTES, max_size=3), NAMES, NAMES)
def test_a_table_is_dropped_only_if_it_is_alone(routes: list[Route], db: str, table: str) -> None:
    """Whatever the routes, DROP never removes the rows of a second upstream table; one alone can be dropped."""
    router = Router(tuple(routes))
    names = [(d, t) for d in ("a", "ab", "b") for t in ("a", "ab", "b")]
    statement = f"DROP TABLE {db}.{table}"
    ddl = SchemaChanged(statement, "", "DROP TABLE", (TableChanged(db, table),), "mysql", 0)
    try:
        together = [name for name in names if router.table(*name) == router.table(db, table)]
        carried = DdlRules(TableFilter(), EventFilter(), router).translate(ddl, lambda: names)
    except ConfigError:
        return
    except DownstreamError as error:
        patterns = "".join(r.schema_pattern + (r.table_pattern or "") for r in routes)
        shared = len(together) > 1 or "*" in patterns or "?" in patterns
        # Two rules made for one target are a merge, also while one of their tables is not there.
        assert shared or len({(r.target_schema, r.target_table) for r in routes}) < len(routes), error  # noqa: PT017
        return
    assert together == [(db, table)]
    assert carried is not None


@given(st.lists(st.sampled_from(EVENTS), max_size=4), st.sampled_from(["Do", "Ignore"]))
def test_do_and_ignore_are_opposites(events: list[str], action: str) -> None:
    rules = [EventRule("s", chosen, None, tuple(events)) for chosen in ("Do", "Ignore")]
    for event in ("insert", "update", "delete", "drop table", "create index"):
        do, ignore = (EventFilter((rule,)).drops("s", "t", event) for rule in rules)
        assert do != ignore
    assert not EventFilter((rules[0],)).drops("other", "t", "insert")


def test_safe_mode_is_a_window_or_always() -> None:
    assert not SafeMode(False, 0, now=100).active(100)
    assert SafeMode(False, 5, now=100).active(104.9)
    assert not SafeMode(False, 5, now=100).active(105)
    assert SafeMode(True, 0, now=100).active(1e9)


def test_a_refusal_holds_for_a_while_and_the_next_one_for_longer() -> None:
    refusals, a, b = Refusals(), ("d", "a"), ("d", "b")
    assert not refusals.hold(a, 0)
    refusals.add({a}, 100)
    assert refusals.hold(a, 699.9)
    assert not refusals.hold(a, 700)
    assert not refusals.hold(b, 100)
    refusals.add({a, b}, 1000)
    assert (refusals.hold(a, 2199), refusals.hold(a, 2200)) == (True, False)
    assert (refusals.hold(b, 1599), refusals.hold(b, 1600)) == (True, False)
    for _ in range(20):
        refusals.add({a}, 5000)
    assert (refusals.hold(a, 91_399), refusals.hold(a, 91_400)) == (True, False)
