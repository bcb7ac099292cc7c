"""What is left of a DDL that was interrupted, by what its objects were before and are now."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from schemas.ddl.classify import classify
from schemas.ddl.lexer import Flavor
from schemas.quote import quoted
from schemas.wire.epoch import SchemaChanged, TableChanged
from spark_consumer.apply.ddl.interrupted import (
    InconsistentObjects,
    UnknownOutcome,
    changed_too_recently,
    lacks_expected_result,
    needs_identities,
    remaining_statement,
)
from spark_consumer.apply.ddl.snapshot import (
    ABSENT,
    ACCOUNTS,
    BROKEN,
    NO_ROWS,
    UNKNOWN,
    ObjectState,
    Snapshot,
    file_pattern,
)

Objects = dict[str, ObjectState]


def ddl(statement: str, flavor: Flavor = "mariadb") -> SchemaChanged:
    found = classify(statement, "d", flavor)
    tables = tuple(TableChanged(*table) for table in found.tables)
    return SchemaChanged(statement, "d", found.kind, tables, flavor, 0)


def table(definition: str = "x", *ids: int, created: str = "2026-01-01 00:00:00") -> ObjectState:
    """An InnoDB table; its partitions have the ids."""
    parts = tuple((f"#p#p{number}" if len(ids) > 1 else "", one) for number, one in enumerate(ids))
    return ObjectState("BASE TABLE", definition, "innodb", parts or None, created)


def snapshot(objects: Objects, server: str = "s") -> Snapshot:
    named = {
        name if name == ACCOUNTS or name.startswith("`") else quoted("d", name): shown
        for name, shown in objects.items()
    }
    return Snapshot(named, server, "2026-01-01 00:00:09")


def left(statement: str, before: Objects, now: Objects, *, mariadb: bool = True) -> str | None:
    """The text that is left, None if the DDL is done."""
    found = remaining_statement(ddl(statement), snapshot(before), snapshot(now), mariadb=mariadb)
    return None if found is None else found.statement


A, B, C = table("x", 1), table("x", 2), table("x", 3)
SWAP = "RENAME TABLE a TO z, b TO a, z TO b"
MYISAM = ObjectState("BASE TABLE", "x", "myisam", content="5")
EMPTY = replace(A, content=NO_ROWS)
LATER = "2026-01-01 00:00:11"
SAME = (
    "DROP COLUMN v, ADD COLUMN v INT",
    "FORCE",
    "MODIFY v INT",
    "CHANGE v v INT, DROP w",
    "CHANGE v x INT, CHANGE w y INT",
    "RENAME INDEX k TO l, RENAME INDEX l TO k",
)
MOVED = (
    "CHANGE v w INT, CHANGE w v INT AFTER id",
    "DROP COLUMN v, RENAME COLUMN w TO v, ADD COLUMN w INT",
    "DROP v, CHANGE w v INT, ADD w INT",
    "RENAME COLUMN `V` TO W, RENAME COLUMN IF EXISTS w TO `v`",
    "DROP COLUMN IF EXISTS v, CHANGE COLUMN IF EXISTS w v INT, ADD w INT",
)


@pytest.mark.parametrize(
    ("statement", "before", "now", "expected"),
    [
        # tables of one form change names: the ids go with them
        (SWAP, {"a": A, "b": B, "z": ABSENT}, {"a": A, "b": B, "z": ABSENT}, SWAP),
        (SWAP, {"a": A, "b": B, "z": ABSENT}, {"a": B, "b": A, "z": ABSENT}, None),
        (SWAP, {"a": A, "b": B, "z": ABSENT}, {"a": ABSENT, "b": B, "z": A},
         "RENAME TABLE `d`.`b` TO `d`.`a`, `d`.`z` TO `d`.`b`"),
        (SWAP, {"a": A, "b": B, "z": ABSENT}, {"a": B, "b": ABSENT, "z": A}, "RENAME TABLE `d`.`z` TO `d`.`b`"),
        ("RENAME TABLE a TO b", {"a": ObjectState("VIEW", "v"), "b": ABSENT},
         {"a": ABSENT, "b": ObjectState("VIEW", "v")}, None),
        ("RENAME TABLE IF EXISTS a TO b, c TO d", {"a": ABSENT, "b": ABSENT, "c": C, "d": ABSENT},
         {"a": ABSENT, "b": ABSENT, "c": ABSENT, "d": C}, None),
        # where ids are not known: pairs that move nothing leave nothing to doubt
        ("RENAME TABLE a TO z, z TO a", {"a": table(), "z": ABSENT}, {"a": table(), "z": ABSENT}, None),
        ("RENAME TABLE a TO z, z TO a", {"a": table(), "z": ABSENT}, {"a": ABSENT, "z": table()},
         "RENAME TABLE `d`.`z` TO `d`.`a`"),
        ("RENAME TABLE IF EXISTS a TO b, c TO d", {"a": ABSENT, "b": ABSENT, "c": table(), "d": ABSENT},
         {"a": ABSENT, "b": ABSENT, "c": table(), "d": ABSENT}, "RENAME TABLE `d`.`c` TO `d`.`d`"),
        # lists are dropped one by one
        ("DROP TABLE a, b", {"a": A, "b": B}, {"a": A, "b": B}, "DROP TABLE a, b"),
        ("DROP TABLE a, b", {"a": A, "b": B}, {"a": ABSENT, "b": B}, "DROP TABLE IF EXISTS a, b"),
        ("DROP TABLE a, b", {"a": A, "b": B}, {"a": ABSENT, "b": ABSENT}, None),
        # MySQL's MyISAM: the files are gone
        ("DROP TABLE a", {"a": A}, {"a": table(BROKEN)}, "DROP TABLE IF EXISTS a"),
        ("CREATE TABLE a (i INT)", {"a": ABSENT}, {"a": table(BROKEN)}, "CREATE TABLE a (i INT)"),
        ("DROP VIEW v", {"v": ObjectState("VIEW", "v")}, {"v": ABSENT}, None),
        ("CREATE TABLE a (i INT)", {"a": ABSENT}, {"a": A}, None),
        ("CREATE TABLE a (i INT)", {"a": ABSENT}, {"a": ABSENT}, "CREATE TABLE a (i INT)"),
        # MariaDB has dropped the old one
        ("CREATE OR REPLACE TABLE a (i INT)", {"a": A}, {"a": ABSENT}, "CREATE OR REPLACE TABLE a (i INT)"),
        # its row may not be there
        ("CREATE SEQUENCE IF NOT EXISTS s START 5", {"s": ABSENT}, {"s": ObjectState("SEQUENCE", UNKNOWN, "innodb")},
         "CREATE OR REPLACE SEQUENCE s START 5"),
        ("TRUNCATE TABLE a", {"a": A}, {"a": B}, "TRUNCATE TABLE a"),
        ("ALTER TABLE a ADD v INT", {"a": A}, {"a": A}, "ALTER TABLE a ADD v INT"),
        ("ALTER TABLE a ADD v INT", {"a": A}, {"a": table("y", 1)}, None),
        ("CREATE INDEX i ON a (v)", {"a": A}, {"a": table("y", 1)}, None),
        ("ALTER TABLE p TRUNCATE PARTITION p0, p1", {"p": table("x", 1, 2)}, {"p": table("x", 3, 2)},
         "ALTER TABLE p TRUNCATE PARTITION p0, p1"),
        ("ALTER TABLE a RENAME TO b, ADD v INT", {"a": A, "b": ABSENT}, {"a": ABSENT, "b": table("y", 1)}, None),
        ("ALTER TABLE a RENAME TO b, ADD v INT", {"a": A, "b": ABSENT}, {"a": A, "b": ABSENT},
         "ALTER TABLE a RENAME TO b, ADD v INT"),
        ("ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE a", {"p": table("p", 8, 9), "a": A},
         {"p": table("p", 8, 9), "a": A}, "ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE a"),
        ("ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE a", {"p": table("p", 8, 9), "a": A},
         {"p": table("p", 1, 9), "a": table("x", 8)}, None),
        ("ALTER TABLE p CONVERT PARTITION p0 TO TABLE a", {"p": table("p", 8, 9), "a": ABSENT},
         {"p": table("q", 9), "a": table("x", 8)}, None),
        ("ALTER TABLE p CONVERT PARTITION p0 TO TABLE a", {"p": table("p", 8, 9), "a": ABSENT},
         {"p": table("p", 8, 9), "a": ABSENT}, "ALTER TABLE p CONVERT PARTITION p0 TO TABLE a"),
        # columns change places, and the definition stays: the rows show it, or that nobody has touched the table
        *[(f"ALTER TABLE a {moved}", {"a": replace(A, content="1")}, {"a": replace(A, content="2", created=when)}, None)
          for moved in MOVED for when in (A.created, LATER)],
        *[(f"ALTER TABLE a {moved}", {"a": A}, {"a": A}, f"ALTER TABLE a {moved}") for moved in MOVED],
        *[(f"ALTER TABLE a {moved}", {"a": EMPTY}, {"a": replace(EMPTY, created=LATER)}, f"ALTER TABLE a {moved}")
          for moved in MOVED],
        (f"ALTER TABLE a {MOVED[0]}", {"a": A}, {"a": B}, None),
        (f"ALTER TABLE a {MOVED[0]}", {"a": MYISAM}, {"a": replace(MYISAM, created=LATER)}, None),
        # what leaves the same behind however often it runs
        *[(f"ALTER TABLE a {same}", {"a": A}, {"a": replace(A, created=LATER)}, f"ALTER TABLE a {same}")
          for same in SAME],
        ("CREATE PROCEDURE f() SELECT 1", {"f": ABSENT}, {"f": ObjectState("PROCEDURE", "f")}, None),
        ("ALTER EVENT e RENAME TO f", {"e": ObjectState("EVENT", "e")}, {"e": ABSENT}, None),
        ("ALTER EVENT e COMMENT 'x'", {"e": ObjectState("EVENT", "e")}, {"e": ObjectState("EVENT", "e")},
         "ALTER EVENT e COMMENT 'x'"),
        ("DROP DATABASE d", {"`d`": ObjectState("DATABASE", "d")}, {"`d`": ABSENT}, None),
        ("CREATE DATABASE d CHARACTER SET latin1", {"`d`": ABSENT}, {"`d`": ObjectState("DATABASE", "d")},
         "ALTER DATABASE d CHARACTER SET latin1"),
        ("GRANT SELECT ON *.* TO u", {ACCOUNTS: ObjectState(ACCOUNTS, "1")}, {ACCOUNTS: ObjectState(ACCOUNTS, "1")},
         "GRANT SELECT ON *.* TO u"),
        ("RENAME USER u TO v", {ACCOUNTS: ObjectState(ACCOUNTS, "1")}, {ACCOUNTS: ObjectState(ACCOUNTS, "2")}, None),
    ],
)  # fmt: skip
def test_what_is_left(statement: str, before: Objects, now: Objects, expected: str | None) -> None:
    assert left(statement, before, now) == expected


NOBODY = table("x")


@pytest.mark.parametrize(
    ("statement", "before", "now", "error"),
    [
        # without PROCESS nobody sees InnoDB's ids
        (SWAP, {"a": NOBODY, "b": NOBODY, "z": ABSENT}, {"a": NOBODY, "b": NOBODY, "z": ABSENT}, UnknownOutcome),
        ("ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE a", {"p": table("p"), "a": NOBODY},
         {"p": table("p"), "a": NOBODY}, UnknownOutcome),
        # rows that look the same, and a file that recovery may have touched
        *[(f"ALTER TABLE a {moved}", {"a": replace(A, content="1")}, {"a": replace(A, content="1", created=LATER)},
           UnknownOutcome) for moved in MOVED],
        # altered in the second in which it was looked at
        ("ALTER TABLE a CHANGE v w INT, CHANGE w v INT AFTER id", {"a": replace(A, created="2026-01-01 00:00:09")},
         {"a": replace(A, created="2026-01-01 00:00:09")}, UnknownOutcome),
        ("GRANT SELECT ON *.* TO u", {ACCOUNTS: ObjectState(ACCOUNTS, UNKNOWN)},
         {ACCOUNTS: ObjectState(ACCOUNTS, UNKNOWN)}, UnknownOutcome),
        # MariaDB renames, converts and exchanges one partition after the other
        ("RENAME TABLE p TO q", {"p": table("p", 8, 9), "q": ABSENT},
         {"p": replace(table(BROKEN, 9), ids=(("#p#p1", 9),)), "q": ABSENT}, InconsistentObjects),
        ("ALTER TABLE p CONVERT PARTITION p0 TO TABLE a", {"p": table("p", 8, 9), "a": ABSENT},
         {"p": ABSENT, "a": ABSENT}, InconsistentObjects),
        ("ALTER TABLE p CONVERT TABLE a TO PARTITION p0 VALUES LESS THAN (5)", {"p": table("p", 9), "a": A},
         {"p": ABSENT, "a": ABSENT}, InconsistentObjects),
        ("ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE a", {"p": table("p", 8, 9), "a": A},
         {"p": table("p", 8, 9), "a": table("x", 8)}, InconsistentObjects),
        ("ALTER TABLE a PARTITION BY HASH (id) PARTITIONS 3", {"a": A}, {"a": table(BROKEN, 1)}, InconsistentObjects),
        ("ALTER TABLE a ADD v INT", {"a": A}, {"a": ABSENT}, InconsistentObjects),
        ("ALTER TABLE a RENAME TO b", {"a": A, "b": ABSENT}, {"a": A, "b": A}, InconsistentObjects),
        ("ALTER TABLE a RENAME TO b", {"a": A, "b": ABSENT}, {"a": table(BROKEN, 1), "b": ABSENT}, InconsistentObjects),
        ("ALTER TABLE a RENAME TO b", {"a": A, "b": ABSENT}, {"a": ABSENT, "b": table(BROKEN, 1)}, InconsistentObjects),
    ],
)  # fmt: skip
def test_what_nobody_can_know(
    statement: str, before: Objects, now: Objects, error: type[UnknownOutcome]
) -> None:
    with pytest.raises(UnknownOutcome) as raised:
        left(statement, before, now)
    assert raised.type is error


def test_on_mysql_the_time_of_a_table_is_as_sure_as_the_alter() -> None:
    """Columns that are dropped, renamed and added there leave the table's id."""
    for moved in MOVED:
        before, now = {"a": replace(A, content="1")}, {"a": replace(A, content="1", created=LATER)}
        assert left(f"ALTER TABLE a {moved}", before, now, mariadb=False) is None
        assert left(f"ALTER TABLE a {moved}", before, before, mariadb=False) is not None


def test_tables_without_ids_are_told_apart_by_their_contents() -> None:
    other = replace(MYISAM, content="6")
    swapped = {"a": other, "b": MYISAM, "z": ABSENT}
    assert left(SWAP, {"a": MYISAM, "b": other, "z": ABSENT}, swapped) is None
    # Tables that are the same in every way may have changed places.
    assert (
        left(SWAP, {"a": MYISAM, "b": MYISAM, "z": ABSENT}, {"a": MYISAM, "b": MYISAM, "z": ABSENT}) is None
    )


def test_mysql_tells_tables_apart_by_the_time_of_their_creation() -> None:
    one, other = NOBODY, replace(NOBODY, created="2026-01-01 00:00:01")
    before = {"a": one, "b": other, "z": ABSENT}
    assert left(SWAP, before, {"a": other, "b": one, "z": ABSENT}, mariadb=False) is None
    assert left(SWAP, before, before, mariadb=False) == SWAP


def test_definitions_of_another_version_are_not_compared() -> None:
    alter = ddl("ALTER TABLE a ADD v INT")
    before, now = snapshot({"a": A}), snapshot({"a": table("shown otherwise", 1)}, "t")
    with pytest.raises(UnknownOutcome, match="version or settings"):
        remaining_statement(alter, before, now, mariadb=True)
    assert remaining_statement(alter, before, snapshot({"a": table("y", 7)}, "t"), mariadb=True) is None


def test_a_name_in_other_letters_is_no_other_table_where_names_are_in_lower_case() -> None:
    for text in ("ALTER TABLE a RENAME A, ADD v INT", "ALTER TABLE A RENAME a, ADD v INT"):
        assert left(text, {"a": A}, {"a": table("y", 1)}) is None
        assert left(text, {"a": A}, {"a": A}) == text


def test_names_in_lower_case_are_the_same() -> None:
    renamed = ddl("RENAME TABLE A TO B")
    before = snapshot({"a": A, "b": ABSENT})
    assert remaining_statement(renamed, before, snapshot({"a": ABSENT, "b": A}), mariadb=True) is None
    altered = ddl("ALTER TABLE A ADD v INT")
    assert (
        remaining_statement(altered, before, snapshot({"a": table("y", 1), "b": ABSENT}), mariadb=True)
        is None
    )


def test_what_is_used_may_be_done_by_half() -> None:
    assert lacks_expected_result(ddl("CREATE OR REPLACE TABLE a (i INT)"), snapshot({"a": ABSENT}))
    assert lacks_expected_result(ddl("DROP TABLE a, b"), snapshot({"a": ABSENT, "b": B}))
    assert not lacks_expected_result(
        ddl("DROP TABLE a, b"), snapshot({"a": ABSENT, "b": ObjectState("VIEW", "b")})
    )
    assert not lacks_expected_result(ddl("CREATE INDEX i ON a (v)"), snapshot({"a": ABSENT}))
    assert lacks_expected_result(ddl("CREATE PROCEDURE f() SELECT 1"), snapshot({"f": ABSENT}))


def test_ids_are_asked_for_where_they_decide() -> None:
    assert needs_identities(ddl(SWAP))
    assert needs_identities(ddl("ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE a"))
    swapped = ddl("ALTER TABLE a RENAME COLUMN v TO w, RENAME COLUMN w TO v")
    assert needs_identities(swapped)
    assert not needs_identities(ddl("ALTER TABLE a ADD v INT"))
    assert changed_too_recently(swapped, snapshot({"a": replace(A, created="2026-01-01 00:00:09")}))
    assert not changed_too_recently(swapped, snapshot({"a": A}))


def test_a_snapshot_survives_json() -> None:
    made = snapshot({"a": table("x", 1, 2), "b": ABSENT, "c": MYISAM})
    assert Snapshot.of(json.loads(json.dumps(made.to_fields()))) == made


@pytest.mark.parametrize(
    ("name", "file", "same"),
    [
        ("a_1", "a_1", True),
        ("a-1", "a@002d1", True),
        ("日", "@65e5", True),
        ("é", "@0p", True),
        ("a$", "a@0024", True),
        ("a", "b", False),
        ("a-", "a-", False),
    ],
)
def test_innodbs_names_of_files(name: str, file: str, same: bool) -> None:
    assert bool(re.fullmatch(file_pattern(name), file)) is same
