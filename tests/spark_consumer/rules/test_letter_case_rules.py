"""Names in lower case: in the text of DDL, in rules, and where two of them fall together."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.access.server_url import ServerUrl
from schemas.ddl.names import CannotRename, in_lower_case
from schemas.errors import DownstreamError
from schemas.letter_case import lowered
from schemas.tables import TableFilter
from spark_consumer.epochs import letter_case
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.rules.event_filter import EventRule
from spark_consumer.rules.expressions.filter import ExpressionRule
from spark_consumer.rules.route import Route, Router


def test_letters_that_python_lowers_in_another_way() -> None:
    assert lowered("ÄΣ ΑΣ İẞ\U00010400") == "äσ ασ iẞ\U00010400"


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("CREATE TABLE Foo (Id INT)", "CREATE TABLE `shop`.`foo` (Id INT)"),
        ("create table foo (Id INT)", "create table foo (Id INT)"),
        (
            "ALTER TABLE `X`.FOO ADD FOREIGN KEY (A) REFERENCES Bar (B), RENAME TO Y.Baz",
            "ALTER TABLE `x`.`foo` ADD FOREIGN KEY (A) REFERENCES `x`.`bar` (B), RENAME TO `y`.`baz`",
        ),
        ("DROP DATABASE Shop", "DROP DATABASE `shop`"),
        ("RENAME TABLE A TO b, c TO D", "RENAME TABLE `shop`.`a` TO b, c TO `shop`.`d`"),
        ("CREATE VIEW V AS SELECT A FROM Foo", "CREATE VIEW `shop`.`v` AS SELECT A FROM Foo"),
        (
            "CREATE FUNCTION Shop.Fn() RETURNS INT RETURN 1",
            "CREATE FUNCTION `shop`.`Fn`() RETURNS INT RETURN 1",
        ),
        (
            "/*!50003 CREATE*/ /*!50020 DEFINER=`A`@`%`*/ /*!50003 FUNCTION Shop.Fn() RETURNS INT RETURN 'a' */",
            "/*!50003 CREATE*/ /*!50020 DEFINER=`A`@`%`*/ /*!50003 FUNCTION `shop`.`Fn`() RETURNS INT RETURN 'a' */",
        ),
        (
            "CREATE LIBRARY Shop.Lib LANGUAGE JAVASCRIPT AS $$ // it's \"no SQL $$",
            "CREATE LIBRARY `shop`.`Lib` LANGUAGE JAVASCRIPT AS $$ // it's \"no SQL $$",
        ),
        ("DROP USER A", "DROP USER A"),
        ("INSERT INTO Foo VALUES (1)", "INSERT INTO Foo VALUES (1)"),
    ],
)
def test_ddl_in_lower_case(statement: str, expected: str) -> None:
    found = in_lower_case(statement, "Shop", "mysql")
    assert (found.statement, found.default_db) == (expected, "shop")


def test_a_comment_inside_of_a_name_that_changes() -> None:
    with pytest.raises(CannotRename):
        in_lower_case("DROP TABLE A./* */B", "Shop", "mysql")


def test_rules_in_lower_case() -> None:
    config = ConsumerConfig(
        "",
        "p",
        ServerUrl("h"),
        checkpoint_dir=Path(),
        include=("Shop.*",),
        exclude=("SHOP.Log_*",),
        filters=(
            EventRule("Shop", "Ignore", "LOG", ("delete",)),
            EventRule("Shop", "Ignore", None, ("all",)),
        ),
        routes=(Route("SHOP", "Target", "Orders_*", "Orders"),),
        expressions=(ExpressionRule("Shop", "T", delete_value_expr="A = 1"),),
    )
    low = letter_case.in_lower_case(config)
    assert (low.include, low.exclude) == (("shop.*",), ("shop.log_*",))
    assert [(f.schema_pattern, f.table_pattern) for f in low.filters] == [("shop", "log"), ("shop", None)]
    assert low.routes == (Route("shop", "Target", "orders_*", "Orders"),)
    assert (low.expressions[0].schema_, low.expressions[0].table) == ("shop", "t")
    assert low.expressions[0].delete_value_expr == "A = 1"
    assert TableFilter(("Shop.T*",), folds=True).allows("shop", "table")
    assert not TableFilter(("Shop.T*",)).allows("shop", "table")


def test_two_tables_that_are_one_downstream() -> None:
    with pytest.raises(DownstreamError, match=r"TR618.*shop\.Foo and shop\.foo"):
        Router((), (("shop", "Foo"), ("shop", "foo")))
    router = Router((), (("shop", "Foo"),))
    assert router.table("shop", "Foo") == ("shop", "foo")
    assert router.database("Shop") == "shop"
    with pytest.raises(DownstreamError, match="TR618"):
        router.table("Shop", "foo")
    assert Router(()).table("shop", "Foo") == ("shop", "Foo")


def test_routes_onto_one_table_in_two_spellings_merge_there() -> None:
    kept = (Route("a", "All", "Orders_*"), Route("d", "ALL", "Orders_*"))
    named = (Route("b", "All", "t", "ORDERS"), Route("c", "ALL", "t", "orders"))
    router = Router((*kept, *named), ())
    assert router.table("b", "t") == router.table("c", "t") == ("all", "orders")
    assert router.merges("all", "orders")
    assert router.merges("all", "orders_1")
    assert not Router(kept).merges("all", "orders_1")
