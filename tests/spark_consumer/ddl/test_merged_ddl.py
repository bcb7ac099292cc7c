"""Which ALTER TABLE of one shard needs nothing of the merged table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.ddl.alter_clauses import clauses_of
from schemas.ddl.cursor import Unparsable
from schemas.ddl.lexer import LexError
from schemas.structure import TableStructure
from spark_consumer.ddl.merged import needs
from spark_consumer.target.table import TargetColumn, TargetTable
from tests.support.applying.targets import column, unique
from tests.support.epochs.fake_topic import integer, text

SHARD = TableStructure("up", "t_1", (integer("id"), integer("v"), text("s", nullable=True)), ("id",))
WITH_OLD = replace(SHARD, columns=(*SHARD.columns, integer("old", nullable=True)))
TARGET = TargetTable(
    ("d", "t"),
    (
        column("id", null=False),
        column("v", "bigint", null=False),
        column("s", "varchar(99) utf8mb4"),
        column("n"),
        column("five", null=False, default="5"),
        column("word", "varchar(9)", null=False, default="'it''s'"),
        column("old"),
        column("e", r"enum('/*m*/','x\\','it''s')"),
        TargetColumn("must", column("must").type),
    ),
    (unique("id"),),
)


def told(alter: str, *, strict: bool = True) -> str:
    clauses = clauses_of(f"ALTER TABLE up.t_1 {alter}", "mysql")
    return needs(clauses, TARGET, (WITH_OLD, SHARD), sql_mode=1 << 21 if strict else 0)


@pytest.mark.parametrize(
    "alter",
    [
        "ADD n INT",
        "ADD COLUMN N INT NULL DEFAULT NULL COMMENT 'a, b' AFTER v",
        "ADD n SMALLINT FIRST, ALGORITHM=INSTANT, LOCK=NONE",
        "ADD five INT NOT NULL DEFAULT 5",
        "ADD word VARCHAR(9) CHARACTER SET utf8mb4 NOT NULL DEFAULT 'it''s'",
        "ADD INDEX (v), ADD KEY k (s(10)), DROP INDEX o, RENAME INDEX a TO b",
        "DROP COLUMN n, DROP gone",
        "MODIFY v BIGINT NOT NULL",
        "CHANGE COLUMN `v` V BIGINT NOT NULL, MODIFY s VARCHAR(80)",
        "ALTER v SET DEFAULT 7, AUTO_INCREMENT = 5, COMMENT = 'x', FORCE",
        r"""ADD e ENUM ( "it's" , /* 'y' */ 'x\\', '/*m*/ ')""",
    ],
)
def test_what_is_there_already_is_passed_over(alter: str) -> None:
    assert told(alter) == ""


@pytest.mark.parametrize(
    ("alter", "reason"),
    [
        ("ADD fresh INT", "there is no column fresh yet"),
        ("ADD n INT, ADD fresh INT", "there is no column fresh yet"),
        ("ADD n BIGINT", "its range is smaller"),
        ("ADD n INT DEFAULT 1", "the default of n is NULL there"),
        ("ADD five INT NOT NULL DEFAULT 6", "the default of five is 5 there"),
        ("ADD five INT NOT NULL", "NOT NULL without a default"),
        ("ADD five INT DEFAULT 5", "five is NOT NULL there"),
        ("ADD n INT DEFAULT (RAND())", "cannot be told"),
        ("ADD n DATETIME DEFAULT CURRENT_TIMESTAMP", "cannot be told"),
        ("ADD n INT AS (v * 2)", "cannot be told"),
        ("ADD n INT UNIQUE", "cannot be told"),
        ("ADD n INT AUTO_INCREMENT", "cannot be told"),
        ("ADD old INT", "had a column old before"),
        ("""ADD e ENUM("/*m*/", "m")""", "lacks the member 'm'"),
        ("ADD e ENUM('/*n*/')", "lacks the member '/*n*/'"),
        ("DROP old, ADD old INT", "had a column old before"),
        ("DROP must", "must is NOT NULL there, without a default"),
        ("MODIFY v DECIMAL(30,0) NOT NULL", "v is bigint downstream"),
        ("MODIFY v SMALLINT NOT NULL", "values of v may have changed"),
        ("MODIFY s VARCHAR(80) NOT NULL", "NULLs of s may have changed"),
        ("MODIFY n INT", "no row that shows what n was"),
        ("CHANGE v w BIGINT NOT NULL", "cannot be told"),
        ("RENAME COLUMN v TO w", "cannot be told"),
        ("ADD (n INT, fresh INT)", "cannot be told"),
        ("ADD UNIQUE (v)", "cannot be told"),
        ("ADD PRIMARY KEY (v)", "cannot be told"),
        ("DROP PRIMARY KEY", "cannot be told"),
        ("ADD CONSTRAINT c FOREIGN KEY (v) REFERENCES x (id)", "cannot be told"),
        ("CONVERT TO CHARACTER SET latin1", "cannot be told"),
        ("RENAME TO t_9", "cannot be told"),
        ("TRUNCATE PARTITION p0", "cannot be told"),
        ("DROP PARTITION p0", "cannot be told"),
        ("ORDER BY v", "cannot be told"),
        ("ENGINE = MEMORY", "cannot be told"),
    ],
)
def test_what_is_not_or_nobody_can_tell_is_said(alter: str, reason: str) -> None:
    assert reason in told(alter)


def test_a_charset_may_have_changed_values_only_where_the_upstream_was_not_strict() -> None:
    assert "with its charset" in told("MODIFY s VARCHAR(80)", strict=False)
    assert told("MODIFY s VARCHAR(80) CHARACTER SET utf8mb4", strict=False) == ""


@pytest.mark.parametrize("statement", ["DROP TABLE t", "ALTER TABLE t ADD", "ALTER TABLE t ADD 'x"])
def test_what_is_no_alter_is_not_read(statement: str) -> None:
    with pytest.raises((Unparsable, LexError)):
        clauses_of(statement, "mariadb")


def test_words_in_front_of_the_table_are_a_clause_that_nobody_can_tell() -> None:
    for first in ("ALTER IGNORE", "SET STATEMENT sql_mode='' FOR ALTER"):
        clauses = clauses_of(f"{first} TABLE t ADD n INT", "mariadb")
        assert "cannot be told" in needs(clauses, TARGET, (SHARD,), sql_mode=1 << 21)
