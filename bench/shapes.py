"""The shapes of backlogs, as data: the tables before the backlog, and the changes that it consists of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

DATABASE = "sbtest"
#: as many write a backlog, each into tables of its own
CONNECTIONS = 4
_NUMBERS = f"{DATABASE}.numbers"
#: rows that one statement changes at most
_CHUNK = 1000


@dataclass(frozen=True)
class Sysbench:
    """A backlog that sysbench writes into its tables.

    Attributes:
        rows: row events if nobody says how many.
        row_events: of a transaction of the script.
        alter: what is done to each table before the backlog.
    """

    about: str
    rows: int = 600_000
    script: str = "oltp_write_only"
    # It updates two rows, deletes one and inserts one.
    row_events: int = 4
    options: tuple[str, ...] = ()
    alter: str = ""
    server_options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Changes:
    """A backlog of our own statements. Each transaction changes rows of one table, the next one those of another.

    Attributes:
        rows: row events if nobody says how many.
        columns: the definitions of all columns but ``id``.
        row: expressions for the values of a new row's columns; ``i`` is a number.
        update: assignments of an UPDATE.
        mix: rows that a transaction inserts, updates and deletes.
        tables: how many tables there are.
        there: rows that each table has before the backlog and keeps.
        key: what makes ``id`` a key.
        is_one: whether all is one transaction, with rows in the ratio of ``mix``.
        sessions: what the connections set, each the next one of these.
        server_options: of the upstream.
    """

    about: str
    rows: int
    columns: str
    row: str
    update: str
    mix: tuple[int, int, int] = (6, 3, 1)
    tables: int = 8
    there: int = 1000
    key: str = "PRIMARY KEY"
    is_one: bool = False
    sessions: tuple[str, ...] = ()
    server_options: tuple[str, ...] = ()

    @property
    def connections(self) -> int:
        return min(CONNECTIONS, self.tables)

    def preparation(self, rows: int) -> Iterator[str]:
        """Yield the statements that make the tables for a backlog of ``rows`` row events."""
        yield f"CREATE DATABASE {DATABASE}"
        yield f"CREATE TABLE {_NUMBERS} (i INT PRIMARY KEY)"
        yield (
            f"INSERT INTO {_NUMBERS} WITH RECURSIVE n (i) AS"
            f" (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {_CHUNK - 1}) SELECT i FROM n"
        )
        for number in range(self.tables):
            yield f"CREATE TABLE {_name(number)} (id INT NOT NULL {self.key}, {self.columns})"
            yield from self._insert(number, 0, self._rows_before(rows))

    def transactions(self, rows: int, connection: int) -> Iterator[list[str]]:
        """Yield the transactions of one connection, each as a list of statements."""
        random = Random(connection)
        mine = range(connection, self.tables, self.connections)
        first = dict.fromkeys(mine, 0)
        end = dict.fromkeys(mine, self._rows_before(rows))
        count, (inserts, updates, deletes) = self._division(rows)
        for turn in range(count):
            table = mine[turn % len(mine)]
            statements = list(self._insert(table, end[table], inserts))
            end[table] += inserts
            deleted = range(first[table], first[table] + deletes)
            first[table] += deletes
            updated = random.sample(range(first[table], end[table]), updates)
            for ids in _chunks(updated):
                statements.append(f"UPDATE {_name(table)} SET {self.update} WHERE id IN ({ids})")
            statements += [f"DELETE FROM {_name(table)} WHERE id IN ({ids})" for ids in _chunks(deleted)]
            yield statements

    def _division(self, rows: int) -> tuple[int, tuple[int, int, int]]:
        """How many transactions a connection has, and what each of them inserts, updates and deletes."""
        inserts, updates, deletes = self.mix
        count = max(1, rows // sum(self.mix) // self.connections)
        return (1, (count * inserts, count * updates, count * deletes)) if self.is_one else (count, self.mix)

    def _rows_before(self, rows: int) -> int:
        count, (inserts, _, deletes) = self._division(rows)
        turns = -(-count * self.connections // self.tables)
        return self.there + turns * max(0, deletes - inserts)

    def _insert(self, table: int, first: int, count: int) -> Iterator[str]:
        for begin in range(first, first + count, _CHUNK):
            size = min(_CHUNK, first + count - begin)
            yield f"INSERT INTO {_name(table)} SELECT {begin} + i, {self.row} FROM {_NUMBERS} WHERE i < {size}"


def _name(table: int) -> str:
    return f"{DATABASE}.t{table}"


def _chunks(ids: Sequence[int]) -> Iterator[str]:
    for begin in range(0, len(ids), _CHUNK):
        yield ", ".join(map(str, ids[begin : begin + _CHUNK]))


# MySQL 9.7 has MD5 only in a component.
_TEXT = "HEX(RANDOM_BYTES(16))"
_PLAIN = "n INT NOT NULL, name VARCHAR(60) NOT NULL, at DATETIME(6) NOT NULL, note VARCHAR(200)"
_PLAIN_ROW = f"RAND() * 1e9, {_TEXT}, NOW(6), REPEAT({_TEXT}, 1 + i % 4)"
_PLAIN_UPDATE = f"n = RAND() * 1e9, note = {_TEXT}"
_DOCUMENT = "n INT NOT NULL, name VARCHAR(60) NOT NULL, doc JSON NOT NULL"
_DOCUMENT_ROW = (
    f"RAND() * 1e9, {_TEXT}, JSON_OBJECT('count', FLOOR(RAND() * 1e6), 'name', {_TEXT}, 'price', RAND(),"
    f" 'tags', JSON_ARRAY('new', {_TEXT}, NULL, TRUE), 'address', JSON_OBJECT('city', 'Zürich', 'zip', i),"
    f" 'text', REPEAT({_TEXT}, 8))"
)
_DOCUMENT_UPDATE = f"doc = JSON_SET(doc, '$.count', FLOOR(RAND() * 1e6), '$.name', {_TEXT})"
_TYPES = (
    ("TINYINT", "RAND() * 200 - 100"),
    ("SMALLINT UNSIGNED", "RAND() * 6e4"),
    ("MEDIUMINT", "RAND() * 1e6"),
    ("INT", "RAND() * 1e9"),
    ("BIGINT UNSIGNED", "RAND() * 1e18"),
    ("FLOAT", "RAND()"),
    ("DOUBLE", "RAND() * 1e9"),
    ("DECIMAL(12,2)", "RAND() * 1e6"),
    ("DECIMAL(40,20)", "RAND() * 1e12"),
    ("BIT(12)", "FLOOR(RAND() * 4096)"),
    ("CHAR(10)", f"LEFT({_TEXT}, 8)"),
    ("VARCHAR(40)", _TEXT),
    ("VARCHAR(100) CHARACTER SET latin1", "REPEAT('é', RAND() * 30)"),
    ("BINARY(8)", "RANDOM_BYTES(8)"),
    ("VARBINARY(20)", "RANDOM_BYTES(12)"),
    ("TEXT", "REPEAT('é ', RAND() * 20)"),
    ("BLOB", "RANDOM_BYTES(30)"),
    ("DATE", "DATE('2000-01-01') + INTERVAL RAND() * 9000 DAY"),
    ("TIME(3)", "SEC_TO_TIME(RAND() * 8e4)"),
    ("DATETIME(6)", "NOW(6)"),
    ("TIMESTAMP NULL", "NOW()"),
    ("YEAR", "1970 + FLOOR(RAND() * 100)"),
    ("ENUM('new', 'paid', 'sent')", "1 + FLOOR(RAND() * 3)"),
    ("SET('a', 'b', 'c')", "FLOOR(RAND() * 8)"),
    ("JSON", "JSON_OBJECT('n', i)"),
)

SHAPES: dict[str, Sysbench | Changes] = {
    "hot": Sysbench("sysbench oltp_write_only: some keys change often"),
    "uniform": Sysbench("the same with evenly spread keys", options=("--rand-type=uniform",)),
    "inserts": Sysbench("one row a transaction", script="oltp_insert", row_events=1),
    "transaction": Changes(
        "all in one transaction",
        2_000_000,
        _PLAIN,
        _PLAIN_ROW,
        _PLAIN_UPDATE,
        (3, 1, 0),
        tables=1,
        is_one=True,
    ),
    "tables": Changes("a thousand tables", 400_000, _PLAIN, _PLAIN_ROW, _PLAIN_UPDATE, tables=1000, there=20),
    "columns": Changes(
        "a hundred columns of many types",
        200_000,
        ", ".join(f"c{n} {_TYPES[n % len(_TYPES)][0]}" for n in range(99)),
        ", ".join(_TYPES[n % len(_TYPES)][1] for n in range(99)),
        f"c3 = RAND() * 1e9, c11 = {_TEXT}, c19 = NOW(6), c36 = {_TEXT}, c74 = JSON_ARRAY(RAND())",
    ),
    "blobs": Changes(
        "BLOBs of a megabyte",
        900,
        "n INT NOT NULL, content LONGBLOB NOT NULL",
        # Cipher text, since random bytes come a kilobyte at a time.
        "RAND() * 1e9, AES_ENCRYPT(REPEAT('x', 1048560), RANDOM_BYTES(16), RANDOM_BYTES(16))",
        "n = RAND() * 1e9",
        (3, 1, 1),
        tables=4,
        there=3,
        server_options=("--block-encryption-mode=aes-128-cbc",),
    ),
    "indexes": Sysbench(
        "three secondary indexes",
        400_000,
        options=("--rand-type=uniform",),
        alter="ADD KEY (c), ADD KEY (pad)",
    ),
    "keyless": Changes(
        "tables without a key", 100_000, _PLAIN, _PLAIN_ROW, _PLAIN_UPDATE, (5, 2, 3), there=300, key=""
    ),
    "partial": Changes(
        "minimal row images, and partial JSON",
        400_000,
        _DOCUMENT,
        _DOCUMENT_ROW,
        _DOCUMENT_UPDATE,
        (2, 7, 1),
        # Not both in one session: a change of a document that is not in the log stops the producer (TR413).
        sessions=("binlog_row_image = MINIMAL", "binlog_row_value_options = PARTIAL_JSON"),
    ),
    "json": Changes("JSON documents", 400_000, _DOCUMENT, _DOCUMENT_ROW, _DOCUMENT_UPDATE, (5, 5, 0)),
    "deletes": Changes("mostly deletes", 400_000, _PLAIN, _PLAIN_ROW, _PLAIN_UPDATE, (1, 0, 9)),
}
