"""The table filter: patterns, exclude before include, schemas that are never replicated."""

from __future__ import annotations

import pickle

import pytest

from schemas.errors import ConfigError
from schemas.tables import NEVER_REPLICATED, TableFilter


@pytest.mark.parametrize("db", [*sorted(NEVER_REPLICATED), "INFORMATION_SCHEMA", "Performance_Schema"])
def test_server_schemas_are_out_even_if_included(db: str) -> None:
    tables = TableFilter(include=(db, "*.*"))
    assert not tables.allows(db, "t")
    assert not tables.allows_database(db)


def test_without_patterns_everything_else_is_in() -> None:
    tables = TableFilter()
    assert tables.allows("app", "t")
    assert tables.allows("Sys", "t")
    assert tables.allows_database("app")


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("app", ("app", "t"), ("app2", "t")),
        ("app.*", ("app", "t"), ("xapp", "t")),
        ("app.order?", ("app", "orders"), ("app", "order")),
        ("app.t*", ("app", "t"), ("app", "u")),
        ("shop_*.items", ("shop_1", "items"), ("shop_1", "item")),
        ("*.audit", ("any", "audit"), ("any", "audits")),
        ("app.T", ("app", "T"), ("app", "t")),
        ("app.a[1]", ("app", "a[1]"), ("app", "a1")),
        ("app.a+b$", ("app", "a+b$"), ("app", "aab$")),
        ("größe.表", ("größe", "表"), ("größe", "x")),
    ],
)
def test_patterns(pattern: str, inside: tuple[str, str], outside: tuple[str, str]) -> None:
    for tables, expected in (
        (TableFilter(include=(pattern,)), True),
        (TableFilter(exclude=(pattern,)), False),
    ):
        assert tables.allows(*inside) is expected
        assert tables.allows(*inside) is expected, "the second answer comes from the cache"
        assert tables.allows(*outside) is not expected


def test_exclude_wins() -> None:
    tables = TableFilter(include=("app.*",), exclude=("app.log_*",))
    assert tables.allows("app", "users")
    assert not tables.allows("app", "log_1")


def test_a_database_is_in_if_one_of_its_tables_may_be() -> None:
    assert TableFilter(include=("app.users",)).allows_database("app")
    assert not TableFilter(include=("app.users",)).allows_database("other")
    assert TableFilter(exclude=("app.users",)).allows_database("app")
    assert not TableFilter(exclude=("app",)).allows_database("app")
    assert not TableFilter(exclude=("a*.**",)).allows_database("app")


@pytest.mark.parametrize(
    "pattern", ["", ".", "app.", ".t", "a.b.c", "`app`.`t`", "a, b", "a.b;c.d", "app .t"]
)
def test_a_bad_pattern_is_named(pattern: str) -> None:
    with pytest.raises(ConfigError) as error:
        TableFilter(exclude=(pattern,))
    assert "tables.exclude" in error.value.message
    assert repr(pattern) in error.value.message
    assert error.value.hint


def test_a_filter_travels_to_executors() -> None:
    tables = TableFilter(include=("app",))
    assert tables.allows("app", "t")
    assert pickle.loads(pickle.dumps(tables)).allows("app", "t")
