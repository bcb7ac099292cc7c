"""Classifying statements: the golden files, and properties that hold for any text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.ddl.classify import classify
from schemas.ddl.kinds import IGNORED_REASONS, Category
from schemas.ddl.lexer import FLAVORS, Flavor, Lexer, dialect_of
from schemas.ddl.objects import without_start_transaction
from tests.support.golden.ddl_golden import Case, cases, render

ALL = cases()
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)


@pytest.mark.parametrize("case", ALL, ids=lambda c: f"{c.flavor}-{c.place}")
def test_golden(case: Case) -> None:
    assert render(case.classify()) == case.expected


def test_there_are_enough_golden_statements() -> None:
    assert len({case.statement for case in ALL}) >= 120


def test_whatever_is_not_carried_over_has_a_reason() -> None:
    for case in ALL:
        statement = case.classify()
        if statement.category in (Category.IGNORED, Category.UNKNOWN):
            assert statement.reason
    assert all(IGNORED_REASONS.values())


@given(st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=4), st.booleans(), st.sampled_from(FLAVORS))
def test_any_name_survives_its_quotes(names: list[tuple[str, str]], ansi: bool, flavor: Flavor) -> None:
    quote = '"' if ansi else "`"

    def quoted(name: str) -> str:
        return quote + name.replace(quote, quote * 2) + quote

    listed = ", ".join(f"{quoted(db)}.{quoted(table)}" for db, table in names)
    statement = classify(f"DROP TABLE {listed}", "", flavor, sql_mode=4 if ansi else 0)
    assert [(t.db, t.table) for t in statement.tables] == names


@given(st.text(max_size=200), st.sampled_from(FLAVORS))
def test_any_text_is_classified_without_an_exception(text: str, flavor: Flavor) -> None:
    classify(text, "app", flavor)


WORDS = [*"(),'`\";#.=\n", "/*", "*/", "/*!", "--", "ALTER", "DROP", "CREATE", "TABLE", "RENAME", "TO", "t"]


@given(st.lists(st.sampled_from(WORDS)))
def test_any_heap_of_words_is_classified_without_an_exception(words: list[str]) -> None:
    classify(" ".join(words), "app", "mysql")


def test_executable_comments_are_read_as_by_the_newest_server() -> None:
    statement = "ALTER TABLE t /*!80100 RENAME TO */ u"
    assert classify(statement, "app", "mysql").tables[0].renamed_to == "u"
    assert classify("DROP TABLE a /*!100000 , b */", "app", "mysql").tables == (("app", "a", None, None),)
    # MariaDB leaves to MySQL what is marked 50700 to 99999.
    assert len(classify("DROP TABLE a /*!80100 , b */", "app", "mariadb").tables) == 1
    assert len(classify("DROP TABLE a /*M!80100 , b */", "app", "mariadb").tables) == 2
    assert len(classify("DROP TABLE a /*!50600 , b */", "app", "mariadb").tables) == 2
    assert len(classify("DROP TABLE a /*!100400 , b */", "app", "mariadb").tables) == 2


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("CREATE TABLE t (a INT) START TRANSACTION", "CREATE TABLE t (a INT)"),
        ("CREATE TABLE t (a INT) START TRANSACTION ENGINE=InnoDB", "CREATE TABLE t (a INT) ENGINE=InnoDB"),
        (
            "CREATE TABLE t (a INT) ENGINE=InnoDB start /* x */ transaction;",
            "CREATE TABLE t (a INT) ENGINE=InnoDB;",
        ),
        (
            "CREATE TABLE t (a INT COMMENT 'START TRANSACTION')",
            "CREATE TABLE t (a INT COMMENT 'START TRANSACTION')",
        ),
    ],
)
def test_start_transaction_is_cut_out(statement: str, expected: str) -> None:
    assert without_start_transaction(statement) == expected


def test_comments_are_resolved() -> None:
    text = "CREATE /* a */ TABLE t (a INT /*!80023 INVISIBLE */, b INT /*M! x */) -- end\n# more"
    resolved = [token.text for token in Lexer(text, dialect_of("mysql"))]
    assert resolved == ["CREATE", "TABLE", "t", "(", "a", "INT", "INVISIBLE", ",", "b", "INT", ")"]
    assert "INVISIBLE" not in [token.text for token in Lexer(text, dialect_of("mariadb"))]
    assert [token.text for token in Lexer("SELECT '/* x */'", dialect_of("mysql"))] == ["SELECT", "'/* x */'"]


def test_statements_of_megabytes_are_classified() -> None:
    """A quadratic step anywhere would take minutes."""
    body = ", ".join(f"c{i} VARCHAR(20) DEFAULT 'it''s \\' x' COMMENT '/* x */'" for i in range(20_000))
    assert classify(f"CREATE TABLE t ({body})", "app", "mysql").category is Category.DDL
    assert classify(f"CREATE TABLE t ({body}", "app", "mysql").category is Category.UNKNOWN
    assert classify("INSERT INTO t VALUES ('" + "x" * 50_000_000, "app", "mysql").category is Category.DML
    assert classify("DROP TABLE " + "(" * 1_000_000, "app", "mysql").category is Category.UNKNOWN
    assert (
        classify("CREATE TABLE t (a INT DEFAULT '" + "\\" * 1_000_000, "app", "mysql").category
        is Category.UNKNOWN
    )
