"""Rows of a SELECT become the same bytes as the same rows in the binlog, on real servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymysql.connections import Connection

from compose.databases import Database
from producer.copy.row_encoder import MAX_PACKET, CopySource, copied_values, session_setup
from producer.structures.forms import predicted
from producer.upstream.structures import shown_table
from schemas.ddl.table_definition import TableDefinition
from schemas.errors import DecodeError
from schemas.quote import quoted
from schemas.structure import TableStructure
from schemas.wire.avro_schema import row_schema
from tests.support.binlogs.binlog_rows import Row, binlog_end, rows_since
from tests.support.binlogs.selected import after_of, inserted, selected
from tests.support.statements.value_types import JSON_SCALARS, LOOSE, types_of

pytestmark = pytest.mark.servers

Run = Callable[..., None]


@pytest.fixture
def reader(upstream: Database, flavor: str) -> Iterator[Connection[Any]]:
    """A connection as a copy has it."""
    with upstream.connect() as connection, connection.cursor() as cursor:
        for statement in session_setup("mysql" if flavor == "mysql" else "mariadb"):
            cursor.execute(statement)
        yield connection


@pytest.fixture
def run(upstream: Database) -> Iterator[Run]:
    """Runs statements in a fresh database of this test."""
    with upstream.connect() as connection, connection.cursor() as cursor:

        def execute(*statements: str) -> None:
            for statement in statements:
                cursor.execute(statement)

        execute(
            "DROP DATABASE IF EXISTS copied", "CREATE DATABASE copied CHARACTER SET utf8mb4", "USE copied"
        )
        execute("SET NAMES utf8mb4", LOOSE, "SET SESSION time_zone='+00:00'")
        yield execute
        execute("DROP DATABASE copied")


@pytest.fixture
def check(upstream: Database, reader: Connection[Any], run: Run) -> Callable[[Sequence[str]], list[Row]]:
    """Runs INSERTs, and expects that the tables, empty before, are copied as the binlog has their rows."""

    def inserts(statements: Sequence[str]) -> list[Row]:
        begin = binlog_end(upstream)
        run(*statements)
        rows = rows_since(upstream, begin, "copied.*")
        for structure, expected in inserted(rows).items():
            assert sorted(selected(reader, structure)) == sorted(expected), structure.name
        return rows

    return inserts


Check = Callable[[Sequence[str]], list[Row]]


def test_every_type(check: Check, run: Run, flavor: str) -> None:
    """Every type, NULL or NOT NULL, in a table with a key and in one without, and as the key itself."""
    statements, tables = [], 0
    for i, (sql_type, literals, is_key) in enumerate(types_of(flavor)):
        values = ", ".join(f"({n}, {literal})" for n, literal in enumerate(literals))
        not_null = sql_type.removesuffix(" NULL") + " NOT NULL"
        run(
            f"CREATE TABLE t{i} (id INT PRIMARY KEY, v {sql_type})",
            f"CREATE TABLE n{i} (id INT, v {sql_type})",
            f"CREATE TABLE m{i} (id INT PRIMARY KEY, v {not_null})",
        )
        statements += [f"INSERT INTO {name}{i} VALUES {values}" for name in "tnm"]
        statements += [f"INSERT INTO {name}{i} VALUES (1000, NULL), (1001, NULL)" for name in "tn"]
        tables += 3
        if is_key:
            run(f"CREATE TABLE k{i} (n INT, v {not_null}, PRIMARY KEY (v, n))")
            statements += [f"INSERT INTO k{i} VALUES {values}"]
            tables += 1
    assert len({row.structure for row in check(statements)}) == tables


_TABLES = {
    "generated": (
        "id INT PRIMARY KEY, a INT, v INT AS (a + 1) VIRTUAL, s INT AS (a * 2) STORED, t TEXT AS (CONCAT(a, 'é')),"
        " z INT",
        "(id, a, z) VALUES (1, 5, 6), (2, NULL, 0)",
    ),
    "generated, no key": ("a INT, v INT AS (a + 1), KEY (v)", "(a) VALUES (5), (NULL), (5)"),
    "invisible": (
        "id INT PRIMARY KEY, a INT INVISIBLE DEFAULT 7, b TEXT",
        "(id, b) VALUES (1, 'x'), (2, NULL)",
    ),
    "with zeros": (
        "id INT(8) ZEROFILL PRIMARY KEY, b BIGINT ZEROFILL, d DECIMAL(10,2) ZEROFILL, f FLOAT ZEROFILL, g DOUBLE(12,3)"
        " ZEROFILL",
        "VALUES (1, 2, 3.5, 4.25, 5.125), (42, NULL, 0, 0, 0)",
    ),
    "doubled members": (
        "id INT PRIMARY KEY, a ENUM('a','a','','b'), b SET('x','x','','y')",
        "VALUES (1, 1, 1), (2, 2, 2), (3, 3, 4), (4, 4, 8), (5, 0, 0), (6, NULL, 15), (7, 1, 6)",
    ),
    "members as key": (
        "a ENUM('','A','a','é','e') CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY, b SET('a','b')",
        "VALUES (1, 1), (2, 2), (3, 3), (4, 0), (0, NULL)",
    ),
    "padding": (
        "id INT PRIMARY KEY, a CHAR(10), b CHAR(10) CHARACTER SET ucs2, c CHAR(10) CHARACTER SET utf16le, d CHAR(10)"
        " CHARACTER SET binary, e CHAR(200) CHARACTER SET utf32, f VARCHAR(10) CHARACTER SET latin1",
        "VALUES (1, 'x  ', 'x  ', 'x  ', X'780000', 'x', X'787F80'), (2, '', '', '', '', '', ''), (3, NULL, NULL, NULL,"
        " NULL, NULL, NULL), (4, CONCAT('a', CHAR(0)), CONCAT('a', CHAR(0)), 'é😀', 'a ', 'é', 'a  '), (5,"
        " REPEAT('é', 10), '  ', '   ', REPEAT(' ', 10), REPEAT('é', 200), REPEAT(' ', 10))",
    ),
    "several keys": (
        "a VARCHAR(20), b INT, c DATE, PRIMARY KEY (c, a, b)",
        "VALUES ('it''s', -5, '2024-01-01'), ('', 70000, '0000-00-00')",
    ),
    "a part of the key": ("a VARCHAR(50), b INT, PRIMARY KEY (b, a(3))", "VALUES ('abcdef', 1), ('é', 2)"),
    "a unique key": ("a INT NOT NULL, b VARCHAR(9) NOT NULL, UNIQUE (b, a)", "VALUES (1, 'a'), (2, 'b')"),
    "od`d {x}": ("`i d``` INT PRIMARY KEY, `ü` JSON, `a{b}` BLOB", "VALUES (1, '{}', 'x')"),
}
_MYSQL_TABLES = {
    "no key": ("a INT", "(a) VALUES (7), (NULL)"),
    "functional keys": (
        "id INT PRIMARY KEY, a VARCHAR(20), b JSON, KEY ((LOWER(a))), KEY ((CAST(b->'$.x' AS UNSIGNED ARRAY)))",
        """VALUES (1, 'AbC', '{"x": [1, 2], "u": "q"}')""",
    ),
    "documents": (
        "id INT PRIMARY KEY, tr_m JSON, tr_e JSON NOT NULL, tr_mv JSON, n INT AS (tr_m->'$.a')",
        """(id, tr_m, tr_e, tr_mv) VALUES (1, '{"a": 1}', '[]', NULL),
           (2, NULL, JSON_OBJECT('a', 1.50), JSON_ARRAY(1, CAST(2 AS UNSIGNED)))""",
    ),
}  # fmt: skip
_MARIADB_TABLES = {
    "versioned": ("id INT PRIMARY KEY, a INT) WITH SYSTEM VERSIONING COMMENT=''", "VALUES (1, 2), (2, NULL)"),
    "versioned, no key": ("a INT) WITH SYSTEM VERSIONING COMMENT=''", "VALUES (1), (NULL)"),
    "versioned by columns": (
        "id INT PRIMARY KEY, s TIMESTAMP(6) GENERATED ALWAYS AS ROW START, e TIMESTAMP(6) GENERATED ALWAYS AS ROW END"
        " INVISIBLE, PERIOD FOR SYSTEM_TIME (s, e)) WITH SYSTEM VERSIONING COMMENT=''",
        "(id) VALUES (1), (2)",
    ),
    "addresses": (
        "u UUID PRIMARY KEY, i INET6, j INET4, b BINARY(16), b4 BINARY(4)",
        "VALUES ('123e4567-e89b-12d3-a456-426655440000', '::1', '1.2.3.4', X'0102', ''),"
        " ('fedcba98-7654-7321-8000-00000000ff00', NULL, NULL, NULL, NULL),"
        " ('00000000-0000-0000-0000-000000000001', '::ffff:1.2.3.4', '0.0.0.0', REPEAT(' ', 16), '    ')",
    ),
    "generated from generated": (
        "id INT PRIMARY KEY, a INT, v INT AS (a + 1) VIRTUAL INVISIBLE, w INT AS (v + 1) PERSISTENT",
        "(id, a) VALUES (1, 1), (2, NULL)",
    ),
}


def test_every_character_set(upstream: Database, check: Check, run: Run) -> None:
    """Whatever bytes there are in a column come as they are."""
    charsets = [
        row[0] for row in upstream.execute("SHOW CHARACTER SET") if row[0] not in ("binary", "filename")
    ]
    for charset in charsets:
        types = ("CHAR(200)", "VARCHAR(10)", "TEXT", "ENUM('a','~','z')")
        columns = ", ".join(f"c{i} {sql_type} CHARACTER SET {charset}" for i, sql_type in enumerate(types))
        run(f"CREATE TABLE {charset} (id INT PRIMARY KEY, {columns})")
    texts = ["''", "' a '", "'~'", "'Aé日\\ж¥ß'", "CHAR(0, 10, 127)", "'ｱ'"]
    # Characters that it does not have become question marks.
    check([
        f"INSERT IGNORE INTO {charset} VALUES ({number}, {text}, {text}, REPEAT({text}, 100), 2)"
        for charset in charsets
        for number, text in enumerate(texts)
    ])  # fmt: skip


def _predicted(upstream: Database, table: str) -> TableStructure | None:
    """A table's structure, as a copy knows it before the binlog has one."""
    ((_, statement),) = upstream.execute(f"SHOW CREATE TABLE copied.{quoted(table)}")
    definition = shown_table(statement, "copied", upstream.flavor)
    assert isinstance(definition, TableDefinition)
    return predicted("copied", table, definition, upstream.flavor, shown=True)


def test_columns_of_every_kind(upstream: Database, check: Check, run: Run, flavor: str) -> None:
    """Generated, invisible, the servers' own; padding, members with the same name, and names that need quotes.

    Each table's structure in the binlog is the one that is predicted from its definition.
    """
    tables = _TABLES | (_MYSQL_TABLES if flavor == "mysql" else _MARIADB_TABLES)
    if flavor == "mysql":
        run("SET SESSION sql_generate_invisible_primary_key = ON")
    for name, (columns, _) in tables.items():
        run(f"CREATE TABLE {quoted(name)} ({columns}" + ("" if columns.endswith("''") else ")"))
    rows = check([f"INSERT INTO {quoted(name)} {values}" for name, (_, values) in tables.items()])
    structures = {row.structure.table: row.structure for row in rows}
    assert set(structures) == set(tables)
    # The producer does not track a definition with a period of its own.
    tracked = {name: structure for name, structure in structures.items() if name != "versioned by columns"}
    assert tracked == {name: _predicted(upstream, name) for name in tracked}


@pytest.mark.parametrize("flavor", ["mariadb"])
def test_the_hash_of_a_unique_key_is_left_out(upstream: Database, reader: Connection[Any], run: Run) -> None:
    """No SELECT shows the hidden column; everything else of the row is the same."""
    run("CREATE TABLE h (a TEXT NOT NULL, b BLOB, UNIQUE (b), UNIQUE (a) USING HASH) WITH SYSTEM VERSIONING")
    begin = binlog_end(upstream)
    run("INSERT INTO h VALUES ('a', 'b'), ('c', NULL)")
    ((structure, expected),) = inserted(rows_since(upstream, begin, "copied.*")).items()
    assert [column.name for column in structure.columns[4:]] == ["DB_ROW_HASH_1", "DB_ROW_HASH_2"]
    assert _predicted(upstream, "h") == structure
    # NULL and 0 instead of two numbers.
    for (key, after), (its_key, its_after) in zip(selected(reader, structure), expected, strict=True):
        assert key == its_key
        assert after.endswith(b"\0\x02\0")
        assert its_after.startswith(after[:-3])


@pytest.mark.parametrize("flavor", ["mariadb"])
def test_the_history_of_a_versioned_table(upstream: Database, reader: Connection[Any], run: Run) -> None:
    """What the binlog's changes leave, by key, is what FOR SYSTEM_TIME ALL shows; without it, the present rows."""
    run("CREATE TABLE s (id INT PRIMARY KEY, a INT) WITH SYSTEM VERSIONING")
    begin = binlog_end(upstream)
    run("INSERT INTO s VALUES (1, 1), (2, NULL), (3, 3)", "UPDATE s SET a = 7 WHERE id > 1",
        "DELETE FROM s WHERE id = 3", "UPDATE s SET id = 4 WHERE id = 2")  # fmt: skip
    rows = rows_since(upstream, begin, "copied.*")
    left: dict[bytes, bytes] = {}
    for row in rows:
        if row.op == "d":
            del left[row.key]
        else:
            left[row.key] = after_of(row)
    structure = rows[0].structure
    assert structure.key == ("id", "row_end")
    history = selected(reader, structure, "FOR SYSTEM_TIME ALL")
    assert sorted(history) == sorted(left.items())
    present = selected(reader, structure)
    assert len(present) == 2
    assert set(present) < set(history)


@pytest.mark.parametrize("flavor", ["mariadb"])
def test_a_year_of_two_digits_is_refused(upstream: Database, reader: Connection[Any], run: Run) -> None:
    run("CREATE TABLE y (id INT PRIMARY KEY, y YEAR(2))")
    begin = binlog_end(upstream)
    run("INSERT INTO y VALUES (1, 2000)")
    (row,) = rows_since(upstream, begin, "copied.*")
    with pytest.raises(DecodeError, match="column y has the text b'00'"):
        selected(reader, row.structure)


def _documents(scalars: Sequence[str]) -> list[str]:
    """Expressions of documents that have each scalar alone, as a member and as an element on several levels."""
    inside = "JSON_OBJECT('é', {0}, 'b', JSON_ARRAY({0}, 7))"
    nested = (
        f"JSON_OBJECT('k\"e*/y', JSON_ARRAY(1.0, {{0}}, '*/', {inside}), 'it''s', JSON_OBJECT('', {{0}}))"
    )
    return [
        *(f"JSON_ARRAY({scalar})" for scalar in scalars),
        *(nested.format(scalar) for scalar in scalars),
        *(f"CAST({scalar} AS JSON)" for scalar in scalars[:10]),
        f"JSON_ARRAY({', '.join(scalars)})",
        "'[0, 32768, 2147483648, 4294967295, 4294967296, 9223372036854775807, -2147483649, 1.5, 1e3]'",
        "JSON_ARRAY(CAST(4294967295 AS UNSIGNED), CAST(4294967296 AS UNSIGNED), 4294967296, 4294967295, -1, -0e0)",
        "JSON_ARRAY('2024-01-01', 'base64:type15:AP8=', CAST('2024-01-01' AS DATE), X'00FF', TRUE, JSON_ARRAY(NULL))",
        "CONCAT(REPEAT('[', 100), REPEAT(']', 100))",
        """CONCAT(REPEAT('{"a": [1, ', 50), '2', REPEAT(']}', 50))""",
        "JSON_ARRAY(CHAR(127 USING utf8mb4), CAST(1 AS UNSIGNED), '\\u2028', CHAR(1 USING utf8mb4))",
        "JSON_OBJECT('0', 1, '00', 1.5, 'a\"b', 2.5)",
        "'null'", "JSON_ARRAY()", "'\"\"'",
    ]  # fmt: skip


@pytest.mark.parametrize("flavor", ["mysql"])
def test_typed_scalars_in_documents(check: Check, run: Run) -> None:
    """DECIMAL, dates, bytes, unsigned numbers: the same text, paths and types as in the binary document."""
    columns = ", ".join(f"c{i} {sql_type}" for i, sql_type in enumerate(JSON_SCALARS))
    values = ", ".join(value for value, _ in JSON_SCALARS.values())
    run(f"CREATE TABLE source ({columns})", f"INSERT INTO source VALUES ({values})")
    run("CREATE TABLE j (id INT PRIMARY KEY, v JSON, w JSON NOT NULL)")
    documents = _documents([f"c{i}" for i in range(len(JSON_SCALARS))])
    statements = [f"INSERT INTO j SELECT {i}, {d}, {d} FROM source" for i, d in enumerate(documents)]
    # An empty document, which is none, and which a server accepts without strict mode.
    rows = check(
        [*statements, "INSERT INTO j VALUES (1000, NULL, '{}')", "INSERT IGNORE INTO j (id) VALUES (1001)"]
    )
    assert sum(isinstance(row.avro()["after"]["v"], dict) for row in rows) > len(documents) / 2


@pytest.mark.parametrize("flavor", ["mysql"])
def test_bytes_that_sql_cannot_make_again_stop_a_copy_too(
    upstream: Database, reader: Connection[Any], run: Run
) -> None:
    run("CREATE TABLE j (id INT PRIMARY KEY, v JSON)")
    begin = binlog_end(upstream)
    run("INSERT INTO j VALUES (1, '1')")
    (row,) = rows_since(upstream, begin, "copied.*")
    run("SET SESSION sql_log_bin = 0", "CREATE TABLE b (v TINYBLOB)", "INSERT INTO b VALUES ('x')",
        "INSERT INTO j SELECT 2, JSON_ARRAY(1, v) FROM b")  # fmt: skip
    with pytest.raises(DecodeError, match="TR417"):
        selected(reader, row.structure)


def test_types_that_do_not_fit_into_a_packet_are_refused(mysql_server: Callable[..., Database]) -> None:
    """The server would leave the rest of the list out, or all of it, with no more than a warning."""
    server = mysql_server(args=["--max-allowed-packet=1M"])
    many = "SELECT CONCAT('[', REPEAT('1,', {}), '2]') AS t"
    made = "(SELECT JSON_ARRAYAGG(CAST(a AS UNSIGNED)) FROM JSON_TABLE(q.t, '$[*]' COLUMNS (a INT PATH '$')) AS j)"
    server.execute("CREATE DATABASE copied", "CREATE TABLE copied.j (id INT PRIMARY KEY, v JSON)")
    begin = binlog_end(server)
    server.execute(
        *(
            f"INSERT INTO copied.j SELECT {count}, {made} FROM ({many.format(count)}) AS q"
            for count in (30_000, 60_000)
        )
    )
    fits, too_many = rows_since(server, begin, "copied.*")
    with server.connect() as reader, reader.cursor() as cursor:
        for statement in session_setup("mysql"):
            cursor.execute(statement)
        assert selected(reader, fits.structure, "WHERE id = 30000") == [(fits.key, after_of(fits))]
        with pytest.raises(DecodeError, match=r"TR405.*60001 scalars"):
            selected(reader, too_many.structure)


def _expressions(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    keys = st.sampled_from(["a", "b", "aa", "k e", "é", "x'y", 'q"r', "\\", "0", ""])
    members = st.dictionaries(keys, inner, max_size=5).map(
        lambda d: ", ".join(f"'{k.replace(chr(39), 2 * chr(39))}', {v}" for k, v in d.items())
    )
    return members.map("JSON_OBJECT({})".format) | st.lists(inner, max_size=5).map(
        lambda items: f"JSON_ARRAY({', '.join(items)})"
    )


_SQL_SCALARS = st.one_of(
    st.sampled_from(["NULL", "TRUE", "1.5e0", "'x'", "X'00FF'", "CAST('10:00:00.5' AS TIME(6))", "REPEAT('A', 99)",
                     "CAST('2024-02-29' AS DATE)", "TIMESTAMP'2024-02-29 01:02:03'", "'base64:type15:AP8='",
                     "CAST(REPEAT('A', 99) AS BINARY)"]),
    st.integers(-(1 << 63), (1 << 63) - 1).map(str),
    st.integers(-5, 5).map(str),
    st.integers(0, (1 << 64) - 1).map("CAST({} AS UNSIGNED)".format),
    st.integers(0, 5).map("CAST({} AS UNSIGNED)".format),
    st.decimals(-999, 999, places=3).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda n: f"({n!r}{'' if 'e' in repr(n) else 'e0'})"),
)  # fmt: skip


@pytest.mark.parametrize("flavor", ["mysql"])
@settings(
    max_examples=60, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(st.lists(st.recursive(_SQL_SCALARS, _expressions, max_leaves=30), min_size=1, max_size=10))
def test_random_documents(check: Check, run: Run, documents: list[str]) -> None:
    run("DROP TABLE IF EXISTS j", "CREATE TABLE j (id INT PRIMARY KEY AUTO_INCREMENT, v JSON)")
    check(
        [f"INSERT INTO j (v) VALUES (JSON_EXTRACT(JSON_ARRAY({document}), '$[0]'))" for document in documents]
    )


def _hex(data: bytes) -> str:
    return f"X'{data.hex()}'"


_BYTES = st.binary(max_size=20)
_TEXTS = st.text(st.characters(codec="utf-8"), max_size=20).map(
    lambda text: f"_utf8mb4 {_hex(text.encode())}"
)
_COLUMNS: dict[str, st.SearchStrategy[str]] = {
    "INT": st.integers(-(1 << 31), (1 << 31) - 1).map(str),
    "BIGINT": st.integers(-(1 << 63), (1 << 63) - 1).map(str),
    "BIGINT UNSIGNED": st.integers(0, (1 << 64) - 1).map(str),
    "MEDIUMINT UNSIGNED": st.integers(0, (1 << 24) - 1).map(str),
    "DECIMAL(65,30)": st.decimals(-(10**34), 10**34, places=30).map("{:f}".format),
    "DECIMAL(5,0)": st.integers(-99999, 99999).map(str),
    "DOUBLE": st.floats(allow_nan=False, allow_infinity=False).map(lambda n: f"{n!r}{'' if 'e' in repr(n) else 'e0'}"),
    "FLOAT": st.floats(width=32, allow_nan=False, allow_infinity=False).map(
        lambda n: f"{n!r}{'' if 'e' in repr(n) else 'e0'}"
    ),
    "DATE": st.dates().map("'{}'".format),
    "TIME(6)": st.integers(-3020399999999, 3020399999999).map(
        lambda n: f"'{'-' if n < 0 else ''}{abs(n) // 3600000000}:{abs(n) // 60000000 % 60}:"
                  f"{abs(n) // 1000000 % 60}.{abs(n) % 1000000:06}'"
    ),
    "DATETIME(3)": st.datetimes().map(lambda d: f"'{d.isoformat(' ', 'milliseconds')}'"),
    "TIMESTAMP(6) NULL": st.integers(1, (1 << 31) - 1).map("FROM_UNIXTIME({}.000001)".format),
    "BIT(33)": st.integers(0, (1 << 33) - 1).map(str),
    "VARCHAR(20) CHARACTER SET utf8mb4": _TEXTS,
    "CHAR(20) CHARACTER SET utf8mb4": _TEXTS,
    "TEXT CHARACTER SET utf16": _TEXTS,
    "VARCHAR(20) CHARACTER SET latin1": _BYTES.map(_hex),
    "CHAR(20) CHARACTER SET cp1251": _BYTES.map(_hex),
    "BINARY(20)": _BYTES.map(_hex),
    "VARBINARY(300)": st.binary(max_size=300).map(_hex),
    "BLOB": st.binary(max_size=300).map(_hex),
    "SET('a','b','c','d','e','f','g','h','i')": st.integers(0, 511).map(str),
    "ENUM('a','b')": st.integers(0, 2).map(str),
}  # fmt: skip


@settings(
    max_examples=40, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(
    st.lists(st.tuples(*(values | st.just("NULL") for values in _COLUMNS.values())), min_size=1, max_size=20)
)
def test_random_rows(check: Check, run: Run, rows: list[tuple[str, ...]]) -> None:
    columns = ", ".join(f"c{i} {sql_type}" for i, sql_type in enumerate(_COLUMNS))
    run("DROP TABLE IF EXISTS r", f"CREATE TABLE r (id INT PRIMARY KEY AUTO_INCREMENT, {columns})")
    values = ", ".join(f"(NULL, {', '.join(row)})" for row in rows)
    check([f"INSERT INTO r VALUES {values}"])


def test_a_thousand_columns(check: Check, run: Run) -> None:
    columns = ", ".join(f"c{i} {'INT' if i % 2 else 'VARCHAR(9)'}" for i in range(1000))
    run(f"CREATE TABLE wide (id INT PRIMARY KEY, {columns}) ENGINE=MyISAM")
    values = ", ".join(str(i) if i % 3 else "NULL" for i in range(1000))
    check([f"INSERT INTO wide VALUES (1, {values}), (2, {values})"])


def test_values_of_64_megabytes(check: Check, run: Run) -> None:
    """Rows in several packets between small ones; the last packet may be empty."""
    run("CREATE TABLE big (id INT PRIMARY KEY, v LONGBLOB, w LONGTEXT)")
    size, fields = (64 << 20) - 200, 2 + 4 + 2
    check([
        "INSERT INTO big VALUES (1, 'x', 'y')",
        f"INSERT INTO big VALUES (2, REPEAT('z', {size}), REPEAT('é', 1000))",
        f"INSERT INTO big VALUES (3, NULL, REPEAT('é', {size // 2}))",
        f"INSERT INTO big VALUES (4, REPEAT('z', {MAX_PACKET - fields - 1}), 'y')",
        f"INSERT INTO big VALUES (5, REPEAT('z', {MAX_PACKET - fields}), 'y')",
        f"INSERT INTO big VALUES (6, REPEAT('z', {2 * MAX_PACKET - fields - 5}), 'y')",
        "INSERT INTO big VALUES (7, 'x', 'y')",
    ])  # fmt: skip


def test_whole_values(upstream: Database, reader: Connection[Any], run: Run) -> None:
    """What a reader finds in the log: the binlog's row, with another operation and source."""
    run("CREATE TABLE v (id INT PRIMARY KEY, v VARCHAR(9))")
    begin = binlog_end(upstream)
    run("INSERT INTO v VALUES (1, 'a'), (2, NULL)")
    rows = rows_since(upstream, begin, "copied.*")
    structure = rows[0].structure
    afters = [after for _, after in selected(reader, structure)]
    source = CopySource("copied", "v", 7, "mysql-bin.000003", 1 << 33, 1_770_000_000_000, 1_770_000_000_001)
    first = 65_535
    values = copied_values(afters, row_schema(structure).header, 12, first, source)
    for seq, (row, value) in enumerate(zip(rows, values, strict=True), first):
        assert Row(structure, row.key, value).avro() == row.avro() | {
            "op": "r",
            "source": {
                "seq": seq, "epoch": 12, "flags": 0, "db": "copied", "table": "v", "server_id": 7, "gtid": None,
                "file": "mysql-bin.000003", "pos": 1 << 33, "ts_ms": 1_770_000_000_000,
            },
            "ts_ms": 1_770_000_000_001,
        }  # fmt: skip
