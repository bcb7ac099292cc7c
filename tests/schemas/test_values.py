"""Every type's values, from a real server's binlog through Avro into SQL text, and back into the same server.

What was inserted and what the rendered statements insert must be equal to the last bit, in the server's own
eyes; and what fastavro reads from the records must be what a client of the server reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymysql.connections import Connection

from compose.databases import Database
from schemas.access.server_connection import ServerConnection
from schemas.errors import DecodeError
from schemas.quote import quoted
from schemas.sql.literals import SESSION_SETUP, compile_renderers
from schemas.sql.parameters import compile_parameters
from schemas.structure import TableStructure
from schemas.types.json_sql import typed_literal
from schemas.types.parameter import NoParameter
from schemas.varint import encode_bytes, encode_long
from schemas.wire.avro_schema import avro_name
from tests.support.binlogs.binlog_rows import Row, binlog_end, event_types, rows_since
from tests.support.statements.value_types import JSON_SCALARS, LOOSE, MYSQL_TYPES, types_of

pytestmark = pytest.mark.servers


def _exact(name: str, sql_type: str) -> str:
    """An expression that differs for any two values the server tells apart."""
    base = sql_type.split("(")[0].split()[0]
    if base in ("FLOAT", "DOUBLE"):
        return f"CONCAT(CAST(`{name}` AS DOUBLE), IF(CAST(`{name}` AS CHAR) LIKE '-%', '-', '+'))"
    if base in ("ENUM", "SET", "BIT"):
        return f"CONCAT(HEX(`{name}`), '/', `{name}` + 0)"
    if base == "GEOMETRY" or base in ("POINT", "VECTOR"):
        return f"HEX(`{name}`)"
    return f"HEX(CAST(`{name}` AS CHAR))" if base in _AS_TEXT else f"HEX(`{name}`)"


_AS_TEXT = {"DATE", "TIME", "DATETIME", "TIMESTAMP", "YEAR", "JSON", "DECIMAL", "INET4", "INET6", "UUID"}
_AS_TEXT |= {f"{size}INT" for size in ("TINY", "SMALL", "MEDIUM", "", "BIG")}


@pytest.fixture
def values_db(upstream: Database) -> Iterator[Connection[Any]]:
    """A connection in a fresh database of this test."""
    address: Any = {"host": "127.0.0.1", "port": upstream.port, "user": "root", "ssl_disabled": True}
    with ServerConnection(**address, charset="utf8mb4", autocommit=False) as connection:
        _run(
            connection, "DROP DATABASE IF EXISTS val", "CREATE DATABASE val CHARACTER SET utf8mb4", "USE val"
        )
        _run(connection, "SET NAMES utf8mb4", LOOSE, "SET SESSION time_zone='+00:00'")
        yield connection
        _run(connection, "DROP DATABASE val")


def _run(connection: Connection[Any], *statements: str | bytes) -> Any:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return cursor.fetchall()


def _affected(connection: Connection[Any], statement: bytes) -> int:
    with connection.cursor() as cursor:
        return int(cursor.execute(statement))


def _renderers(structure: TableStructure) -> Any:
    return compile_renderers(structure, tuple(c.name for c in structure.columns))


def _apply(connection: Connection[Any], row: Row, copy: bytes) -> None:
    """Carry one record out the way the consumer does, and expect exactly one row to change."""
    renderers, keyed = _renderers(row.structure), bool(row.structure.key)
    table = copy + row.structure.table.encode()
    if row.op == "c":
        head = b"INSERT INTO `%s` (%s) VALUES " % (table, renderers.columns)
        _insert_by_parameters(connection, row, table, head)
        statement = head + renderers.after(row.value)
    elif row.op == "d":
        match = b"%s IN (%s)" % (renderers.key_columns, renderers.key(row.key))
        if not keyed:
            match = renderers.match_before(row.value)
        statement = b"DELETE FROM `%s` WHERE %s LIMIT 1" % (table, match)
    else:
        match = renderers.match_key(row.key) if keyed else renderers.match_before(row.value)
        statement = b"UPDATE `%s` SET %s WHERE %s LIMIT 1" % (table, renderers.assignments(row.value), match)
    assert _affected(connection, statement) == 1, statement[:300]


def _insert_by_parameters(connection: Connection[Any], row: Row, table: bytes, head: bytes) -> None:
    """Insert a row with a prepared statement, and expect the same content as of its literals; both are taken back."""
    parameters = compile_parameters(row.structure, tuple(c.name for c in row.structure.columns))
    try:
        _, nulls, values = parameters.after([row.value])
    except NoParameter:
        return
    assert isinstance(connection, ServerConnection)
    number = connection.prepare(head + parameters.row)
    sums = []
    for by_parameters in (False, True):
        _run(connection, "SAVEPOINT one")
        if by_parameters:
            assert connection.execute_prepared(number, parameters.joined(nulls, values)) == 1
        else:
            _run(connection, head + _renderers(row.structure).after(row.value))
        sums.append(_run(connection, b"CHECKSUM TABLE `%s`" % table))
        _run(connection, "ROLLBACK TO one")
    connection.close_prepared(number)
    assert sums[0] == sums[1], row.structure


def _content(connection: Connection[Any], table: str, types: dict[str, str]) -> list[Any]:
    exact = ", ".join(_exact(name, sql_type) for name, sql_type in types.items())
    return sorted(_run(connection, f"SELECT {exact} FROM `{table}`"), key=repr)


def _assert_same(connection: Connection[Any], table: str, types: dict[str, str]) -> None:
    assert _content(connection, table, types) == _content(connection, f"copy_{table}", types), types


def _client_value(value: Any) -> Any:
    """What fastavro gives, as ``_client_text`` shows it."""
    if isinstance(value, Decimal):
        return format(value, "f")
    return str(value)


def _assert_avro(connection: Connection[Any], table: str, sql_type: str, rows: list[Row]) -> None:
    """What fastavro reads of column ``v`` is what a client of the server reads."""
    inserted = {row.avro()["after"]["id"]: row.avro()["after"]["v"] for row in rows if row.op == "c"}
    base = sql_type.split("(")[0].split()[0]
    binary = base in ("BIT", "GEOMETRY", "POINT", "VECTOR", "INET4", "INET6", "UUID") or base[-4:] in (
        "BLOB",
        "NARY",
    )
    shown = "v" if binary or base in ("FLOAT", "DOUBLE") else "CAST(v AS CHAR CHARACTER SET utf8mb4)"
    if base in ("FLOAT", "VECTOR"):
        shown = "CAST(v AS DOUBLE)" if base == "FLOAT" else "CAST(v AS BINARY)"
    for number, server_value in _run(connection, f"SELECT id, {shown} FROM `{table}`"):
        ours = inserted[number]
        if base in ("INET4", "INET6", "UUID"):
            continue  # as bytes in the binlog, as text for a client
        if server_value is None or ours is None:
            assert ours is server_value
        elif isinstance(ours, bytes) and not binary:
            _assert_charset_bytes(connection, table, number, ours)
        elif binary or base in ("FLOAT", "DOUBLE"):
            assert repr(ours) == repr(server_value), sql_type
        else:
            assert _client_value(ours) == server_value, sql_type


def _assert_charset_bytes(connection: Connection[Any], table: str, number: int, ours: bytes) -> None:
    ((stored,),) = _run(connection, f"SELECT HEX(v) FROM `{table}` WHERE id = {number}")
    assert ours.hex().upper() == stored


@pytest.mark.parametrize("flavor", ["mariadb"])
@pytest.mark.usefixtures("compressed_events")
def test_every_type_survives_in_compressed_events(
    upstream: Database, values_db: Connection[Any], flavor: str
) -> None:
    """The same in MariaDB's compressed events."""
    begin = binlog_end(upstream)
    test_every_type_survives(upstream, values_db, flavor, "plain")
    assert {167, 168, 165, 166} <= event_types(upstream, begin)


# MariaDB has no compressed transactions.
@pytest.mark.parametrize(
    ("flavor", "mode"), [("mysql", "plain"), ("mysql", "compressed"), ("mariadb", "plain")]
)
def test_every_type_survives(upstream: Database, values_db: Connection[Any], flavor: str, mode: str) -> None:
    """INSERT, UPDATE to NULL and back, DELETE by key and by the full row, for every type by itself."""
    connection, types = values_db, types_of(flavor)
    if mode == "compressed":
        _run(connection, "SET SESSION binlog_transaction_compression = ON")
        types = [*types[::8], *MYSQL_TYPES]  # the events inside are the same ones
    for i, (sql_type, _, _) in enumerate(types):
        for name in (f"t{i}", f"copy_t{i}"):
            _run(connection, f"CREATE TABLE {name} (id INT PRIMARY KEY, v {sql_type})")
        for name in (f"n{i}", f"copy_n{i}"):
            _run(connection, f"CREATE TABLE {name} (id INT, v {sql_type})")
    begin = binlog_end(upstream)
    for i, (_, literals, _) in enumerate(types):
        rows = ", ".join(f"({n}, {literal})" for n, literal in enumerate([*literals, "NULL"]))
        for table in (f"t{i}", f"n{i}"):
            _run(connection, f"INSERT INTO {table} VALUES {rows}")
    connection.commit()
    inserted = rows_since(upstream, begin, "val.*")
    _replay(connection, inserted)
    names: dict[str, str] = {}
    for i, (sql_type, _, _) in enumerate(types):
        names |= {f"t{i}": sql_type, f"n{i}": sql_type}
    for name, sql_type in names.items():
        _assert_same(connection, name, {"id": "INT", "v": sql_type})
        if name.startswith("t"):
            of_table = [row for row in inserted if row.structure.table == name]
            _assert_avro(connection, name, sql_type, of_table)
    begin = binlog_end(upstream)
    for name in names:
        # Swap a value with NULL, move keys, then drop every row but the first.
        count = len(types[int(name[1:])][1])
        _run(connection, f"UPDATE {name} SET v = (SELECT v FROM (SELECT * FROM {name}) x WHERE id = 0)"
             f" WHERE id = {count}")  # fmt: skip
        _run(connection, f"UPDATE {name} SET v = NULL WHERE id = 0", f"UPDATE {name} SET id = id + 1000")
    connection.commit()
    _replay(connection, rows_since(upstream, begin, "val.*"))
    for name, sql_type in names.items():
        _assert_same(connection, name, {"id": "INT", "v": sql_type})
    begin = binlog_end(upstream)
    for name in names:
        _run(connection, f"DELETE FROM {name}")
    connection.commit()
    _replay(connection, rows_since(upstream, begin, "val.*"))
    for name in names:
        assert _run(connection, f"SELECT COUNT(*) FROM copy_{name}") == ((0,),)


def test_text_beside_every_type_keeps_its_charset(
    upstream: Database, values_db: Connection[Any], flavor: str
) -> None:
    """TABLE_MAP lists the collations of some columns, and which these are is the server's own: VECTOR, GEOMETRY."""
    beside = {"l": ("latin1", "é"), "u": ("utf8mb4", "é日😀"), "e": ("greek", "α")}
    types = types_of(flavor)

    def columns(number: int = 0) -> str:
        return ", ".join(
            f"{name}{number} VARCHAR(9) CHARACTER SET {charset} NOT NULL DEFAULT '{text}'"
            for name, (charset, text) in beside.items()
        )

    for i, (sql_type, _, _) in enumerate(types):
        _run(values_db, f"CREATE TABLE b{i} (id INT PRIMARY KEY, v {sql_type}, {columns()})")
    # Several of these in one table, between text of each kind.
    odd = [t for t, _, _ in types if t.startswith(("GEO", "POINT", "VECTOR", "JSON", "UUID", "INET", "BIT"))]
    mixed = ", ".join(f"v{i} {sql_type}, {columns(i)}" for i, sql_type in enumerate(odd))
    _run(values_db, f"CREATE TABLE b{len(types)} (id INT PRIMARY KEY, {mixed})")
    begin = binlog_end(upstream)
    for i in range(len(types) + 1):
        _run(values_db, f"INSERT INTO b{i} (id) VALUES (1)")
    values_db.commit()
    rows = rows_since(upstream, begin, "val.*")
    assert len(rows) == len(types) + 1
    for row in rows:
        found = {column.name: column.charset for column in row.structure.columns}
        after = row.avro()["after"]
        for name, (charset, text) in beside.items():
            for column in [c for c in found if c.rstrip("0123456789") == name]:
                assert found[column] == charset, row.structure
                assert after[column] == (text if name != "e" else text.encode("iso8859-7"))


def _replay(connection: Connection[Any], rows: list[Row]) -> None:
    _run(connection, "SET SESSION sql_log_bin = 0", *SESSION_SETUP)
    for row in rows:
        if not row.structure.table.startswith("copy_"):
            _apply(connection, row, b"copy_")
    connection.commit()
    _run(connection, "SET SESSION sql_log_bin = 1", LOOSE)


def test_every_key_type_finds_its_row(upstream: Database, values_db: Connection[Any], flavor: str) -> None:
    """Each type as the primary key, and as the middle of a key of three: every row is found again by its key."""
    connection = values_db
    keyed = [(sql_type, literals) for sql_type, literals, is_key in types_of(flavor) if is_key]
    types = {f"k{i}": sql_type.removesuffix(" NULL") for i, (sql_type, _) in enumerate(keyed)}
    middle = set(list(types)[::4])
    for name, sql_type in types.items():
        for table in (name, f"copy_{name}"):
            _run(connection, f"CREATE TABLE {table} (n INT, v {sql_type} NOT NULL, PRIMARY KEY (v))")
        for table in (f"m_{name}", f"copy_m_{name}") if name in middle else ():
            _run(connection, f"CREATE TABLE {table} (x VARCHAR(5) NOT NULL, v {sql_type} NOT NULL, n INT NOT NULL,"
                 " UNIQUE KEY (n, v, x))")  # fmt: skip
    begin = binlog_end(upstream)
    for (_, literals), name in zip(keyed, types, strict=True):
        for n, literal in enumerate(literals):
            # What rounds or collates to a key that is there already is left out.
            _run(connection, f"INSERT IGNORE INTO {name} VALUES ({n}, {literal})")
            if name in middle:
                _run(connection, f"INSERT IGNORE INTO m_{name} VALUES ('it''s', {literal}, 1)")
    connection.commit()
    inserted = rows_since(upstream, begin, "val.*")
    _replay(connection, inserted)
    for name, sql_type in types.items():
        _assert_same(connection, name, {"n": "INT", "v": sql_type})
        if name in middle:
            _assert_same(connection, f"m_{name}", {"n": "INT", "v": sql_type})
    structures = {row.structure.table: row.structure for row in inserted}
    assert structures["k0"].key == ("v",)
    assert structures["m_k0"].key == ("n", "v", "x")
    begin = binlog_end(upstream)
    for name in types:
        _run(connection, f"UPDATE {name} SET n = n + 100", f"DELETE FROM {name}")
        if name in middle:
            _run(connection, f"DELETE FROM m_{name}")
    connection.commit()
    changes = rows_since(upstream, begin, "val.*")
    assert {row.op for row in changes} == {"u", "d"}
    _replay(connection, changes)
    for name in types:
        assert _run(connection, f"SELECT COUNT(*) FROM copy_{name}") == ((0,),)
        if name in middle:
            assert _run(connection, f"SELECT COUNT(*) FROM copy_m_{name}") == ((0,),)


_DOCUMENT = (
    '{"a": 1, "bb": [1, 2, {"c": "x", "": null}, [], 1.5], "key with space": {"deep": {"deeper": [true]}},'
    ' "é😀": "ü", "quo\\"te": 0, "back\\\\slash": 0, "dot.ted": 0, "br[0]": 0, "$": {}, "pad": "'
    + "x" * 3000
    + '"}'
)
_CHANGES = [
    "JSON_SET(v, '$.a', 2)", "JSON_SET(v, '$.a', 1.0)", "JSON_SET(v, '$.new', 'n', '$.b', 1, '$.aaa', 2)",
    "JSON_SET(v, '$.bb[1]', 'two')", "JSON_SET(v, '$.bb[9]', 'end')", "JSON_REMOVE(v, '$.bb[0]')",
    "JSON_REMOVE(v, '$.bb[0]', '$.bb[0]', '$.a')", """JSON_SET(v, '$."key with space".deep.deeper[0]', false)""",
    """JSON_SET(v, '$."é😀"', 'geändert')""", """JSON_SET(v, '$."quo\\"te"', 1)""", """JSON_SET(v, '$."dot.ted"', 1)""",
    """JSON_SET(v, '$."br[0]"', 1)""", """JSON_SET(v, '$."back\\\\slash"', 1)""", """JSON_REMOVE(v, '$."é😀"')""",
    """JSON_SET(v, '$."$".x', JSON_OBJECT('k', JSON_ARRAY(1, NULL)))""", "JSON_SET(v, '$.bb[2].c', REPEAT('y', 300))",
    """JSON_REPLACE(v, '$.bb[2].""', CAST('{"z": 1e20, "y": -0.0}' AS JSON))""",
    "JSON_SET(v, '$.a', CAST(3.50 AS DECIMAL(5,2)))",
    "JSON_SET(v, '$.a', CAST('2024-02-29' AS DATE))", "JSON_SET(v, '$.a', X'00FF')", "JSON_SET(v, '$.bb[0]', NULL)",
    "JSON_SET(v, '$.bb', CAST(REPEAT('[', 90) AS CHAR))", "JSON_SET(v, '$.a[3]', 'wrapped')", "NULL", "'{}'",
    "JSON_SET(v, '$.pad', 'shorter')", "v",
]  # fmt: skip


@pytest.mark.parametrize("flavor", ["mysql"])
def test_partial_updates_of_json(upstream: Database, values_db: Connection[Any]) -> None:
    """Each change alone and on top of others, in one of several documents: the texts are the server's."""
    connection = values_db
    _run(connection, "CREATE TABLE j (id INT PRIMARY KEY, k JSON, v JSON, n INT, w JSON)",
         "SET SESSION binlog_row_value_options = PARTIAL_JSON")  # fmt: skip
    with connection.cursor() as cursor:
        for number in range(len(_CHANGES) + 1):
            for half in (0, 1000):
                cursor.execute("INSERT INTO j VALUES (%s, NULL, %s, 0, %s)",
                               (number + half, _DOCUMENT, _DOCUMENT))  # fmt: skip
    connection.commit()
    begin = binlog_end(upstream)
    expected: list[tuple[Any, ...]] = []
    for number, change in enumerate(_CHANGES, start=1):
        other = change.replace("(v", "(w")
        for update, found in (
            (f"SET v = {change}, n = n + 1 WHERE id = {number}", number),
            (f"SET v = {change}, n = n + 1 WHERE id = 1000", 1000),
            (f"SET v = {change}, w = {other}, id = id + 5000 WHERE id = {number + 1000}", number + 6000),
        ):
            _run(connection, f"UPDATE j {update}")
            shown = "CAST(k AS CHAR), CAST(v AS CHAR), CAST(w AS CHAR)"
            expected += _run(connection, f"SELECT id, {shown} FROM j WHERE id = {found}")
    connection.commit()
    assert 39 in event_types(upstream, begin)
    rows = [row.avro()["after"] for row in rows_since(upstream, begin, "val.*") if row.op != "d"]
    for ours, (number, *documents) in zip(rows, expected, strict=True):
        assert ours["id"] == number
        texts = [
            ours[name]["text"] if isinstance(ours[name], dict) else ours[name] for name in ("k", "v", "w")
        ]
        assert texts == documents
    typed = [ours["v"] for ours in rows if isinstance(ours["v"], dict)]
    assert {"decimal(2,1)", "decimal(3,2)", "date", "opaque(15)"} <= {doc.get('$."a"') for doc in typed}


def _random_document(random: Random, depth: int = 0) -> Any:
    numbers = [random.randrange(-(1 << bits), 1 << bits) for bits in (8, 15, 16, 31, 32, 63)]
    doubles = [random.uniform(-1, 1) * 10.0**exponent for exponent in (-300, -20, -5, 0, 14, 15, 16, 17, 40)]
    plain = [None, True, False, -0.0, "", "%s", 'é"\\\n\x7f😀', "x" * random.randrange(300), (1 << 64) - 1]
    kind = random.random()
    if depth > 4 or kind < 0.5:
        return random.choice(numbers + doubles + plain)
    if kind < 0.65:
        return [_random_document(random, depth + 1) for _ in range(random.randrange(6))]
    # Many documents with the same members, as a table has them, and some with others.
    names = ["id", "%", "%s %d", "", "é😀", 'quo"te', "name" * 20]
    members = names[: random.randrange(8)] if kind < 0.9 else random.sample(names, random.randrange(8))
    return {name: _random_document(random, depth + 1) for name in members}


@pytest.mark.parametrize("flavor", ["mysql"])
def test_random_documents(upstream: Database, values_db: Connection[Any]) -> None:
    random = Random(5)
    documents = [_random_document(random) for _ in range(1500)]
    # Containers and names of more than 64 KB.
    documents += [list(range(-40_000, 40_000)), {f"member {n}": [n, -n, n * 0.5] for n in range(9000)}]
    documents += [{"small": 1, "large": "x" * 70_000}, {"n" * 60_000: 1, "m" * 60_000: {"a": 70_000}}]
    _run(values_db, "CREATE TABLE j (id INT PRIMARY KEY, v JSON)")
    begin = binlog_end(upstream)
    with values_db.cursor() as cursor:
        for number, document in enumerate(documents):
            cursor.execute("INSERT INTO j VALUES (%s, %s)", (number, json.dumps(document)))
    values_db.commit()
    expected = _run(values_db, "SELECT CAST(v AS CHAR) FROM j ORDER BY id")
    for row, (text,) in zip(rows_since(upstream, begin, "val.*"), expected, strict=True):
        after = row.avro()["after"]["v"]
        assert (after["text"] if isinstance(after, dict) else after) == text


@pytest.mark.parametrize("flavor", ["mysql"])
def test_documents_made_of_sql_values(upstream: Database, values_db: Connection[Any]) -> None:
    """Every type as member, element and by itself: text and JSON_TYPE are the same in the copy."""
    connection = values_db
    columns = ", ".join(f"c{i} {sql_type}" for i, sql_type in enumerate(JSON_SCALARS))
    _run(connection, f"CREATE TABLE source ({columns})",
         f"INSERT INTO source VALUES ({', '.join(value for value, _ in JSON_SCALARS.values())})")  # fmt: skip
    for table in ("j", "n"):
        key = " PRIMARY KEY" if table == "j" else ""
        for name in (table, f"copy_{table}"):
            _run(connection, f"CREATE TABLE {name} (id INT{key}, v JSON, w JSON NOT NULL)")
    begin = binlog_end(upstream)
    names = [f"c{i}" for i in range(len(JSON_SCALARS))]
    documents = [f"JSON_ARRAY({name})" for name in names]
    documents += [f"""JSON_OBJECT('k"e*/y', JSON_ARRAY(1.0, {name}, '*/'), 'it''s', JSON_OBJECT('', {name}))"""
                  for name in names]  # fmt: skip
    documents += [f"CAST({name} AS JSON)" for name in names[:10]]
    documents += [f"JSON_ARRAY({', '.join(names)})", "JSON_ARRAY()", "'null'"]
    documents += [
        "'[0, 32768, 2147483648, 4294967295, 4294967296, 9223372036854775807, -2147483649, 1.5, 1e3]'"
    ]
    for number, document in enumerate(documents):
        for table in ("j", "n"):
            _run(connection, f"INSERT INTO {table} SELECT {number}, {document}, '{{}}' FROM source",
                 f"UPDATE {table} SET w = v, v = NULL WHERE id = {number}",
                 f"UPDATE {table} SET v = w WHERE id = {number}")  # fmt: skip
    connection.commit()
    _replay(connection, rows_since(upstream, begin, "val.*"))
    shown = ("id, HEX(CAST(v AS CHAR)), HEX(CAST(w AS CHAR)), JSON_TYPE(v), JSON_TYPE(v->'$[0]'),"
             " JSON_TYPE(v->'$.\"it''s\".\"\"')")  # fmt: skip
    for table in ("j", "n"):
        original, copy = (
            sorted(_run(connection, f"SELECT {shown} FROM {name}")) for name in (table, f"copy_{table}")
        )
        for ours, theirs in zip(copy, original, strict=True):
            assert ours == theirs, documents[theirs[0]]
        assert [row[4] for row in original[: len(names)]] == [
            json_type for _, json_type in JSON_SCALARS.values()
        ]
    begin = binlog_end(upstream)
    _run(connection, "DELETE FROM j", "DELETE FROM n")
    connection.commit()
    _replay(connection, rows_since(upstream, begin, "val.*"))
    assert _run(connection, "SELECT COUNT(*) FROM copy_n") == ((0,),)


def test_a_typed_document_is_its_text_on_mariadb(upstream: Database, flavor: str) -> None:
    """One literal for both servers: MySQL makes the document, MariaDB, whose JSON is text, takes the text."""
    document = '{"a": [1.50, "*/"], "it\'s": "2024-02-29"}'
    entries = [("text", document), ('$."a"[0]', "decimal(3,2)"), ('$."it\'s"', "date")]
    value = encode_long(3) + b"".join(encode_bytes(s.encode()) for entry in entries for s in entry) + b"\0"
    literal, end = typed_literal(value, 0)
    assert end == len(value)
    ((text,),) = upstream.execute(f"SELECT CAST({literal.decode()} AS CHAR)")
    assert text == document
    ((kind,),) = upstream.execute(f"""SELECT JSON_TYPE(JSON_EXTRACT({literal.decode()}, '$.a[0]'))""")
    assert kind == ("DECIMAL" if flavor == "mysql" else "DOUBLE")


@pytest.mark.parametrize("flavor", ["mysql"])
def test_a_type_of_bytes_that_no_statement_makes(upstream: Database, values_db: Connection[Any]) -> None:
    """A TINYBLOB inside of a document: a stop, not another document."""
    _run(
        values_db,
        "CREATE TABLE source (b TINYBLOB)",
        "INSERT INTO source VALUES ('x')",
        "CREATE TABLE j (v JSON)",
    )
    begin = binlog_end(upstream)
    _run(values_db, "INSERT INTO j SELECT JSON_ARRAY(b) FROM source")
    values_db.commit()
    with pytest.raises(DecodeError, match="TR417"):
        rows_since(upstream, begin, "val.*")


def test_key_changes_become_delete_and_create(upstream: Database, values_db: Connection[Any]) -> None:
    """Both halves follow each other and name each other's key."""
    connection = values_db
    _run(connection, "CREATE TABLE t (id VARCHAR(10) COLLATE utf8mb4_general_ci PRIMARY KEY, v INT)")
    begin = binlog_end(upstream)
    _run(connection, "INSERT INTO t VALUES ('a', 1), ('b', 2)", "UPDATE t SET id = UPPER(id), v = v + 1")
    connection.commit()
    rows = rows_since(upstream, begin, "val.*")
    assert [row.op for row in rows] == ["c", "c", "d", "c", "d", "c"]
    assert [row.avro()["source"]["seq"] for row in rows] == list(range(6))
    assert [row.avro()["source"]["flags"] >> 16 for row in rows] == [0, 0, 1, 1, 1, 1]
    assert rows[2].headers == (("__debezium.newkey", rows[3].key),)
    assert rows[3].headers == (("__debezium.oldkey", rows[2].key),)
    assert rows[3].avro()["after"] == {"id": "A", "v": 2}


def test_strange_names(upstream: Database, values_db: Connection[Any]) -> None:
    """Names that neither Avro nor Python would take as they are."""
    connection = values_db
    names = [
        "a b",
        "a_x0020b",
        "1st",
        "ü",
        "quo'te",
        "back`tick",
        'dou"ble',
        "def",
        "v",
        "percent%s",
        "x" * 64,
    ]
    columns = ", ".join(f"{quoted(name)} INT" for name in names)
    for table in ("o'dd `tbl`", "copy_o'dd `tbl`"):
        _run(connection, f"CREATE TABLE {quoted(table)} ({columns}, `p k` INT, PRIMARY KEY (`p k`))")
    begin = binlog_end(upstream)
    _run(
        connection, f"INSERT INTO `o'dd ``tbl``` VALUES ({', '.join(str(i) for i in range(len(names)))}, -1)"
    )
    connection.commit()
    (row,) = rows_since(upstream, begin, "val.*")
    assert row.avro()["after"] == {avro_name(n): i for i, n in enumerate(names)} | {avro_name("p k"): -1}
    renderers = _renderers(row.structure)
    _run(
        connection,
        b"INSERT INTO `copy_o'dd ``tbl``` (%s) VALUES %s" % (renderers.columns, renderers.after(row.value)),
    )
    ours, theirs = (
        _run(connection, f"SELECT * FROM `{name}`") for name in ("o'dd ``tbl``", "copy_o'dd ``tbl``")
    )
    assert ours == theirs


_ONE_BYTE = (
    "armscii8", "cp1250", "cp1251", "cp1256", "cp1257", "cp850", "cp852", "cp866", "dec8", "geostd8", "greek", "hebrew",
    "hp8", "keybcs2", "koi8r", "koi8u", "latin1", "latin2", "latin5", "latin7", "macce", "macroman", "tis620",
)  # fmt: skip


_MEMBERS = {
    "binary": "é日", "armscii8": "Ա", "dec8": "Œé", "eucjpms": "～Ⅷ日\\", "geostd8": "ა", "hp8": "ñƒ", "keybcs2": "Čř",
    "latin7": "ąį", "macce": "Łé", "macroman": "é", "swe7": "åÉ", "tis620": "ก", "cp866": "я²ⁿ", "greek": "αʽ",
    "hebrew": "א‾", "koi8u": "є•", "sjis": "日\\ﾊ", "ujis": "日\\", "euckr": "한똠", "cp932": "～①", "gbk": "中",
    "latin1": "€é",
}  # fmt: skip


def test_members_of_enum_and_set_in_every_charset(upstream: Database, values_db: Connection[Any]) -> None:
    """TABLE_MAP has them in their own charset, and of many no library reads every character as the servers do."""
    columns = []
    for charset, characters in _MEMBERS.items():
        members = ", ".join(f"'{character}', 'x{character}'" for character in characters)
        columns += [
            f"e_{charset} ENUM({members}) CHARACTER SET {charset}",
            f"s_{charset} SET({members}) CHARACTER SET {charset}",
        ]
    for table in ("members", "copy_members"):
        _run(values_db, f"CREATE TABLE {table} (id INT PRIMARY KEY, {', '.join(columns)})")
    begin = binlog_end(upstream)
    for n in range(1, 2 * max(map(len, _MEMBERS.values())) + 1):
        values = ", ".join(f"{1 + n % (2 * len(c))}, {3 * n % 4 ** len(c)}" for c in _MEMBERS.values())
        _run(values_db, f"INSERT INTO members VALUES ({n}, {values})")
    values_db.commit()
    rows = rows_since(upstream, begin, "val.*")
    _replay(values_db, rows)
    types = {column.split()[0]: column.split()[1].split("(")[0] for column in columns}
    _assert_same(values_db, "members", {"id": "INT"} | types)
    for row in rows:
        after = row.avro()["after"]
        assert after["e_eucjpms"] in [prefix + c for c in _MEMBERS["eucjpms"] for prefix in ("", "x")]
        assert after["e_binary"] in ("é", "xé", "日", "x日")


def test_rows_without_a_key_that_differ_by_the_sign_of_zero(
    upstream: Database, values_db: Connection[Any]
) -> None:
    """0 and -0 are equal to the server's comparison: the row that was changed is the one that is found."""
    types = {"n": "INT", "d": "DOUBLE", "f": "FLOAT", "p": "FLOAT"}
    for table in ("zeros", "copy_zeros"):
        _run(values_db, f"CREATE TABLE {table} (n INT, d DOUBLE, f FLOAT, p FLOAT(7,4))")
    begin = binlog_end(upstream)
    signs = [f"{d}0e0, {f}0e0, {p}0e0" for d in ("", "-") for f in ("", "-") for p in ("", "-")]
    _run(values_db, f"INSERT INTO zeros VALUES {', '.join(f'(1, {sign})' for sign in (*signs, *signs))}")
    for column, value in (("d", "9"), ("f", "NULL"), ("p", "-1")):
        match = f"CAST({column} AS CHAR) LIKE '-%' ORDER BY CAST(d AS CHAR), CAST(f AS CHAR), CAST(p AS CHAR)"
        _run(values_db, f"UPDATE zeros SET n = n + 1, {column} = {value} WHERE {match} LIMIT 3",
             f"DELETE FROM zeros WHERE {match} LIMIT 1")  # fmt: skip
    values_db.commit()
    _replay(values_db, rows_since(upstream, begin, "val.*"))
    _assert_same(values_db, "zeros", types)


def test_rows_without_a_key_are_told_apart_by_bytes_that_no_character_has(
    upstream: Database, values_db: Connection[Any]
) -> None:
    """Made Unicode, all bytes that a charset does not map would be one question mark, and so one row."""
    connection, questions = values_db, []
    for charset in _ONE_BYTE:
        literals = [f"_{charset} X'{code:02x}'" for code in range(0x80, 0x100)]
        unicode = ", ".join(f"HEX(CONVERT({literal} USING utf8mb4))" for literal in literals)
        [row] = _run(connection, f"SELECT {unicode}")
        unmapped = [literal for literal, code in zip(literals, row, strict=True) if code == "3F"]
        questions += [(charset, literal) for literal in (f"_{charset} '?'", *unmapped)]
    assert len(questions) > 2 * len(_ONE_BYTE)
    columns = ", ".join(f"{charset} VARCHAR(3) CHARACTER SET {charset}" for charset in _ONE_BYTE)
    _run(connection, f"CREATE TABLE bytes (n INT, {columns})", f"CREATE TABLE copy_bytes (n INT, {columns})")
    begin = binlog_end(upstream)
    for charset, literal in questions:
        _run(connection, f"INSERT INTO bytes (n, {charset}) VALUES (-1, {literal})")
    for n, (charset, literal) in reversed(list(enumerate(questions))):
        match = f"CAST({charset} AS BINARY) = CAST({literal} AS BINARY)"
        change = (f"UPDATE bytes SET n = {n}", "DELETE FROM bytes", "DO 0 -- ")[n % 3]
        _run(connection, f"{change} WHERE {match}")
    connection.commit()
    _replay(connection, rows_since(upstream, begin, "val.*"))
    _assert_same(connection, "bytes", dict.fromkeys(("n", *_ONE_BYTE), "VARCHAR(3)"))


WIDE = {
    "i": "INT", "b": "BIGINT UNSIGNED", "d": "DECIMAL(20,7)", "f": "FLOAT", "g": "DOUBLE", "s": "VARCHAR(50)",
    "l": "VARCHAR(50) CHARACTER SET latin1", "x": "VARBINARY(50)", "c": "CHAR(50)", "n": "BINARY(7)",
    "t": "TIME(6)", "m": "DATETIME(6)", "p": "TIMESTAMP(3) NULL", "e": "BIT(33)", "o": "TEXT", "y": "DATE",
}  # fmt: skip
_text = st.text(st.characters(codec="utf-8"), max_size=50)
_latin = st.binary(max_size=50).map(lambda data: data.decode("latin-1"))
_moments = st.datetimes().map(str)
ROWS = st.tuples(
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.integers(0, (1 << 64) - 1),
    st.decimals(min_value=-(10**12), max_value=10**12, places=7),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False),
    _text,
    _latin,
    st.binary(max_size=50),
    _text,
    st.binary(max_size=7),
    st.timedeltas(timedelta(hours=-838), timedelta(hours=838)),
    _moments,
    st.one_of(st.none(), st.datetimes().filter(lambda d: 1970 < d.year < 2038).map(str)),
    st.integers(0, (1 << 33) - 1),
    _text,
    st.dates().map(str),
).flatmap(lambda row: st.tuples(*(st.sampled_from([value, value, value, None]) for value in row)))


def test_generated_rows_survive(upstream: Database, values_db: Connection[Any]) -> None:
    """Rows that nobody thought of, in one table of many types without a key."""
    connection = values_db
    columns = ", ".join(f"{name} {sql_type}" for name, sql_type in WIDE.items())
    _run(connection, f"CREATE TABLE w ({columns})", f"CREATE TABLE copy_w ({columns})")
    insert = f"INSERT INTO w VALUES ({', '.join(['%s'] * len(WIDE))})"

    @settings(max_examples=12, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(ROWS, min_size=1, max_size=10))
    def survives(rows: list[Any]) -> None:
        begin = binlog_end(upstream)
        with connection.cursor() as cursor:
            for row in rows:
                cursor.execute(insert, row)
        connection.commit()
        _replay(connection, rows_since(upstream, begin, "val.*"))
        _assert_same(connection, "w", WIDE)
        begin = binlog_end(upstream)
        _run(connection, "UPDATE w SET i = 0, s = NULL", "DELETE FROM w")
        connection.commit()
        _replay(connection, rows_since(upstream, begin, "val.*"))
        assert _run(connection, "SELECT COUNT(*) FROM copy_w") == ((0,),)

    survives()
