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
        ("ADD fresh INT", "the downstream's table has no column fresh yet"),
        ("ADD n INT, ADD fresh INT", "the downstream's table has no column fresh yet"),
        ("ADD n BIGINT", "its range is smaller"),
        ("ADD n INT DEFAULT 1", "the default of n is NULL downstream"),
        ("ADD five INT NOT NULL DEFAULT 6", "the default of five is 5 downstream"),
        ("ADD five INT NOT NULL", "NOT NULL without a default"),
        ("ADD five INT DEFAULT 5", "five is NOT NULL downstream"),
        ("ADD n INT DEFAULT (RAND())", "is not known"),
        ("ADD n DATETIME DEFAULT CURRENT_TIMESTAMP", "is not known"),
        ("ADD n INT AS (v * 2)", "is not known"),
        ("ADD n INT UNIQUE", "is not known"),
        ("ADD n INT AUTO_INCREMENT", "is not known"),
        ("ADD old INT", "had a column old before"),
        ("""ADD e ENUM("/*m*/", "m")""", "lacks the member 'm'"),
        ("ADD e ENUM('/*n*/')", "lacks the member '/*n*/'"),
        ("DROP old, ADD old INT", "had a column old before"),
        ("DROP must", "must is NOT NULL downstream, without a default"),
        ("MODIFY v DECIMAL(30,0) NOT NULL", "v is bigint downstream"),
        ("MODIFY v SMALLINT NOT NULL", "values of v may have changed"),
        ("MODIFY s VARCHAR(80) NOT NULL", "NULLs of s may have changed"),
        ("MODIFY n INT", "no row that shows the earlier type of n"),
        ("CHANGE v w BIGINT NOT NULL", "is not known"),
        ("RENAME COLUMN v TO w", "is not known"),
        ("ADD (n INT, fresh INT)", "is not known"),
        ("ADD UNIQUE (v)", "is not known"),
        ("ADD PRIMARY KEY (v)", "is not known"),
        ("DROP PRIMARY KEY", "is not known"),
        ("ADD CONSTRAINT c FOREIGN KEY (v) REFERENCES x (id)", "is not known"),
        ("CONVERT TO CHARACTER SET latin1", "is not known"),
        ("RENAME TO t_9", "is not known"),
        ("TRUNCATE PARTITION p0", "is not known"),
        ("DROP PARTITION p0", "is not known"),
        ("ORDER BY v", "is not known"),
        ("ENGINE = MEMORY", "is not known"),
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
        assert "is not known" in needs(clauses, TARGET, (SHARD,), sql_mode=1 << 21)
