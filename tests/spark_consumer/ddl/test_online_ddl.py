"""Online schema changes: the statements of the tools in, those of the channel out."""

from __future__ import annotations

import pytest

from schemas.errors import ConfigError
from spark_consumer.ddl.online import translate_online
from spark_consumer.ddl.online_tables import NO_TABLES
from spark_consumer.ddl.shadow_tables import body, made_by_ghost, replaces
from spark_consumer.rules.ddl_options import DdlOptions
from tests.support.golden.online_golden import ON, cases, changed, run


@pytest.mark.parametrize(
    ("title", "lines"), cases(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_golden(title: str, lines: list[str]) -> None:
    assert run(lines) == lines


def test_off_it_takes_everything_as_it_comes() -> None:
    for statement in ("CREATE TABLE _t_gho LIKE t", "RENAME TABLE t TO _t_old, _t_new TO t"):
        taken = translate_online(
            NO_TABLES, changed(statement), DdlOptions(), lambda db, table: "CREATE TABLE `t` (id int)"
        )
        assert [one.statement for one in taken.statements] == [statement]
        assert taken.tables == NO_TABLES


def test_what_is_open_when_it_is_switched_off_is_brought_to_its_end() -> None:
    tables = translate_online(
        NO_TABLES, changed("CREATE TABLE _t_gho LIKE t"), ON, lambda *_: "CREATE TABLE `t` (id int)"
    ).tables
    swap = changed("RENAME TABLE t TO _t_del, _t_gho TO t")
    taken = translate_online(tables, swap, DdlOptions(), lambda *_: None)
    assert not taken.statements
    assert taken.tables.names == {("app", "_t_del")}


@pytest.mark.parametrize("rule", ["_(.+)_(new)", "_new", "(("])
def test_a_rule_needs_one_group(rule: str) -> None:
    with pytest.raises(ConfigError, match="TR135"):
        DdlOptions(shadow_table_rules=(rule,))


def test_what_stands_in_quotes_is_no_mark_of_a_tool() -> None:
    """Anybody may write a comment on a column; a table that is left out must be the tool's."""
    head = "CREATE TABLE _t_del (a INT"
    assert made_by_ghost(f"{head}) /* gh-ost */", "mysql")
    assert made_by_ghost(f"{head}) COMMENT='ghost-cut-over-sentry'", "mysql")
    assert not made_by_ghost(f"{head} COMMENT '/* gh-ost */', b ENUM('x /*gh-ost*/'))", "mysql")
    assert not made_by_ghost(f"{head}, `/* gh-ost */` INT) -- ghost-cut-over-sentry", "mysql")
    assert not made_by_ghost(f"{head}, b INT COMMENT 'as ghost-cut-over-sentry')", "mysql")


def test_definitions_are_compared_with_what_stands_in_quotes() -> None:
    one = "CREATE TABLE `a(b` (a INT,\n b VARCHAR(9) DEFAULT 'x  y' COMMENT 'AUTO_INCREMENT=7') AUTO_INCREMENT=7"
    same = "create table t (a INT, b VARCHAR(9) DEFAULT 'x  y' COMMENT 'AUTO_INCREMENT=7') AUTO_INCREMENT = 9"
    assert body(one, "mysql") == body(same, "mysql")
    for old, new in (("x  y", "x y"), ("AUTO_INCREMENT=7'", "AUTO_INCREMENT=8'"), ("INT", "BIGINT")):
        assert body(one.replace(old, new), "mysql") != body(same, "mysql")


def test_replacing_is_told_by_words_and_not_by_comments() -> None:
    assert replaces("CREATE /* the TABLE */ OR REPLACE TABLE t (a INT)", "mariadb")
    assert not replaces("CREATE /* OR REPLACE */ TABLE IF NOT EXISTS t (a INT)", "mariadb")
