"""Statements that create objects, and what views use."""

from __future__ import annotations

import pytest

from producer.copy.objects import (
    Collations,
    ObjectReader,
    _create_database,
    _replacing,
    names_in_query,
)
from schemas.errors import UpstreamError
from schemas.sql.modes import sql_mode_bits, sql_mode_text
from schemas.tables import TableFilter
from schemas.wire.epoch import SchemaChanged, TableChanged

_COLLATIONS = Collations(
    ids={"utf8mb4_general_ci": 45, "utf8mb4_bin": 46, "latin1_swedish_ci": 8, "utf8mb4_0900_ai_ci": 255},
    clients={"utf8mb4": 255, "latin1": 8},
    server=46,
    utf8mb4=255,
)


def _reader(flavor, *, folds=False) -> ObjectReader:
    return ObjectReader(None, flavor, TableFilter(folds=folds), _COLLATIONS)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("select 1 AS `1`", set()),
        ("select `d`.`t`.`a` AS `a` from `d`.`t`", {("d", "t")}),
        (
            "select `x`.`a` AS `a` from (`d`.`v` `x` join `e``é`.`from` on(`x`.`a` = `e``é`.`from`.`a`))",
            {("d", "v"), ("e`é", "from")},
        ),
        (
            "select `d`.`f`(`d`.`t`.`a`) AS `f`, (select max(`d`.`u`.`b`) from `d`.`u`) AS `m` from `d`.`t`",
            {("d", "t"), ("d", "u"), ("d", "f")},
        ),
        (
            "with c as (select 1 AS `a`)select `c`.`a` AS `a` from `c` union select 2 from `d`.`w`",
            {("d", "w")},
        ),
        ("select nextval(`d`.`s`) AS `n`, 'from `d`.`x`' AS `t`", {("d", "s")}),
        ("select `d`.`v`.`a`, `v`.`w` from `d`.`v`, `d`.`t` )", {("d", "v")}),
        ("select 'no end", set()),
    ],
)
def test_names_in_a_view_of_mariadb(query, names) -> None:
    """Tables, views, sequences and functions; known views if the query is not understood."""
    assert names_in_query(query, "d", "mariadb", {("d", "v"), ("d", "w")}) == names


def test_a_statement_of_a_program() -> None:
    """It has what the creator's session would have logged."""
    text = 'CREATE DEFINER="a"@"%" FUNCTION "F""`"() RETURNS INT RETURN 1'
    session = {
        "client": "latin1",
        "collation": "utf8mb4_bin",
        "time_zone": "+05:30",
    }
    assert _reader("mysql")._statement(
        text, "d`b", sql_mode="ANSI_QUOTES", timestamp=7, **session
    ) == SchemaChanged(
        statement=text,
        default_db="d`b",
        kind="CREATE FUNCTION",
        tables=(),
        source_flavor="mysql",
        timestamp=7,
        sql_mode=4,
        charset_client=8,
        collation_connection=46,
        collation_server=46,
        time_zone="+05:30",
        explicit_defaults_for_timestamp=True,
        settings=(("default_collation_for_utf8mb4", "255"),),
    )


def test_a_statement_of_a_view() -> None:
    """Its name is in lower case if the upstream's names are, as in a statement of the binlog."""
    found = _reader("mariadb", folds=True)._statement(
        "CREATE VIEW `D`.`V` AS select `D`.`T`.`A` from `D`.`T`", "D"
    )
    assert (found.statement, found.default_db) == (
        "CREATE VIEW `d`.`v` AS select `D`.`T`.`A` from `D`.`T`",
        "d",
    )
    assert (found.kind, found.tables) == ("CREATE VIEW", (TableChanged("d", "v"),))
    assert found.explicit_defaults_for_timestamp is True


def test_a_statement_that_is_not_understood() -> None:
    """It is refused, with its text."""
    with pytest.raises(UpstreamError, match="CREATE SURPRISE `x`") as raised:
        _reader("mysql")._statement("CREATE SURPRISE `x`", "d")
    assert raised.value.code == "TR212"


@pytest.mark.parametrize(
    ("flavor", "option", "end"),
    [
        ("mysql", "NO", ""),
        ("mysql", "YES", " /*!80016 ENCRYPTION='Y' */"),
        ("mariadb", "", ""),
        ("mariadb", "it's \\ \"é", " /*M! COMMENT 'it''s \\\\ \"é' */"),
    ],
)
def test_databases(flavor, option, end) -> None:
    """An option that the other kind of server refuses is in a comment."""
    text = _create_database(flavor, "a`b", "utf8mb4", "utf8mb4_bin", option)
    assert text == f"CREATE DATABASE IF NOT EXISTS `a``b` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin{end}"
    found = _reader(flavor)._statement(text, "")
    assert (found.kind, found.statement, found.default_db) == ("CREATE DATABASE", text, "")


@pytest.mark.parametrize(
    ("text", "replacing"),
    [
        ("CREATE DEFINER=`a`@`%` VIEW `CREATE ` AS", "CREATE OR REPLACE DEFINER=`a`@`%` VIEW `CREATE ` AS"),
        ("CREATE OR REPLACE VIEW `v` AS", "CREATE OR REPLACE VIEW `v` AS"),
    ],
)
def test_replacing(text, replacing) -> None:
    """Only the first word gets it, and only once."""
    assert _replacing(text) == replacing


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_sql_modes(flavor) -> None:
    """The text of a server's sql_mode and back; unknown modes are refused."""
    assert sql_mode_bits("", flavor) == 0
    text = "PIPES_AS_CONCAT,ANSI_QUOTES,IGNORE_SPACE,ANSI,NO_BACKSLASH_ESCAPES,STRICT_TRANS_TABLES"
    assert sql_mode_text(sql_mode_bits(text, flavor), flavor, flavor) == text
    with pytest.raises(ValueError, match="SURPRISE"):
        sql_mode_bits("ANSI,SURPRISE", flavor)


def test_modes_of_one_server_only() -> None:
    """They are left out on the other one."""
    bits = sql_mode_bits("ORACLE,ANSI_QUOTES,SIMULTANEOUS_ASSIGNMENT", "mariadb")
    assert sql_mode_text(bits, "mariadb", "mysql") == "ANSI_QUOTES"
