"""DDL in, structure out: as both servers carry it out; what is not understood leaves the table unresolved."""

from __future__ import annotations

import pytest

from producer.structures.interpret import Catalog, Unresolved, created, ddl_changes
from schemas.ddl.classify import classify
from schemas.ddl.column_types import DdlContext
from schemas.ddl.lexer import FLAVORS, Flavor
from schemas.ddl.table_definition import TableDefinition


def _followed(
    statements: str, flavor: Flavor = "mysql", *, complete: bool = True, sql_mode: int = 0
) -> Catalog:
    catalog = Catalog({}, {"d": "latin1"}, complete)
    for statement in filter(None, (part.strip() for part in statements.split(";"))):
        found = classify(statement, "d", flavor, sql_mode=sql_mode)
        changes = ddl_changes(statement, found, DdlContext(flavor, "d", sql_mode, True, "utf8mb4"), catalog)
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
        ("CREATE TABLE t (a INT PRIMARY KEY) ENGINE=InnoDB WITH SYSTEM VERSIONING", "t: a int not-null key a,row_end"),
        ("CREATE TABLE t (a INT PRIMARY KEY WITH SYSTEM VERSIONING, b INT WITHOUT SYSTEM VERSIONING)",
         "t: a int not-null, b int key a,row_end"),
        ("CREATE TABLE t (a INT PRIMARY KEY) COMMENT 'WITH SYSTEM VERSIONING'", "t: a int not-null key a"),
        ("CREATE TABLE t (a INT PRIMARY KEY); ALTER TABLE t ADD SYSTEM VERSIONING, ADD b INT; CREATE TABLE u LIKE t;"
         " ALTER TABLE t DROP SYSTEM VERSIONING",
         "t: a int not-null, b int key a | u: a int not-null, b int key a,row_end"),
        ("CREATE TABLE t (a INT, s TIMESTAMP(6) GENERATED ALWAYS AS ROW START,"
         " e TIMESTAMP(6) GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (s, e)) WITH SYSTEM VERSIONING", "t: ?"),
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
    table = created(
        "CREATE TABLE t (a INT, e ENUM('x'), UNIQUE KEY (a, e(1)))", DdlContext("mysql"), "utf8mb4"
    )
    assert TableDefinition.from_dict(table.to_dict()) == table


def test_keys_by_hash_and_words_that_may_be_names() -> None:
    followed = _followed(
        "CREATE TABLE h (a TEXT NOT NULL, b INT NOT NULL, UNIQUE (a), UNIQUE USING HASH (b), UNIQUE (a(9)));"
        "CREATE TABLE p (period DATE, e DATE, vector INT, PERIOD FOR app (period, e));"
        "ALTER TABLE p ADD COLUMN IF NOT EXISTS n INT, ADD COLUMN IF NOT EXISTS n TEXT, DROP vector;"
        "CREATE TABLE c (v CHAR(3)) CHARACTER SET ucs2 COLLATE DEFAULT;"
        "CREATE TABLE q (a INT, PERIOD FOR SYSTEM_TIME (s, e))",
        "mariadb",
    )
    hashed = followed.tables["d", "h"]
    assert isinstance(hashed, TableDefinition)
    assert (hashed.hash_column_count(), hashed.row_key()) == (2, ())
    assert _text(Catalog({n: t for n, t in followed.tables.items() if n[1] != "h"})) == (
        "c: v char(3) ucs2 | p: period date not-null, e date not-null, n int | q: ?"
    )


def _one(statements: str, flavor: Flavor = "mysql", sql_mode: int = 0) -> TableDefinition | Unresolved:
    """The only table that there is in the end."""
    catalog = _followed(statements, flavor, sql_mode=sql_mode)
    (table,) = catalog.tables.values()
    return table


def _shown(text: str) -> TableDefinition:
    return created(text, DdlContext("mysql", "d", 0, True, from_show_create=True), "utf8mb4")


def test_auto_increment_is_not_null_as_far_as_nothing_behind_it_says_otherwise() -> None:
    for flavor in FLAVORS:
        found = _text(
            _followed(
                "CREATE TABLE t (a INT AUTO_INCREMENT, b INT NOT NULL, UNIQUE (b), UNIQUE (a));"
                "CREATE TABLE u (a INT NULL AUTO_INCREMENT UNIQUE); CREATE TABLE v (a INT AUTO_INCREMENT UNIQUE NULL)",
                flavor,
            )
        )
        assert found == "t: a int not-null, b int not-null key b | u: a int not-null key a | v: a int"
    # What SHOW CREATE TABLE does not call NOT NULL may be NULL.
    assert (
        _shown("CREATE TABLE `v` (`a` int AUTO_INCREMENT, UNIQUE KEY `a` (`a`))").columns[0].nullable is True
    )


def test_unique_said_twice_is_one_key() -> None:
    for flavor, expected in (("mysql", ["primary", "unique"]), ("mariadb", ["primary"])):
        table = _one("CREATE TABLE t (a INT UNIQUE UNIQUE KEY NOT NULL PRIMARY KEY KEY)", flavor)  # type: ignore[arg-type]
        assert isinstance(table, TableDefinition)
        assert [key.kind for key in table.keys] == expected


def test_mysql_takes_the_number_of_an_enum_for_a_prefix_of_the_text_that_it_becomes() -> None:
    statements = (
        "CREATE TABLE t (a ENUM('abc') NOT NULL, b ENUM('aa') CHARACTER SET utf8mb4 NOT NULL, c ENUM('a') NOT NULL,"
        " d SET('a','b','c','d','e','f','g','h','i') NOT NULL, UNIQUE (a), UNIQUE (b), UNIQUE (c), UNIQUE (d));"
        "ALTER TABLE t MODIFY a VARCHAR(9) NOT NULL, MODIFY b VARCHAR(9) NOT NULL, MODIFY c CHAR(2) NOT NULL,"
        " MODIFY d VARCHAR(9) NOT NULL"
    )
    for flavor, expected in (
        ("mysql", [("b", None), ("c", None), ("a", 1), ("d", 2)]),
        ("mariadb", [("a", None), ("b", None), ("c", None), ("d", None)]),
    ):
        table = _one(statements, flavor)  # type: ignore[arg-type]
        assert isinstance(table, TableDefinition)
        assert [(key.name, key.parts[0].prefix) for key in table.keys] == expected


def test_two_character_sets_beside_a_conversion_are_not_guessed() -> None:
    for parts in ("DEFAULT COLLATE = utf8mb4_bin, CONVERT TO CHARACTER SET latin1",
                  "CONVERT TO CHARACTER SET latin1 COLLATE latin1_bin, CHARACTER SET ucs2"):  # fmt: skip
        assert isinstance(_one(f"CREATE TABLE t (a CHAR(3)); ALTER TABLE t {parts}"), Unresolved)


def test_keys_by_hash_are_lost_unless_said_anew() -> None:
    begin = "CREATE TABLE t (a INT NOT NULL, b INT NOT NULL, UNIQUE ha USING HASH (a))"
    for more, hashes in [
        ("", 1), ("ALTER TABLE t RENAME TO u", 1), ("ALTER TABLE t DROP COLUMN IF EXISTS x", 1),
        ("ALTER TABLE t ADD c INT", 0), ("CREATE INDEX i ON t (b)", 0),
        ("CREATE UNIQUE INDEX hb USING HASH ON t (b)", 1),
        ("ALTER TABLE t ADD UNIQUE hb USING HASH (b)", 1),
        ("ALTER TABLE t ADD UNIQUE hb USING HASH (b) USING BTREE", 0),
        ("DROP TABLE t; CREATE TABLE u (a TEXT, UNIQUE (a)); ALTER TABLE u ADD c INT", 1),
        ("DROP TABLE t; CREATE TABLE u (a TEXT, UNIQUE k (a)); ALTER TABLE u DROP CONSTRAINT IF EXISTS k", 1),
        ("DROP TABLE t; CREATE TABLE u (a TEXT, UNIQUE k (a)); ALTER TABLE u DROP INDEX k", 0),
    ]:  # fmt: skip
        table = _one(f"{begin}; {more}", "mariadb")
        assert isinstance(table, TableDefinition)
        assert table.hash_column_count() == hashes, more
    like = _followed(f"{begin}; CREATE TABLE u LIKE t", "mariadb").tables["d", "u"]
    assert isinstance(like, TableDefinition)
    assert (like.hash_column_count(), like.row_key()) == (0, ("a",))


def test_a_key_that_was_one_by_hash_is_not_dropped_by_guess() -> None:
    statements = (
        "CREATE TABLE t (a INT NOT NULL, UNIQUE k USING HASH (a)); ALTER TABLE t DROP CONSTRAINT IF EXISTS k"
    )
    assert isinstance(_one(statements, "mariadb"), Unresolved)


def test_mariadb_orders_keys_by_what_was_null_before_the_primary_key_came() -> None:
    """So when that one goes, another is the first."""
    statements = (
        "CREATE TABLE t (a INT, b INT NOT NULL, UNIQUE (a)); ALTER TABLE t ADD UNIQUE (b), ADD PRIMARY KEY (b, a);"
        "ALTER TABLE t DROP PRIMARY KEY"
    )
    assert _text(_followed(statements, "mariadb")) == "t: a int not-null, b int not-null key b"


def test_a_table_that_has_the_name_of_a_sequence_stays() -> None:
    statements = (
        "CREATE SEQUENCE s; RENAME TABLE s TO r; CREATE TABLE s (a INT); DROP SEQUENCE IF EXISTS s, r"
    )
    assert _text(_followed(statements, "mariadb")) == "s: a int"


@pytest.mark.parametrize("members", ["'\u00e9') CHARACTER SET ascii", "'a','\u00df') CHARACTER SET sjis",
    "'\u00e4') CHARACTER SET binary", "'\U0001f600') CHARACTER SET utf8mb3", "'\u00a5') CHARACTER SET sjis",
    "'\u20ac') CHARACTER SET dec8", "'[') CHARACTER SET swe7",
    "'\u00e9') CHARACTER SET eucjpms", "'~') CHARACTER SET sjis"])  # fmt: skip
def test_members_that_the_server_may_have_changed_are_not_believed(members: str) -> None:
    """It writes ? for what the character set lacks, strict or not."""
    assert isinstance(_one(f"CREATE TABLE t (e ENUM({members})"), Unresolved)
    assert isinstance(_one("CREATE TABLE t (e SET('\u00e9','\u00fc') CHARACTER SET latin1)"), TableDefinition)


@pytest.mark.parametrize(
    ("members", "old", "new", "known"),
    [("'a'", "latin1", "utf8mb4", True), ("'é'", "utf8mb4", "utf8mb4", True), ("'a'", "latin1", "binary", True),
     ("'é'", "latin1", "utf8mb4", False), ("'a'", "ucs2", "latin1", False), ("'a'", "latin1", "utf16", False)],
)  # fmt: skip
def test_a_conversion_takes_the_bytes_of_members_as_they_are(
    members: str, old: str, new: str, known: bool
) -> None:
    statements = f"CREATE TABLE t (e ENUM({members}) CHARACTER SET {old}); ALTER TABLE t CONVERT TO CHARACTER SET {new}"
    assert isinstance(_one(statements), TableDefinition) is known


_ORACLE, _MAXDB = 0x200, 0x1000


def test_types_have_other_meanings_under_other_sql_modes_of_mariadb() -> None:
    oracle = (
        "CREATE TABLE t (a DATE, b BLOB, c CLOB COLLATE latin1_bin, d NUMBER UNSIGNED, e NUMBER(7), f NUMBER(7,2),"
        " g RAW(9), h VARCHAR2(10) CHARACTER SET ucs2, i mariadb_schema.DATE, j BLOB(300), k TIMESTAMP(2),"
        " l maxdb_schema.timestamp)"
    )
    assert _text(_followed(oracle, "mariadb", sql_mode=_ORACLE)) == (
        "t: a datetime, b blob(4) binary, c text(4) latin1, d double unsigned, e decimal(7), f decimal(7),"
        " g varbinary(9) binary, h varchar(10) ucs2, i date, j blob binary, k timestamp(2), l datetime"
    )
    plain = "CREATE TABLE t (a TIMESTAMP(3), b oracle_schema.date, c mariadb_schema.timestamp, d oracle_schema.blob)"
    assert _text(_followed(plain, "mariadb", sql_mode=_MAXDB)) == (
        "t: a datetime(3), b datetime, c timestamp, d blob(2) binary"
    )
    for refused in ("CREATE TABLE t (a CLOB)", "CREATE TABLE t (a NUMBER(3))", "CREATE TABLE t (a RAW(3))"):
        assert isinstance(_one(refused, "mariadb"), Unresolved)
    assert isinstance(_one("CREATE TABLE t (a mariadb_schema.DATE)"), Unresolved)


def test_the_servers_own_text_of_a_create_select_may_lack_charsets() -> None:
    text = 'CREATE TABLE "t" (\n  "v" varchar(20) DEFAULT NULL,\n  "w" text CHARACTER SET latin1\n)'
    no_options = 0x4000 | 0x4
    for table in (_one(text, "mariadb", no_options), _one(text, "mysql", 0x40000 | 0x4)):
        assert isinstance(table, TableDefinition)
        assert ([column.charset for column in table.columns], table.charset) == ([None, "latin1"], None)
    written = _one('CREATE TABLE "t" ("v" varchar(20))', "mariadb", no_options)
    assert isinstance(written, TableDefinition)
    assert (written.columns[0].charset, written.charset) == ("latin1", "latin1")


def test_a_new_column_of_an_old_name_takes_its_keys_over() -> None:
    begin = "CREATE TABLE t (a INT NOT NULL, b VARCHAR(20) NOT NULL, UNIQUE kb (b), UNIQUE ka (a));"
    for alter, expected in [
        (
            "CHANGE b c VARCHAR(30) NOT NULL, ADD b VARCHAR(90) NOT NULL FIRST",
            [("ka", "a", None), ("kb", "b", 20)],
        ),
        (
            "CHANGE b c VARCHAR(30) NOT NULL, ADD b VARCHAR(90) NOT NULL",
            [("kb", "c", None), ("ka", "a", None)],
        ),
        ("DROP b, ADD b VARCHAR(15) NOT NULL", [("kb", "b", None), ("ka", "a", None)]),
        ("DROP b, ADD b INT NOT NULL", [("kb", "b", None), ("ka", "a", None)]),
        ("RENAME COLUMN a TO b, RENAME COLUMN b TO a", [("kb", "a", None), ("ka", "b", None)]),
        ("DROP b", [("ka", "a", None)]),
    ]:
        table = _one(f"{begin} ALTER TABLE t {alter}")
        assert isinstance(table, TableDefinition)
        assert [(k.name, k.parts[0].name, k.parts[0].prefix) for k in table.keys] == expected, alter
    assert isinstance(_one(f"{begin} ALTER TABLE t DROP a, ADD a VARCHAR(9) NOT NULL"), Unresolved)


def test_of_attributes_that_gainsay_each_other_the_last_one_holds() -> None:
    text = "CREATE TABLE t (a INT INVISIBLE VISIBLE, b INT VISIBLE INVISIBLE, c INT NOT NULL NULL, d INT NULL NOT NULL)"
    assert _text(_followed(text)) == "t: a int, b int invisible, c int, d int not-null"


def test_spellings_that_only_one_of_the_servers_has() -> None:
    assert _text(
        _followed("CREATE TABLE t (a NCHAR VARYING(4) BINARY, b NATIONAL VARCHAR(3) BINARY NOT NULL)")
    ) == ("t: a varchar(4) utf8mb3, b varchar(3) utf8mb3 not-null")
    periods = (
        "CREATE TABLE t (a DATE, b DATE, period INT); ALTER TABLE t ADD PERIOD IF NOT EXISTS FOR p (a, b);"
        "ALTER TABLE t DROP PERIOD IF EXISTS FOR p, ADD PERIOD FOR q (a, b); ALTER TABLE t DROP period"
    )
    assert _text(_followed(periods, "mariadb")) == "t: a date not-null, b date not-null"
