"""DML on a few small tables with few distinct keys, so that statements collide often."""

from __future__ import annotations

from random import Random

import pymysql

from compose.databases import Database

DATABASE = "river"

# Complete, so that both flavors accept it and use the same character set.
SCHEMA = (
    "CREATE DATABASE river DEFAULT CHARSET utf8mb4 COLLATE utf8mb4_general_ci",
    "CREATE TABLE river.plain (id INT PRIMARY KEY, v INT, d DECIMAL(10,3), at DATETIME(6) NULL)",
    "CREATE TABLE river.uniques (id INT PRIMARY KEY, u VARCHAR(10) NOT NULL, n INT, UNIQUE KEY (u), UNIQUE KEY (n))",
    "CREATE TABLE river.composite (a INT, b VARCHAR(10), v BIGINT UNSIGNED, PRIMARY KEY (b, a))",
    "CREATE TABLE river.named (name VARCHAR(20) PRIMARY KEY, v INT)",
    "CREATE TABLE river.bag (x INT, y FLOAT, z VARCHAR(20))",
    "CREATE TABLE river.parent (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE river.child (id INT PRIMARY KEY, parent INT, FOREIGN KEY (parent) REFERENCES parent (id)"
    " ON DELETE CASCADE ON UPDATE CASCADE)",
    "CREATE TABLE river.blobs (id INT PRIMARY KEY, b BLOB, j JSON, e ENUM('x','y','it''s'))",
)

_STATEMENTS = (
    "INSERT INTO plain VALUES ({i}, {j}, {i}.{j}, '2026-01-01 00:00:00.00000{k}')",
    "UPDATE plain SET v = v + 1 WHERE id IN ({i}, {j})",
    "UPDATE plain SET id = {j} WHERE id = {i}",
    "DELETE FROM plain WHERE id = {i}",
    "REPLACE INTO plain VALUES ({i}, {j}, NULL, NULL)",
    "INSERT INTO uniques VALUES ({i}, 'k{j}', {k})",
    "REPLACE INTO uniques VALUES ({i}, 'k{j}', {k})",
    "UPDATE uniques SET u = 'k{j}' WHERE id = {i}",
    "UPDATE uniques SET n = NULL WHERE id = {i}",
    "UPDATE uniques SET n = {k} WHERE id = {i}",
    "DELETE FROM uniques WHERE u = 'k{i}'",
    "INSERT INTO composite VALUES ({k}, 'k{j}', 18446744073709551615 - {i})",
    "UPDATE composite SET a = a + 1 WHERE b = 'k{j}' ORDER BY a DESC",
    "DELETE FROM composite WHERE b = 'k{i}'",
    "INSERT INTO named VALUES ('Name{k}', {i})",
    "UPDATE named SET name = UPPER(name) WHERE name = 'name{k}'",
    "UPDATE named SET name = 'naMe{k} ' WHERE name = 'Name{k}'",
    "DELETE FROM named WHERE name = 'NAME{k}'",
    "INSERT INTO bag VALUES ({k}, {i}.1, 'n{k}'), ({k}, {i}.1, 'N{k}'), ({k}, NULL, NULL)",
    "UPDATE bag SET y = y / 3 WHERE x = {k} LIMIT 2",
    "DELETE FROM bag WHERE x = {k} LIMIT 2",
    "INSERT INTO parent VALUES ({i}, {j})",
    "INSERT INTO child VALUES ({i}, {j})",
    "UPDATE parent SET id = {j} WHERE id = {i}",
    "UPDATE parent SET v = {j} WHERE id = {i}",
    "DELETE FROM parent WHERE id = {i}",
    "UPDATE child SET parent = {j} WHERE id = {i}",
    "DELETE FROM child WHERE id = {i}",
    "INSERT INTO blobs VALUES ({i}, x'00ff27{k}{k}', '{{\"a\": [{j}, 1.5, null]}}', 'it''s')",
    "UPDATE blobs SET j = JSON_SET(j, '$.b', '🦊'), e = 'y' WHERE id = {i}",
    "DELETE FROM blobs WHERE id = {i}",
)
# Duplicate key, foreign key refused (two kinds), key too long for the range: the statement did nothing.
_EXPECTED = {1062, 1451, 1452}


def run_dml(server: Database, seed: int, statements: int) -> None:
    """Run random statements, some of them in transactions, some of these rolled back."""
    random = Random(seed)
    with server.connect(database=DATABASE) as connection, connection.cursor() as cursor:
        for _ in range(statements):
            if random.random() < 0.1:
                cursor.execute(random.choice(("BEGIN", "BEGIN", "COMMIT", "ROLLBACK")))
            i, j, k = random.randrange(12), random.randrange(12), random.randrange(6)
            try:
                cursor.execute(random.choice(_STATEMENTS).format(i=i, j=j, k=k))
            except pymysql.MySQLError as error:
                if error.args[0] not in _EXPECTED:
                    raise
        cursor.execute("COMMIT")


def run_ddl(server: Database, number: int) -> None:
    """Run DDL on tables that the DML uses, and on short-lived tables."""
    server.execute(
        "USE river",
        f"ALTER TABLE plain ADD COLUMN extra{number} VARCHAR(20) DEFAULT 'x'",
        f"CREATE TABLE temp{number} (id INT PRIMARY KEY, v VARCHAR(10))",
        f"INSERT INTO temp{number} VALUES (1, 'a'), (2, 'b')",
        f"CREATE TABLE copy{number} AS SELECT * FROM uniques",
        f"TRUNCATE TABLE temp{number}",
        f"INSERT INTO temp{number} VALUES (3, 'c')",
        f"RENAME TABLE temp{number} TO kept{number}, copy{number} TO temp{number}",
        f"CREATE INDEX extra{number} ON plain (extra{number})",
        f"DROP TABLE temp{number}",
        f"ALTER TABLE plain DROP COLUMN extra{number}",
    )


#: a table without transactions, for ``run_flat``
FLAT = "CREATE TABLE river.flat (id INT PRIMARY KEY, u INT NOT NULL UNIQUE, v INT) ENGINE=MyISAM"
_FLAT_STATEMENTS = (
    "INSERT INTO river.flat VALUES ({i}, {j}, {k}), ({i} + 20, {j} + 20, {k}), ({i} + 40, {j} + 40, {k})",
    "UPDATE river.flat SET v = v + 1 WHERE id % 5 = {k} % 5",
    "UPDATE river.flat SET u = u + 100 - 200 * (u > 99) WHERE id < {i} ORDER BY u",
    "UPDATE river.flat SET id = id + 7 WHERE id = {i}",
    "DELETE FROM river.flat WHERE u % 20 = {j}",
)


def run_flat(server: Database, seed: int, statements: int) -> None:
    """Run random statements on ``FLAT``; those that fail at a duplicate key have done part of their work."""
    random = Random(seed)
    with server.connect() as connection, connection.cursor() as cursor:
        for _ in range(statements):
            i, j, k = random.randrange(12), random.randrange(12), random.randrange(6)
            try:
                cursor.execute(random.choice(_FLAT_STATEMENTS).format(i=i, j=j, k=k))
            except pymysql.MySQLError as error:
                if error.args[0] not in _EXPECTED:
                    raise
