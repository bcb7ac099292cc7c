"""Makes the golden binlogs and their expected text: ``python -m tests.golden.binlogs.make``, from the checkout's top.
Names of folders as arguments make only these.

Every kind of event that the producer reads, and every family of types, in a few kilobytes of each server.
"""

from __future__ import annotations

import shutil
import sys
import tempfile

from compose.databases import Database, MariaDB, MySQL
from tests.support.binlogs.decoded import decoded_lines
from tests.support.golden.golden_binlogs import BINLOGS, FILE, SUBDIR

_TYPES = [
    "a TINYINT", "b BIGINT UNSIGNED", "c DECIMAL(20,7)", "d FLOAT", "e DOUBLE", "f BIT(11)", "g DATE", "h TIME(3)",
    "i DATETIME(6)", "j TIMESTAMP(1) NULL", "k YEAR", "l CHAR(5)", "m VARCHAR(300) CHARACTER SET latin1", "n TEXT",
    "o BINARY(4)", "p VARBINARY(9)", "q BLOB", "r ENUM('x','it''s')", "s SET('x','y','z')", "t GEOMETRY",
]  # fmt: skip
_VALUES = [
    "-5", "18446744073709551615", "-12.0000001", "1.5", "-0e0", "1025", "'2024-02-29'", "'-838:59:58.5'",
    "'9999-12-31 23:59:59.000001'", "'2024-01-01 00:00:00.5'", "1999", "'é😀'", "'é'", "'text'", "X'01'", "X'00FF'",
    "X'FF00'", "'it''s'", "'x,z'", "POINT(1,2)",
]  # fmt: skip
_SHARED = [
    f"CREATE TABLE types (id INT PRIMARY KEY, {', '.join(_TYPES)})",
    f"INSERT INTO types VALUES (1, {', '.join(_VALUES)}), (2{', NULL' * len(_TYPES)})",
    "UPDATE types SET id = 3, b = 1, n = NULL WHERE id = 1",
    "UPDATE types SET a = 1 WHERE id = 2",
    "DELETE FROM types",
    "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(50)) ENGINE=InnoDB",
    "CREATE TABLE m (v VARCHAR(5)) ENGINE=MyISAM",
    "INSERT INTO m VALUES ('x'), (NULL)",
    "XA START 'a','b',7", "INSERT INTO t VALUES (1, 'xa')", "XA END 'a','b',7", "XA PREPARE 'a','b',7",
    "XA COMMIT 'a','b',7",
    "XA START 'r'", "INSERT INTO t VALUES (9, 'never')", "XA END 'r'", "XA PREPARE 'r'", "XA ROLLBACK 'r'",
    "XA START 'o'", "UPDATE t SET v = 'one phase'", "XA END 'o'", "XA COMMIT 'o' ONE PHASE",
    "BEGIN", "INSERT INTO t VALUES (2, 'kept')", "SAVEPOINT s", "INSERT INTO t VALUES (3, 'lost')", "ROLLBACK TO s",
    "INSERT INTO t VALUES (4, 'kept')", "COMMIT",
]  # fmt: skip
_MYSQL = [
    "CREATE TABLE docs (id INT PRIMARY KEY, d JSON)",
    """INSERT INTO docs VALUES (1, JSON_OBJECT('a', 1.50, 'b', JSON_ARRAY(1, 1e0, NULL, TRUE, 'x'), 'c', X'00FF'))""",
    "SET SESSION binlog_row_value_options = PARTIAL_JSON",
    """UPDATE docs SET d = JSON_SET(JSON_REMOVE(d, '$.b[0]'), '$.a', 'new', '$.d', CAST('2024-02-29' AS DATE))""",
    "SET SESSION binlog_transaction_compression = ON",
    "INSERT INTO t VALUES (5, 'compressed')",
    "XA START 'z'", "INSERT INTO t VALUES (6, 'compressed XA')", "XA END 'z'", "XA PREPARE 'z'", "XA COMMIT 'z'",
    "CREATE TABLE made SELECT * FROM t",
]  # fmt: skip
_MARIADB = [
    "CREATE TABLE packed (id INT PRIMARY KEY, v VARCHAR(200) COMPRESSED, b BLOB COMPRESSED, i INET6, u UUID)",
    "INSERT INTO packed VALUES (1, REPEAT('a', 150), X'00', '::1', '123e4567-e89b-12d3-a456-426655440000')",
    "SET GLOBAL log_bin_compress = ON", "SET GLOBAL log_bin_compress_min_len = 10",
    "INSERT INTO packed VALUES (2, REPEAT('b', 90), REPEAT('c', 90), '::2', NULL)",
    "UPDATE packed SET v = REPEAT('c', 99)",
    "DELETE FROM packed",
    "SET SESSION binlog_alter_two_phase = ON",
    "ALTER TABLE t ADD COLUMN w VARCHAR(50) DEFAULT 'a default of some length'",
    "CREATE OR REPLACE TABLE made SELECT * FROM t",
]  # fmt: skip
_IMAGES = [
    "CREATE TABLE a (id INT AUTO_INCREMENT PRIMARY KEY, v INT NOT NULL DEFAULT 5, b VARCHAR(9), t TEXT, n INT NOT NULL,"
    " ts TIMESTAMP NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, g INT AS (v + 1) VIRTUAL,"
    " s INT AS (v + 2) STORED)",
    "CREATE TABLE two (x VARCHAR(9), y INT DEFAULT 7, v INT, bl BLOB, PRIMARY KEY (y, x))",
    "CREATE TABLE uk (k INT NOT NULL UNIQUE, v INT, t TEXT)",
    "CREATE TABLE no_key (v INT, t TEXT, s INT AS (v + 1) STORED)",
    "SET timestamp = 1700000000",
]  # fmt: skip
_UNDER_EACH = [
    "INSERT INTO a (b, n) VALUES ('b', 1), ('c', 2)", "INSERT INTO a () VALUES ()",
    "UPDATE a SET b = NULL WHERE id = 2", "UPDATE a SET v = 9, t = 'text'", "UPDATE a SET id = id + 10 WHERE id = 1",
    "INSERT INTO a (id, n) VALUES (2, 1) ON DUPLICATE KEY UPDATE b = 'dup'", "DELETE FROM a",
    "ALTER TABLE a AUTO_INCREMENT = 1",
    "INSERT INTO two (x, y) VALUES ('x', 1)", "UPDATE two SET y = 2", "UPDATE two SET bl = 'blob'", "DELETE FROM two",
    "INSERT INTO uk VALUES (1, 1, 't')", "UPDATE uk SET v = 2", "UPDATE uk SET k = 2", "DELETE FROM uk",
    "INSERT INTO no_key (v) VALUES (1), (1)", "UPDATE no_key SET t = 'u' LIMIT 1", "DELETE FROM no_key",
]  # fmt: skip


def _under(*images: str) -> list[str]:
    each = [[f"SET SESSION binlog_row_image = '{image}'", *_UNDER_EACH] for image in images]
    return [*_IMAGES, *(statement for statements in each for statement in statements)]


_DOCUMENTS = [
    "CREATE TABLE docs (id INT PRIMARY KEY, c JSON, d JSON, v INT)", "SET SESSION binlog_row_image = 'NOBLOB'",
    "INSERT INTO docs VALUES (1, '[0]', '{\"a\": \"some longer text\"}', 1)",
    "SET SESSION binlog_row_value_options = PARTIAL_JSON", "UPDATE docs SET d = JSON_SET(d, '$.a', 'x')",
    "SET SESSION binlog_row_image = 'MINIMAL'", "UPDATE docs SET v = 2", "UPDATE docs SET d = '{}'",
]  # fmt: skip
# What mysql-replication reads wrongly (tailrace/verify_rows/known.py).
_TRAPS = [
    "SET SESSION sql_mode = 'ALLOW_INVALID_DATES'", "SET SESSION time_zone = '+00:00'",
    "CREATE TABLE times (id INT PRIMARY KEY, d DATE, dt DATETIME(2), ts TIMESTAMP(3) NULL, y YEAR, t TIME(1))",
    "INSERT INTO times VALUES (1, '0000-00-00', '0000-00-00', '0000-00-00', '0000', '-00:00:00.9'),"
    " (2, '2024-00-01', '2024-02-30 01:02:03', '2024-01-01', '1901', '-12:34:56.1')",
    "INSERT INTO times (id, d) VALUES (3, '2024-02-30')",
    "CREATE TABLE texts (id INT PRIMARY KEY, e ENUM('é', '', 'b', 'b') CHARACTER SET latin1,"
    " s SET('a', 'é', 'a') CHARACTER SET latin1, b BINARY(3), l VARCHAR(9) CHARACTER SET latin1,"
    " w VARCHAR(9) CHARACTER SET swe7)",
    "INSERT INTO texts VALUES (1, 'é', '', X'61', _latin1 X'81', 'a'), (2, 4, 7, X'000100', 'é', ''),"
    " (3, 2, 'a', X'', '', NULL)",
    "SET SESSION sql_mode = ''", "UPDATE texts SET e = 0 WHERE id = 1",
]  # fmt: skip
_MYSQL_TRAPS = [
    "CREATE TABLE docs (id INT PRIMARY KEY, j JSON, v VECTOR(2))",
    "INSERT INTO docs VALUES (1, JSON_ARRAY(CAST('2024-02-29' AS DATE), CAST('-10:20:30.5' AS TIME(1)), X'00FF',"
    " CAST(1.50 AS DECIMAL(5,2)), TIMESTAMP'2024-02-29 01:02:03', CAST(5 AS UNSIGNED)), TO_VECTOR('[1,2]')),"
    " (2, JSON_OBJECT('far', CAST('100:00:00' AS TIME)), NULL),"
    " (3, '{\"plain\": [1, 1.0, -0.0, 1e300, \"x\", null, true]}', NULL)",
    "SET SESSION binlog_row_value_options = PARTIAL_JSON",
    "UPDATE docs SET j = JSON_SET(j, '$.plain[0]', 2) WHERE id = 3",
    "CREATE TABLE filled (id INT PRIMARY KEY)", "INSERT INTO filled VALUES (1)",
    "ALTER TABLE filled ADD COLUMN j JSON NOT NULL", "DELETE FROM filled",
    "SET GLOBAL binlog_row_metadata = MINIMAL", "SET SESSION binlog_row_image = MINIMAL",
    "UPDATE times SET y = 2000", "DELETE FROM texts",
]  # fmt: skip
_MARIADB_TRAPS = [
    "CREATE TABLE packed (id INT PRIMARY KEY, v VARCHAR(200) COMPRESSED, b BLOB COMPRESSED)",
    "INSERT INTO packed VALUES (1, REPEAT('a', 150), X'00')",
    "SET GLOBAL mysql56_temporal_format = OFF",
    "CREATE TABLE old (id INT PRIMARY KEY, t TIME(1), d DATETIME)", "INSERT INTO old VALUES (1, '-1:00:00.5', NOW())",
    "SET GLOBAL binlog_row_metadata = NO_LOG", "SET SESSION binlog_row_image = MINIMAL",
    "UPDATE times SET y = 2000", "DELETE FROM texts",
]  # fmt: skip
_GOLDENS: dict[str, tuple[type[Database], list[str]]] = {
    "mysql": (MySQL, [*_SHARED, *_MYSQL]),
    "mariadb": (MariaDB, [*_SHARED, *_MARIADB]),
    "mysql_images": (MySQL, [*_under("MINIMAL", "NOBLOB"), *_DOCUMENTS]),
    "mariadb_images": (MariaDB, _under("MINIMAL", "NOBLOB", "FULL_NODUP")),
    "mysql_values": (MySQL, [*_TRAPS, *_MYSQL_TRAPS]),
    "mariadb_values": (MariaDB, [*_TRAPS, *_MARIADB_TRAPS]),
}


def _make(server: Database, statements: list[str], name: str) -> None:
    rotate = "RESET MASTER" if server.flavor == "mariadb" else "RESET BINARY LOGS AND GTIDS"
    server.execute("CREATE DATABASE g", rotate)
    with server.connect(database="g") as connection, connection.cursor() as cursor:
        for statement in ["SET SESSION sql_mode = ''", *statements]:
            cursor.execute(statement)
    server.stop()
    folder = BINLOGS / name / SUBDIR
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(server.data / FILE, folder)
    lines = decoded_lines(folder.parent, SUBDIR, FILE, server.flavor)
    (folder.parent / "expected.txt").write_text("\n".join(lines) + "\n")


def main() -> None:
    """Make them."""
    for name in sys.argv[1:] or _GOLDENS:
        server_type, statements = _GOLDENS[name]
        with tempfile.TemporaryDirectory() as folder:
            server = server_type(folder)
            server.start()
            try:
                _make(server, statements, name)
            finally:
                server.kill()


if __name__ == "__main__":
    main()
