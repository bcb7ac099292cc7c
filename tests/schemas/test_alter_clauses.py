"""The clauses of ALTER TABLE as values: what each is about, and where its definition begins."""

from __future__ import annotations

import pytest

from schemas.ddl.alter_clauses import clauses_of
from schemas.ddl.cursor import Unparsable

# A clause, and its verb, what it is about, the name before and the name behind.
CLAUSES = [
    ("ADD a INT", "ADD", "COLUMN", "a", ""),
    ("ADD COLUMN IF NOT EXISTS `a b` INT AFTER c", "ADD", "COLUMN", "a b", ""),
    ("ADD period INT", "ADD", "COLUMN", "period", ""),
    ("ADD PERIOD FOR p (a, b)", "ADD", "KEY", "", ""),
    ("ADD CONSTRAINT c CHECK (a > 0)", "ADD", "KEY", "", ""),
    ("ADD UNIQUE KEY k (a, b)", "ADD", "KEY", "", ""),
    ("ADD SYSTEM VERSIONING", "ADD", "SYSTEM VERSIONING", "", ""),
    ("MODIFY COLUMN a ENUM('x,y', ')')", "MODIFY", "COLUMN", "a", "a"),
    ("CHANGE a b INT FIRST", "CHANGE", "COLUMN", "a", "b"),
    ("RENAME COLUMN a TO b", "RENAME", "COLUMN", "a", "b"),
    ("RENAME INDEX k TO l", "RENAME", "KEY", "k", "l"),
    ("RENAME AS d.u", "RENAME", "TABLE", "", "u"),
    ("DROP a RESTRICT", "DROP", "COLUMN", "a", ""),
    ("DROP COLUMN IF EXISTS a", "DROP", "COLUMN", "a", ""),
    ("DROP PRIMARY KEY", "DROP", "PRIMARY KEY", "", ""),
    ("DROP FOREIGN KEY f", "DROP", "FOREIGN KEY", "f", ""),
    ("DROP PERIOD FOR p", "DROP", "PERIOD", "p", ""),
    ("ALTER COLUMN a SET DEFAULT (1 + 2)", "ALTER", "COLUMN", "a", ""),
    ("ALTER INDEX k INVISIBLE", "ALTER", "KEY", "", ""),
    ("ENGINE = InnoDB COMMENT 'ADD a INT'", "", "", "", ""),
]


@pytest.mark.parametrize(("text", "verb", "what", "name", "new_name"), CLAUSES)
def test_a_clause_alone(text: str, verb: str, what: str, name: str, new_name: str) -> None:
    (clause,) = clauses_of(f"ALTER TABLE t {text}", "mariadb")
    assert (clause.verb, clause.object_kind, clause.name, clause.new_name) == (verb, what, name, new_name)


def test_all_of_them_in_one_statement() -> None:
    found = clauses_of(f"ALTER TABLE t {', '.join(text for text, *_ in CLAUSES)}", "mariadb")
    assert [(c.verb, c.object_kind, c.name, c.new_name) for c in found] == [
        tuple(rest) for _, *rest in CLAUSES
    ]


def test_columns_in_parentheses_are_clauses_of_their_own() -> None:
    found = clauses_of("ALTER TABLE t ADD (a DECIMAL(9,2), KEY (a), b INT), DROP c", "mysql")
    assert [(c.verb, c.object_kind, c.name, c.listed) for c in found] == [
        ("ADD", "COLUMN", "a", True),
        ("ADD", "KEY", "", True),
        ("ADD", "COLUMN", "b", True),
        ("DROP", "COLUMN", "c", False),
    ]


@pytest.mark.parametrize("behind", ["PARTITION BY KEY (a) PARTITIONS 4", "REMOVE PARTITIONING"])
@pytest.mark.parametrize("first", ["ADD a INT", "ENGINE = InnoDB", "ADD (a INT)"])
def test_what_is_said_of_partitions_needs_no_comma_and_ends_the_statement(first: str, behind: str) -> None:
    found = clauses_of(f"ALTER TABLE t {first} {behind}", "mysql")
    assert [clause.object_kind for clause in found[1:]] == ["PARTITION"]


@pytest.mark.parametrize("text", ["ADD", "ADD a INT)", "MODIFY 5 INT", "DROP COLUMN", "RENAME COLUMN a b"])
def test_what_no_server_takes_is_not_read(text: str) -> None:
    with pytest.raises(Unparsable):
        clauses_of(f"ALTER TABLE t {text}", "mysql")
