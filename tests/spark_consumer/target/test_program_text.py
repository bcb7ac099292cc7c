"""What stored programs do, told from their text: never too little."""

from __future__ import annotations

import pytest

from schemas.ddl.lexer import Dialect
from spark_consumer.target.programs.text import effects_of, query_effects

MYSQL, ANSI = Dialect("mysql"), Dialect("mysql", ansi_quotes=True)


@pytest.mark.parametrize(
    ("body", "tables"),
    [
        ("INSERT INTO s.audit VALUES (NEW.a, f(NEW.b))", "s.audit"),
        ("INSERT audit SELECT NEW.a FROM reads ON DUPLICATE KEY UPDATE n = n + 1", "audit"),
        ("INSERT IGNORE INTO t PARTITION (p0) SET a = 1, b = 2", "t"),
        ("REPLACE DELAYED t SET a = REPLACE('a', 'b', INSERT('c', 1, 1, 'd'))", "t"),
        (
            "UPDATE LOW_PRIORITY a JOIN s.b ON a.id = b.id, (SELECT * FROM reads) r SET b.x = 1 WHERE z IN (SELECT 1)",
            "a s.b",
        ),
        ("UPDATE (a JOIN (b STRAIGHT_JOIN c)) SET a.x = 1", "a b c"),
        ("UPDATE { OJ a LEFT OUTER JOIN b ON a.id = b.id } SET a.x = 1", "a b"),
        ("DELETE x FROM s.t x WHERE x.a = (SELECT MAX(a) FROM reads)", "x s.t"),
        ("DELETE FROM t1, t2 USING t1 JOIN s.t2 JOIN (SELECT * FROM reads) d WHERE 1", "t1 t2 s.t2"),
        ("BEGIN SELECT 1 INTO @x FROM reads FOR UPDATE; DELETE LOW_PRIORITY FROM t; END", "t"),
        ("TRUNCATE TABLE s.t", "s.t"),
        ("SELECT TRUNCATE(1.5, 0) INTO @z", ""),
        ("/*!50000 DELETE FROM t */", "t"),
        ("/* DELETE FROM t */ SELECT 'DELETE FROM u' INTO @x -- DELETE FROM v", ""),
        ("IF NEW.a THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'x', MYSQL_ERRNO = 1; END IF", ""),
    ],
)
def test_the_tables_that_a_program_changes(body: str, tables: str) -> None:
    found = effects_of(body, MYSQL)
    assert {".".join(path) for path in found.writes} == set(tables.split())
    assert found.doubt == ""


def test_the_routines_that_it_runs() -> None:
    body = "BEGIN CALL s.p(1); SET @x = f(1) + (SELECT `g`(a) FROM t JOIN u ON h(a, s.k(b)) = 1); END"
    calls = effects_of(body, MYSQL).calls
    assert {("s", "p"), ("f",), ("g",), ("h",), ("s", "k")} <= calls
    query = query_effects("select `f`(`o`.`x`) AS `y` from (`s`.`o` join `s`.`p` on(`g`(1,`k`(2))))", MYSQL)
    assert {("f",), ("g",), ("k",)} <= query.calls
    assert {("s", "o"), ("s", "p")} <= query.writes


@pytest.mark.parametrize(
    ("body", "columns"),
    [
        ("SET NEW.a = 1, new . `B` := 2, @c = NEW.c", "a b"),
        ("SET `NEW`.`a` = 1, /*!50000 NEW.b = 2 */", "a b"),
        ("SELECT a, b INTO @x, NEW.v FROM s ORDER BY a, NEW.c", "v"),
        ("BEGIN DECLARE n INT; FETCH cur INTO n, NEW.a; END", "a"),
        ("CALL s.p(NEW.a, UPPER(NEW.b), `new`.c, 1)", "a c"),
        ("NEW.a := NEW.b", "a"),
        ("IF NEW.a = 1 THEN SET @x = NEW.b = 2; END IF", ""),
        ("INSERT INTO audit SELECT NEW.a, NEW.b", ""),
        ("SET NEW.extra = CONCAT(NEW.v, '=', NEW.w)", "extra"),
    ],
)
def test_the_columns_of_the_new_row_that_it_may_set(body: str, columns: str) -> None:
    assert effects_of(body, MYSQL).assigned == set(columns.split())


def test_quotes_are_read_as_the_program_was_written() -> None:
    assert effects_of('SET "NEW"."a" = 1', ANSI).assigned == {"a"}
    assert effects_of('DELETE FROM "t"', ANSI).writes == {("t",)}
    escaped = r"SELECT 'it\'s; DELETE FROM t -- '"
    assert effects_of(escaped, MYSQL).writes == set()
    assert effects_of(escaped, Dialect("mysql", backslash_escapes=False)).writes == {("t",)}


@pytest.mark.parametrize(
    "body",
    [
        "BEGIN PREPARE s FROM @x; EXECUTE s; END",
        "EXECUTE IMMEDIATE 'DELETE FROM t'",
        "SET foreign_key_checks = 1",
        "BEGIN DECLARE n INT; SET n = 1, time_zone = '+05:00'; END",
        "SET @x = 1, @@sql_mode = ''",
        "SET SESSION sql_mode = ''",
        "SET NAMES latin1",
        "LOAD DATA INFILE 'x' INTO TABLE t",
        "ALTER EVENT e ENABLE",
        "DROP DATABASE d",
        "CREATE OR REPLACE VIEW v AS SELECT 1",
        "DELETE FROM `t",
    ],
)
def test_what_cannot_be_told_is_a_doubt(body: str) -> None:
    assert effects_of(body, MYSQL).doubt


def test_variables_of_its_own_are_none() -> None:
    body = """BEGIN DECLARE a, b INT DEFAULT 0; DECLARE s SET('x'); DECLARE c CHAR(3) CHARACTER SET latin1;
        DECLARE CONTINUE HANDLER FOR NOT FOUND SET a = 1; FOR r IN (SELECT 1) DO SET b = 2; END FOR; SET p = 3; END"""
    assert effects_of(body, MYSQL, {"p"}).doubt == ""
    assert "variable p" in effects_of(body, MYSQL).doubt


def test_ddl_on_tables_changes_them() -> None:
    found = effects_of("ALTER TABLE s.log DROP PARTITION p1", MYSQL)
    assert ("s", "log") in found.writes
    assert found.doubt == ""
    assert effects_of("DROP TEMPORARY TABLE IF EXISTS x", MYSQL).writes == set()
