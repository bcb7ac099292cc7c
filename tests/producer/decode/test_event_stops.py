"""What stops the publisher: each stop with its code, position, GTID and remedy, and the rows before it whole."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from producer.decode.statements import savepoint_name
from producer.events.compressed import unpacked
from producer.events.query_event import load_query, parse_query_event
from producer.settings import SkipRule
from schemas.binlog import framing
from schemas.ddl.dml import read_dml
from schemas.errors import DecodeError
from tests.support.binlogs.decoded import decoded_lines
from tests.support.binlogs.relay_events import event, format_description, gtid, query, xid
from tests.support.golden.golden_binlogs import BINLOGS, FILE, SUBDIR

GTID = "00010203-0405-0607-0809-0a0b0c0d0e0f"


def _lines(root: Path, *events: bytes) -> list[str]:
    (root / SUBDIR).mkdir()
    (root / SUBDIR / FILE).write_bytes(framing.MAGIC + b"".join((format_description(), *events)))
    return decoded_lines(root, SUBDIR, FILE, "mysql")


def _failed(text: bytes, error_code: int) -> bytes:
    return event(framing.QUERY, struct.pack("<IIBHH", 1, 0, 1, error_code, 0) + b"d\0" + text)


def _load_data(text: bytes) -> bytes:
    fields = struct.pack("<IIBHH", 1, 0, 1, 0, 0) + struct.pack("<IIIB", 1, 10, 29, 2)
    return event(framing.EXECUTE_LOAD_QUERY, fields + b"d\0" + text)


LOADED = [event(framing.BEGIN_LOAD_QUERY, bytes(4) + b"1\n"), event(framing.APPEND_BLOCK, bytes(4) + b"2\n")]
LOAD = _load_data(b"LOAD DATA INFILE 'SQL_LOAD_MB-1-0' REPLACE INTO TABLE `t` FIELDS TERMINATED BY ',' (`a`)")
INCIDENT = event(framing.INCIDENT, struct.pack("<H", 1) + b"\x04lost")
ENCRYPTION = event(framing.MARIADB_START_ENCRYPTION, b"\x01" + bytes(16))
ROWS_OF_NOBODY = event(framing.WRITE_ROWS, bytes(40))


TABLE = event(
    framing.TABLE_MAP,
    b"\1\0\0\0\0\0\1\0" + b"\1d\0\1t\0" + b"\1\3\0\0" + b"\1\1\0" + b"\4\3\2id" + b"\x08\1\0",
)


def _inserted(number: int) -> list[bytes]:
    """A row of `t (id INT PRIMARY KEY)`."""
    head = b"\1\0\0\0\0\0" + b"\1\0" + b"\2\0" + b"\1\1"
    return [TABLE, event(framing.WRITE_ROWS, head + b"\0" + struct.pack("<i", number))]


@pytest.mark.parametrize(("events", "code", "said"), [
    ([gtid(1), INCIDENT], "TR410", "INCIDENT"),
    ([gtid(1), ENCRYPTION], "TR410", "START_ENCRYPTION"),
    ([gtid(1), event(100, b"x" * 30)], "TR410", "event type 100"),
    ([gtid(1), query(b"BEGIN"), event(99, b"x")], "TR410", "event type 99"),
    ([gtid(1), query(b"BEGIN"), query(b"UPDATE t SET a = 1")], "TR409", "UPDATE t SET a = 1"),
    ([gtid(1), query(b"BEGIN"), query(b"INSERT INTO t VALUES (1)")], "TR409", "INSERT INTO t"),
    ([gtid(1), query(b"CREATE TABLE t AS SELECT 1")], "TR409", "CREATE TABLE t AS SELECT 1"),
    ([gtid(1), query(b"BEGIN"), *LOADED, LOAD], "TR409", "REPLACE INTO TABLE `t`"),
    ([gtid(1), query(b"BEGIN"), event(20, bytes(30))], "TR410", "before MySQL 5.1"),
    ([gtid(1), query(b"FROBNICATE t")], "TR409", "FROBNICATE"),
    ([gtid(1), _failed(b"DROP TABLE a, b", 1051)], "TR416", "error 1051"),
    ([gtid(1), query(b"BEGIN"), ROWS_OF_NOBODY], "TR411", "TABLE_MAP"),
    ([gtid(1), query(b"XA COMMIT X'61',X'',1")], "TR406", "XA COMMIT"),
    ([gtid(1), query(b"XA COMMIT 'a'")], "TR406", "not understood"),
    ([gtid(1), query(b"XA START X'61',X'',1"), query(b"ROLLBACK")], "TR407", "XA PREPARE"),
    ([gtid(1), query(b"BEGIN"), *_inserted(1), query(b"ROLLBACK TO `b`")], "TR407", "ROLLBACK TO `b`"),
    ([gtid(1), query(b"BEGIN"), query("SAVEPOINT `é`".encode()), *_inserted(1), query("ROLLBACK TO `é`".encode())],
     "TR407", "it is not sure which"),
])  # fmt: skip
def test_stops(tmp_path: Path, events: list[bytes], code: str, said: str) -> None:
    with pytest.raises(DecodeError) as caught:
        _lines(tmp_path, query(b"CREATE TABLE before (i INT)"), *events)
    error = caught.value
    assert error.code == code
    assert said in str(error)
    whole = framing.MAGIC + format_description() + query(b"CREATE TABLE before (i INT)") + b"".join(events)
    assert error.where.position == len(whole) - len(events[-1])
    assert (error.where.gtid, error.where.file) == (f"{GTID}:1", FILE)
    assert error.hint


@pytest.mark.parametrize(("statement", "said", "hint", "not_said"), [
    (b"ALTER TABLE t DISCARD TABLESPACE", "as a file", "copy it to the downstream", "binlog_format"),
    (b"ALTER TABLE /* ADD */ t IMPORT PARTITION p TABLESPACE", "as a file", "[[skip]] rule", "binlog_format"),
    (b"CREATE TABLE t (a INT) AS SELECT 1", "without logging its rows", "in two statements", "manually"),
    (b"DELETE FROM t", "by statement text", "binlog_format = ROW", "two statements"),
    (b"FROBNICATE t", "no statement starts with 'FROBNICATE'", "start after this position", "binlog_format"),
])  # fmt: skip
def test_each_kind_of_statement_that_is_refused_has_a_remedy_of_its_own(
    tmp_path: Path, statement: bytes, said: str, hint: str, not_said: str
) -> None:
    with pytest.raises(DecodeError, match="TR409") as caught:
        _lines(tmp_path, gtid(1), query(statement))
    assert said in caught.value.message
    assert hint in caught.value.hint
    assert not_said not in caught.value.hint


@pytest.mark.parametrize("statement", ["ALTER TABLE t DISCARD TABLESPACE", "CREATE TABLE t SELECT 1 AS a"])
def test_a_statement_whose_rows_are_not_logged_is_passed_over_by_a_rule(
    tmp_path: Path, statement: str
) -> None:
    (tmp_path / SUBDIR).mkdir()
    events = b"".join(
        (format_description(), gtid(1), query(statement.encode()), gtid(2), query(b"DROP TABLE a"))
    )
    (tmp_path / SUBDIR / FILE).write_bytes(framing.MAGIC + events)
    lines = decoded_lines(tmp_path, SUBDIR, FILE, "mysql", skip=(SkipRule("d", "t", ("statement",)),))
    assert lines == ["DDL DROP TABLE: DROP TABLE a"]
    with pytest.raises(DecodeError, match="TR409"):
        decoded_lines(tmp_path, SUBDIR, FILE, "mysql", skip=(SkipRule("d", "t", ("image",)),))


def test_the_files_of_a_table_that_is_not_replicated_are_nobodys_concern(tmp_path: Path) -> None:
    """A query as text is: a function in it may write to any table."""
    (tmp_path / SUBDIR).mkdir()
    events = [
        gtid(1),
        query(b"ALTER TABLE t IMPORT TABLESPACE"),
        gtid(2),
        query(b"CREATE TABLE t SELECT f()"),
    ]
    (tmp_path / SUBDIR / FILE).write_bytes(framing.MAGIC + b"".join((format_description(), *events)))
    with pytest.raises(DecodeError, match=r"TR409.*CREATE TABLE t SELECT"):
        decoded_lines(tmp_path, SUBDIR, FILE, "mysql", exclude=("d.t",))


def test_what_was_rolled_back_did_not_happen(tmp_path: Path) -> None:
    """MariaDB logs it behind a CREATE TEMPORARY TABLE or a change of MyISAM; names are as each session quotes them."""
    lines = _lines(
        tmp_path,
        *[gtid(1), query(b"BEGIN"), *_inserted(1), query(b"SAVEPOINT `A ``b`"), *_inserted(2)],
        *[query(b"SAVEPOINT `q`"), *_inserted(3), query(b"ROLLBACK TO q"), *_inserted(4)],
        *[query(b"SAVEPOINT Q"), *_inserted(5), query(b"ROLLBACK TO `Q`"), *_inserted(6)],
        *[query(b"ROLLBACK TO `a ``B`"), *_inserted(7), query(b"ROLLBACK TO `a ``b`"), *_inserted(8), xid()],
        *[gtid(2), query(b"BEGIN"), *_inserted(9), query(b"SAVEPOINT q"), *_inserted(10), query(b"ROLLBACK")],
        *[gtid(3), query(b"BEGIN"), *_inserted(11), query(b"SAVEPOINT q"), *_inserted(12), xid()],
    )
    assert [line.split("-> ")[1] for line in lines] == [f'{{"id": {n}}}' for n in (1, 8, 11, 12)]
    assert savepoint_name('ROLLBACK TO "A""`b"') == savepoint_name('SAVEPOINT `A"``B`') == 'a"`b'


def test_a_load_as_text_is_passed_over_by_a_rule() -> None:
    """Its table is in its text, whose place in the event is not a QUERY event's."""
    query_event = parse_query_event(load_query(LOAD[:-4])[framing.HEADER_SIZE :])
    dml = read_dml(query_event.statement, query_event.default_db, "mysql")
    assert dml is not None
    assert [(name.db, name.table) for name in dml.tables] == [("d", "t")]


def test_what_may_be_ignored_is_ignored(tmp_path: Path) -> None:
    """An unknown event with the ignorable flag, and those that no row depends on, inside and outside of a group."""
    ignorable = event(200, b"whatever", flags=framing.FLAG_IGNORABLE)
    skipped = [ignorable, event(framing.ROWS_QUERY, b"\x01x"), event(framing.INTVAR, bytes(9))]
    lines = _lines(
        tmp_path,
        *skipped,
        gtid(1),
        query(b"BEGIN"),
        *skipped,
        xid(),
        event(framing.STOP, b""),
        query(b"DROP TABLE a"),
    )
    assert lines == ["DDL DROP TABLE: DROP TABLE a"]


def test_an_alter_that_failed_in_its_second_phase_changed_nothing(tmp_path: Path) -> None:
    """MariaDB's ROLLBACK ALTER carries the error of the ALTER, which is no reason to stop."""

    def phase(flags: bytes, error_code: int) -> bytes:
        variables = b"\x82" + flags
        head = struct.pack("<IIBHH", 1, 0, 1, error_code, len(variables))
        return event(framing.QUERY, head + variables + b"d\0ALTER TABLE a ADD UNIQUE (b)")

    number = struct.pack("<Q", 1)
    whole = phase(b"\2", 0), phase(b"\x08" + number, 1062), phase(b"\2", 0), phase(b"\4" + number, 0)
    events = [part for n, one in enumerate(whole, start=1) for part in (gtid(n), one)]
    assert _lines(tmp_path, *events) == ["DDL ALTER TABLE: ALTER TABLE a ADD UNIQUE (b)"]


def test_a_payload_without_compression(tmp_path: Path) -> None:
    """Type 255 (NONE): the same rows as compressed; taken from the golden binlog of MySQL."""
    data = (BINLOGS / "mysql" / SUBDIR / FILE).read_bytes()
    at, plain = framing.FIRST_POSITION, [data[:4]]
    while at < len(data):
        size = framing.header(data, at).size
        one = data[at : at + size]
        if one[4] == framing.TRANSACTION_PAYLOAD:
            inside = b"".join(unpacked(one[framing.HEADER_SIZE : -4]))
            fields = b"\x02\x03\xfc\xff\x00" + b"\x03\x03\xfc" + struct.pack("<H", len(inside)) + b"\x00"
            one = event(framing.TRANSACTION_PAYLOAD, fields + inside)
        plain.append(one)
        at += size
    (tmp_path / SUBDIR).mkdir()
    (tmp_path / SUBDIR / FILE).write_bytes(b"".join(plain))
    expected = (BINLOGS / "mysql" / "expected.txt").read_text()
    assert "".join(f"{line}\n" for line in decoded_lines(tmp_path, SUBDIR, FILE, "mysql")) == expected


def test_a_payload_of_an_unknown_compression() -> None:
    with pytest.raises(DecodeError, match="TR414"):
        list(unpacked(b"\x02\x01\x07\x00abc"))
