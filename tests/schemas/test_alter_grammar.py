"""Every clause of ALTER TABLE in both servers' grammars: its tables are found, and it can be read."""

from __future__ import annotations

from hypothesis import given

from schemas.ddl.alter_clauses import clauses_of
from schemas.ddl.classify import classify
from schemas.ddl.kinds import Category
from tests.support.statements.alters import Alter, alters


@given(alters())
def test_the_tables_of_an_alter_are_found(alter: Alter) -> None:
    found = classify(alter.statement, "app", alter.flavor)
    assert found.category is (Category.FILES if alter.files else Category.DDL), found.reason
    assert found.tables == alter.tables


@given(alters())
def test_the_clauses_of_an_alter_are_read(alter: Alter) -> None:
    renamed = alter.tables[0].renamed_to
    clauses = clauses_of(alter.statement, alter.flavor)
    assert [clause.new_name for clause in clauses if clause.object_kind == "TABLE"] == (
        [renamed] if renamed else []
    )
