"""The tables in the queries of views: found and renamed, or refused; on servers in ``test_merged_views.py``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.ddl.lexer import FLAVORS, Flavor
from schemas.ddl.names import CannotRename, rename
from tests.support.statements.view_queries import QUERIES

_ORACLE, _ANSI_QUOTES = 0x200, 0x4
_NAMES = {("src", "t"): ("dst", "t2"), ("src", "q"): ("dst", "q2"), ("src", "a"): ("other", "a")}


def new_name(db: str, table: str | None) -> tuple[str, str | None]:
    """What is in ``src`` is in ``dst``, some of it under another name, and ``a`` elsewhere."""
    other = "dst" if db == "src" else db
    return (other, None) if table is None else _NAMES.get((db, table), (other, table))


def renamed(query: str, flavor: Flavor = "mysql", sql_mode: int = 0) -> str:
    statement = rename(f"CREATE VIEW keep.v AS {query}", "src", flavor, new_name, sql_mode=sql_mode).statement
    return statement.removeprefix("CREATE VIEW keep.v AS ")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT MAX(v) s FROM t", "SELECT MAX(v) s FROM `dst`.`t2` AS `t`"),
        ("SELECT MAX(v) AS t FROM u", "SELECT MAX(v) AS t FROM `dst`.`u`"),
        ("SELECT t.v FROM src.t u, `src`.t", "SELECT t.v FROM `dst`.`t2` u, `dst`.`t2` AS `t`"),
        (
            "SELECT src.t.v, src.x.v FROM t, u x",
            "SELECT `dst`.t.v, `dst`.x.v FROM `dst`.`t2` AS `t`, `dst`.`u` x",
        ),
        ("SELECT src.a.v, src.u.* FROM a, u", "SELECT `other`.a.v, `dst`.u.* FROM `other`.`a`, `dst`.`u`"),
        ("SELECT t.v FROM t PARTITION (p)", "SELECT t.v FROM `dst`.`t2` PARTITION (p) AS `t`"),
        ("SELECT TRIM(t FROM u) FROM keep.t t", "SELECT TRIM(t FROM u) FROM keep.t t"),
        ("SELECT 1 FROM dual, `dual`", "SELECT 1 FROM dual, `dst`.`dual`"),
        (
            "WITH t AS (SELECT 1) SELECT * FROM t, src.t x",
            "WITH t AS (SELECT 1) SELECT * FROM t, `dst`.`t2` x",
        ),
        ("SELECT @t.v, @@src.t FROM keep.w", "SELECT @t.v, @@src.t FROM keep.w"),
        ("SELECT f(t) FROM keep.w", "SELECT f(t) FROM keep.w"),
    ],
)
@pytest.mark.parametrize("flavor", FLAVORS)
def test_tables_are_told_from_what_looks_like_one(query: str, expected: str, flavor: Flavor) -> None:
    assert renamed(query, flavor) == expected


def test_quotes_are_the_sessions() -> None:
    query = 'SELECT "t"."v", "from u" FROM "t", "u"'
    assert renamed(query, sql_mode=_ANSI_QUOTES) == query[:24] + " FROM `dst`.`t2` AS `t`, `dst`.`u`"
    with pytest.raises(CannotRename, match="expected a table's name"):
        renamed(query)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT src.f(v) FROM keep.w", "an object in src"),
        ("SELECT src.t.v, src.a.v FROM u", ""),
        ("SELECT src.x.v FROM a, u", "an object in src"),
        ("TABLE t", "columns with the table t"),
        ("SELECT a FROM f(1)", "expected a table, found the function f"),
        ("SELECT a FROM src./* x */t", "there is a comment inside"),
        ("SELECT a FROM (t", "parentheses do not match"),
        ("SELECT a FROM t)", "parentheses do not match"),
        ("SELECT a FROM", "'the end'"),
        ("SELECT a FROM t JOIN", "'the end'"),
        ("SELECT a FROM src.", "expected a name after a dot"),
        (
            "WITH RECURSIVE x AS (SELECT 1 FROM t), t AS (SELECT 1) SELECT 1 FROM x",
            "may be a table or a common",
        ),
        ("WITH x AS SELECT 1", "without its query"),
    ],
)
def test_what_cannot_be_told_for_sure_is_refused(query: str, reason: str) -> None:
    if not reason:
        # no such column; the server says so
        assert renamed(query) == "SELECT `dst`.t.v, `dst`.a.v FROM `dst`.`u`"
        return
    with pytest.raises(CannotRename, match=reason):
        renamed(query)


def test_what_only_mariadb_has() -> None:
    history = "SELECT h.v FROM h FOR SYSTEM_TIME AS OF NOW() WHERE h.v > 1"
    assert renamed(history, "mariadb") == history.replace("FROM h", "FROM `dst`.`h`")
    with pytest.raises(CannotRename, match="columns with the table t"):
        renamed(history.replace("h ", "t ").replace("h.v", "t.v"), "mariadb")
    assert renamed("SELECT NEXTVAL(q), NEXT VALUE FOR src.q FROM keep.w", "mariadb") == (
        "SELECT NEXTVAL(`dst`.`q2`), NEXT VALUE FOR `dst`.`q2` FROM keep.w"
    )
    assert renamed("SELECT q.nextval FROM keep.w q", "mariadb") == "SELECT q.nextval FROM keep.w q"
    with pytest.raises(CannotRename, match="may be a table or a sequence"):
        renamed("SELECT q.nextval FROM dual", "mariadb", _ORACLE)
    # Names of common table expressions are compared without cases there.
    assert (
        renamed("WITH T AS (SELECT 1) SELECT * FROM t", "mariadb") == "WITH T AS (SELECT 1) SELECT * FROM t"
    )
    assert renamed("WITH T AS (SELECT 1) SELECT * FROM t").endswith("FROM `dst`.`t2` AS `t`")


def test_the_tables_of_a_duality_view_get_no_other_names() -> None:
    view = (
        "CREATE JSON DUALITY VIEW keep.v AS SELECT JSON_DUALITY_OBJECT( WITH (INSERT) 'id': {0}.id) FROM {0}"
    )
    made = rename(view.format("u"), "src", "mysql", new_name).statement
    assert made == view.format("u").replace("FROM u", "FROM `dst`.`u`")
    with pytest.raises(CannotRename, match="columns with the table t"):
        rename(view.format("t"), "src", "mysql", new_name)


@pytest.mark.parametrize("flavor", FLAVORS)
def test_a_query_none_of_whose_names_change_stays_as_it_is(flavor: Flavor) -> None:
    for query in QUERIES[flavor]:
        statement = f"CREATE OR REPLACE VIEW v (a, b) AS {query}"
        assert rename(statement, "src", flavor, lambda db, table: (db, table)).statement == statement


WORDS = [
    *("(", ")", ",", ".", ";", "{", "}", "@", "t", "`u`", "src", "x", "'s'", "1", "/*c*/"),
    *("SELECT", "FROM", "JOIN", "AS", "WITH", "RECURSIVE", "UNION", "TABLE", "VALUES", "WHERE", "ON", "FOR"),
    *("SYSTEM_TIME", "NEXT", "VALUE", "NEXTVAL", "USE", "INDEX", "PARTITION", "CYCLE", "OJ", "LATERAL"),
    *("JSON_TABLE", "WINDOW"),
]


@given(st.lists(st.sampled_from(WORDS), max_size=25), st.sampled_from(FLAVORS))
def test_any_heap_of_words_is_renamed_or_refused(words: list[str], flavor: Flavor) -> None:
    try:
        rename(f"CREATE VIEW v AS {' '.join(words)}", "src", flavor, new_name)
    except CannotRename:
        return
