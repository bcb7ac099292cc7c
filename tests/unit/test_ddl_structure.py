"""DDL in, structure out: as both servers carry it out; what is not understood leaves the table unresolved."""

from __future__ import annotations

import pytest

from schemas.ddl import classify
from schemas.ddl_lexer import Flavor
from schemas.ddl_structure import Catalog, Unresolved, created, ddl_changes
from schemas.ddl_types import Session
from schemas.table_definition import TableDefinition


def _followed(statements: str, flavor: Flavor = "mysql", *, complete: bool = True) -> Catalog:
    catalog = Catalog({}, {"d": "latin1"}, complete)
    for statement in filter(None, (part.strip() for part in statements.split(";"))):
        found = classify(statement, "d", flavor)
        changes = ddl_changes(statement, found, Session(flavor, "d", 0, True, "utf8mb4"), catalog)
        for name, table in changes.tables.items():
            if table is None:
                catalog.tables.pop(name, None)
            else:
                catalog.tables[name] = table
        for database, charset in changes.databases.items():
            if charset is None:
                catalog.databases.pop(database, None)
            else:
                catalog.databases[database] = charset
    return catalog


def _text(catalog: Catalog) -> str:
    """The tables in short, in the order of their names."""
    return " | ".join(_table(*item) for item in sorted(catalog.tables.items()))


def _table(name: tuple[str, str], table: TableDefinition | Unresolved) -> str:
    full = name[1] if name[0] == "d" else ".".join(name)
    if isinstance(table, Unresolved):
        return f"{full}: ?"
    columns = [
        " ".join(
            filter(None, (c.name, c.type + (f"({c.length})" if c.length else ""), c.charset or "",
                          "unsigned" * c.unsigned, "" if c.nullable else "not-null", c.generated,
                          "invisible" * c.invisible, "/".join(c.members)))
        )
        for c in table.columns
    ]  # fmt: skip
    key = f" key {','.join(table.row_key())}" if table.row_key() else ""
    return f"{full}: {', '.join(columns)}{key}"


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        ("CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR(5))", "t: a int not-null, b varchar(5) latin1 key a"),
        ("CREATE TABLE t (a INT) CHARSET=utf8; ALTER TABLE t ADD (b CHAR(2), c TEXT)",
         "t: a int, b char(2) utf8mb3, c text(2) utf8mb3"),
        ("CREATE TABLE t (a INT, b INT); ALTER TABLE t ADD c INT FIRST, ADD d INT AFTER A, DROP b",
         "t: c int, a int, d int"),
        ("CREATE TABLE t (a INT, b INT); ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a",
         "t: b int, a int"),
        ("CREATE TABLE t (a INT NOT NULL, b INT, UNIQUE (a), PRIMARY KEY (b)); ALTER TABLE t DROP PRIMARY KEY",
         "t: a int not-null, b int not-null key a"),
        ("CREATE TABLE t (a INT, UNIQUE (a)); ALTER TABLE t MODIFY a BIGINT UNSIGNED NOT NULL",
         "t: a bigint unsigned not-null key a"),
        ("CREATE TABLE t (a VARCHAR(9) NOT NULL, UNIQUE (a(3)))", "t: a varchar(9) latin1 not-null"),
        ("CREATE TABLE t (a VARCHAR(9) NOT NULL, UNIQUE (a(9)))", "t: a varchar(9) latin1 not-null key a"),
        ("CREATE TABLE t (a INT NOT NULL); CREATE UNIQUE INDEX i ON t (a); DROP INDEX i ON t", "t: a int not-null"),
        ("CREATE TABLE t (a TEXT, b BLOB); ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4",
         "t: a text utf8mb4, b blob(2) binary"),
        ("CREATE TABLE t (a CHAR(3) CHARACTER SET binary, e ENUM('x ','it''s') COLLATE koi8r_bin)",
         "t: a binary(3) binary, e enum koi8r x/it's"),
        ("CREATE TABLE t (a INT); CREATE TABLE u LIKE t; RENAME TABLE t TO v, u TO t", "t: a int | v: a int"),
        ("CREATE TABLE t (a INT); ALTER TABLE t RENAME TO x.u", "x.u: a int"),
        ("CREATE DATABASE x CHARACTER SET ucs2; CREATE TABLE x.t (a CHAR); ALTER DATABASE x COLLATE greek_bin;"
         " CREATE TABLE x.u (a CHAR)", "x.t: a char(1) ucs2 | x.u: a char(1) greek"),
        ("CREATE TABLE t (a INT); CREATE DATABASE x; CREATE TABLE x.t (a CHAR); DROP DATABASE x", "t: a int"),
        ("CREATE TABLE t (a INT); DROP TABLE IF EXISTS t, u", ""),
        ("CREATE TABLE t (a INT); CREATE TABLE IF NOT EXISTS t (b INT)", "t: a int"),
        ("CREATE TABLE t (a INT /*!80023 INVISIBLE */, b INT AS (a + 1) STORED) PARTITION BY HASH (a) PARTITIONS 4;"
         " ALTER TABLE t TRUNCATE PARTITION p0, p1; ALTER TABLE t ADD c INT PARTITION BY KEY (a)",
         "t: a int invisible, b int stored, c int"),
        ("CREATE TABLE t (a INT DEFAULT 1.5e-3 COMMENT 'NOT NULL, KEY (a)' CHECK (a > 0), CONSTRAINT c CHECK (a < 9))",
         "t: a int"),
        ("CREATE TABLE t (a INT); ALTER TABLE t ENGINE=InnoDB ROW_FORMAT=DYNAMIC, ADD b INT, ORDER BY a, b",
         "t: a int, b int"),
        ("CREATE TABLE t (a INT); ALTER TABLE t FROBNICATE a", "t: ?"),
        ("CREATE TABLE t (a FANCY(3))", "t: ?"),
        ("CREATE TABLE t LIKE nobody", "t: ?"),
        ("CREATE TABLE t (a INT, b INT); ALTER TABLE t DROP c", "t: ?"),
        ("CREATE TABLE t (a FANCY(3)); CREATE OR REPLACE TABLE t (a INT)", "t: a int"),
        ("CREATE TABLE t (a INT, FOREIGN KEY (a) REFERENCES u (a), UNIQUE (a)); ALTER TABLE t DROP INDEX a", "t: ?"),
    ],
)  # fmt: skip
def test_ddl_makes_structures(statements: str, expected: str) -> None:
    assert _text(_followed(statements)) == expected


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        ("CREATE SEQUENCE s", "s: next_not_cached_value bigint not-null"),
        ("CREATE TABLE t (a UUID, b INET6, j JSON, v VARCHAR(9) COMPRESSED)",
         "t: a uuid, b inet6, j text(4) utf8mb4, v varchar(9) latin1"),
        ("CREATE TABLE t (a INT); ALTER TABLE t ADD COLUMN IF NOT EXISTS a TEXT, DROP COLUMN IF EXISTS b,"
         " ADD COLUMN IF NOT EXISTS c INT", "t: a int, c int"),
        ("CREATE TABLE t (a INT); ALTER TABLE IF EXISTS t MODIFY COLUMN IF EXISTS b INT", "t: a int"),
        ("CREATE TABLE t (a INT); CREATE TABLE p (a INT) PARTITION BY HASH (a);"
         " ALTER TABLE p CONVERT TABLE t TO PARTITION x VALUES LESS THAN (5)", "p: a int"),
        ("CREATE TABLE t (a TEXT NOT NULL UNIQUE, b VARCHAR(4000) NOT NULL UNIQUE, c INT NOT NULL UNIQUE)",
         "t: a text(2) latin1 not-null, b varchar(4000) latin1 not-null, c int not-null key c"),
        ("CREATE TABLE t (a INT) WITH SYSTEM VERSIONING", "t: ?"),
        ("RENAME TABLE IF EXISTS a TO b", ""),
        ("CREATE OR REPLACE DATABASE d; CREATE TABLE t (a CHAR)", "t: a char(1) utf8mb4"),
    ],
)  # fmt: skip
def test_mariadbs_own(statements: str, expected: str) -> None:
    assert _text(_followed(statements, "mariadb")).startswith(expected)


def test_what_may_have_been_there_is_not_guessed() -> None:
    """IF NOT EXISTS tells nothing of a table that nobody knows; nor does a rename."""
    assert _text(_followed("CREATE TABLE IF NOT EXISTS t (a INT)", complete=False)) == "t: ?"
    assert _text(_followed("RENAME TABLE t TO u", complete=False)) == "u: ?"


def test_a_definition_comes_back_from_its_text() -> None:
    table = created("CREATE TABLE t (a INT, e ENUM('x'), UNIQUE KEY (a, e(1)))", Session("mysql"), "utf8mb4")
    assert TableDefinition.from_dict(table.to_dict()) == table


def test_keys_by_hash_and_words_that_may_be_names() -> None:
    followed = _followed(
        "CREATE TABLE h (a TEXT NOT NULL, b INT NOT NULL, UNIQUE (a), UNIQUE USING HASH (b), UNIQUE (a(9)));"
        "CREATE TABLE p (period DATE, e DATE, vector INT, PERIOD FOR app (period, e));"
        "ALTER TABLE p ADD COLUMN IF NOT EXISTS n INT, ADD COLUMN IF NOT EXISTS n TEXT, DROP vector;"
        "CREATE TABLE c (v CHAR(3)) CHARACTER SET ucs2 COLLATE DEFAULT;"
        "CREATE TABLE q (a INT) WITH SYSTEM VERSIONING",
        "mariadb",
    )
    hashed = followed.tables["d", "h"]
    assert isinstance(hashed, TableDefinition)
    assert (hashed.hashes(), hashed.row_key()) == (2, ())
    assert _text(Catalog({n: t for n, t in followed.tables.items() if n[1] != "h"})) == (
        "c: v char(3) ucs2 | p: period date not-null, e date not-null, n int | q: ?"
    )
