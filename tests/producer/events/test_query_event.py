"""QUERY events: layout, status variables of both servers, charsets, and what is refused."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.events.query_event import decode_text, epoch_ddl, parse_query_event
from schemas.charsets.collations import CHARSETS
from schemas.ddl.classify import classify
from schemas.ddl.cursor import TableName
from schemas.errors import DecodeError, Where
from schemas.wire.epoch import TableChanged

UTF8MB4 = b"\x04" + struct.pack("<HHH", 45, 45, 255)


def body(text: bytes, variables: bytes = UTF8MB4, db: bytes = b"app", error: int = 0) -> bytes:
    return struct.pack("<IIBHH", 7, 3, len(db), error, len(variables)) + variables + db + b"\0" + text


def charset(client: int) -> bytes:
    return b"\x04" + struct.pack("<HHH", client, 45, 255)


def test_a_plain_event() -> None:
    event = parse_query_event(body(b"CREATE TABLE t (a INT)", error=1051))
    assert event.statement == "CREATE TABLE t (a INT)"
    assert (event.default_db, event.thread_id, event.exec_time, event.error_code) == ("app", 7, 3, 1051)
    assert event.charset == (45, 45, 255)
    assert event.sql_mode is None
    assert event.foreign_key_checks
    assert event.unique_checks


def test_all_variables_of_mysql() -> None:
    flags2 = 1 << 26 | 1 << 27 | 1 << 14
    variables = b"".join(
        (
            b"\x00" + struct.pack("<I", flags2),
            b"\x01" + struct.pack("<Q", 1 << 32 | 4),
            b"\x06\x03std",
            b"\x03" + struct.pack("<HH", 2, 1),
            UTF8MB4,
            b"\x05\x06+02:00",
            b"\x07" + struct.pack("<H", 4),
            b"\x08" + struct.pack("<H", 255),
            b"\x09" + struct.pack("<Q", 5),
            b"\x0a" + struct.pack("<I", 6),
            b"\x0b\x04root\x09localhost",
            b"\x0c\x02app\0" + "größe".encode() + b"\0",
            b"\x0d" + (123456).to_bytes(3, "little"),
            b"\x10\x01",
            b"\x11" + struct.pack("<Q", 99),
            b"\x12" + struct.pack("<H", 255),
            b"\x13\x01",
            b"\x14\x00",
            b"\x15\x01",
        )
    )
    event = parse_query_event(body(b"DROP TABLE t", variables))
    assert (event.foreign_key_checks, event.unique_checks) == (False, False)
    assert event.sql_mode == 1 << 32 | 4
    assert event.catalog == "std"
    assert event.auto_increment == (2, 1)
    assert event.time_zone == "+02:00"
    assert (event.lc_time_names, event.charset_database, event.table_map_for_update) == (4, 255, 5)
    assert event.master_data_written == 6
    assert event.invoker == ("root", "localhost")
    assert event.updated_dbs == ("app", "größe")
    assert event.microseconds == 123456
    assert event.explicit_defaults_for_timestamp is True
    assert event.xid == 99
    assert event.default_collation_for_utf8mb4 == 255
    assert (event.sql_require_primary_key, event.default_table_encryption) == (True, False)
    assert event.enable_cascade_triggers is True
    assert event.unread_from is None


def test_variables_of_mariadb_in_its_order() -> None:
    variables = b"".join(
        (
            b"\x83\x02" + struct.pack("<HHHH", 45, 2347, 8, 47),  # before the charset since 11.5
            UTF8MB4,
            b"\x80" + (999_999).to_bytes(3, "little"),
            b"\x81" + struct.pack("<Q", 12),
            b"\x82\x02",
        )
    )
    event = parse_query_event(body(b"ALTER TABLE t ADD b INT", variables))
    assert event.default_collations == ((45, 2347), (8, 47))
    assert (event.microseconds, event.xid) == (999_999, 12)
    assert (event.alter_flags, event.alter_seq_no) == (2, None)
    commit = parse_query_event(
        body(b"ALTER TABLE t ADD b INT", UTF8MB4 + b"\x82\x04" + struct.pack("<Q", 77))
    )
    assert (commit.alter_flags, commit.alter_seq_no) == (4, 77)


def test_too_many_databases_have_no_names() -> None:
    event = parse_query_event(body(b"DROP DATABASE x", UTF8MB4 + b"\x0c\xfe" + b"\x10\x00"))
    assert event.updated_dbs is None
    assert event.explicit_defaults_for_timestamp is False


def test_an_unknown_variable_behind_the_charset_ends_the_block() -> None:
    event = parse_query_event(body(b"DROP TABLE t", UTF8MB4 + b"\x63\x01\x02\x03"))
    assert event.unread_from == 0x63
    assert event.statement == "DROP TABLE t"


def test_an_unknown_variable_before_the_charset_is_refused() -> None:
    with pytest.raises(DecodeError, match="TR462"):
        parse_query_event(body(b"DROP TABLE t", b"\x63\x01" + UTF8MB4))
    dummy = parse_query_event(body(b"BEGIN", b"\xff" + bytes(20)))
    assert dummy.unread_from == 255


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_cut_event_is_refused_or_only_shorter(cut: int) -> None:
    whole = body(b"DROP TABLE t", b"\x06\x03std" + UTF8MB4 + b"\x0b\x04root\x09localhost")
    if cut < len(b"DROP TABLE t"):
        assert whole[:-cut].endswith(parse_query_event(whole[:-cut]).statement.encode())
        return
    with pytest.raises(DecodeError, match="TR460"):
        parse_query_event(whole[: -cut - 1], where=Where(file="mysql-bin.000001", position=4))


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(DecodeError):
        parse_query_event(data)


@pytest.mark.parametrize(
    ("client", "codec"),
    [
        *((number, "utf-8") for number in (33, 45, 63, 255, 1069, 2304)),
        *((5, "latin-1"), (28, "gbk"), (95, "cp932"), (1, "big5"), (51, "cp1251"), (248, "gb18030")),
    ],
)
def test_the_clients_charset_decides(client: int, codec: str) -> None:
    text = {"latin-1": "größe", "cp1251": "размер"}.get(codec, "大小")
    event = parse_query_event(body(f"DROP TABLE `{text}`".encode(codec), charset(client)))
    assert event.statement == f"DROP TABLE `{text}`"


def test_a_backslash_inside_a_character_is_no_backslash() -> None:
    raw = "CREATE TABLE `ソ` (a CHAR(9) DEFAULT 'ソ')".encode("cp932")
    assert b"\x83\x5c'" in raw
    event = parse_query_event(body(raw, charset(95)))
    assert classify(event.statement, "app", "mysql").tables == (TableName("app", "ソ"),)


def test_latin1_is_windows_1252_with_its_gaps() -> None:
    event = parse_query_event(body(b"-- \x80\x81\xff", charset(8)))
    assert event.statement == "-- €\x81ÿ"


@pytest.mark.parametrize(
    ("client", "raw"),
    [(45, b"-- \xff"), (63, b"-- \xff"), (11, b"-- \xe9"), (3, b"-- \xa4"), (9999, b"-- \xe9")],
)
def test_text_that_is_not_valid_is_refused(client: int, raw: bytes) -> None:
    with pytest.raises(DecodeError, match="TR461"):
        parse_query_event(body(raw, charset(client)))


def test_ascii_text_needs_no_known_charset() -> None:
    assert parse_query_event(body(b"BEGIN", charset(9999))).statement == "BEGIN"


def test_every_charset_of_a_client_is_read() -> None:
    wide = {"ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be"}
    for collation, name in CHARSETS.items():
        assert decode_text("a b".encode(wide.get(name, "ascii")), collation) == "a b"


def test_the_database_is_utf8_whatever_the_client_speaks() -> None:
    event = parse_query_event(body(b"DROP TABLE t", charset(8), db="größe".encode()))
    assert event.default_db == "größe"


def test_the_epoch_record_of_a_ddl() -> None:
    variables = (
        b"\x00" + struct.pack("<I", 1 << 26) + b"\x01" + struct.pack("<Q", 4) + UTF8MB4 + b"\x05\x03UTC"
    )
    query = parse_query_event(body(b'CREATE TABLE "x" (a INT) START TRANSACTION', variables))
    statement = classify(query.statement, query.default_db, "mysql", sql_mode=query.sql_mode or 0)
    record = epoch_ddl(query, statement, "mysql", 1_700_000_000)
    assert record.statement == 'CREATE TABLE "x" (a INT)'
    assert record.kind == "CREATE TABLE"
    assert record.tables == (TableChanged("app", "x"),)
    assert (record.charset_client, record.collation_connection, record.collation_server) == (45, 45, 255)
    assert (record.sql_mode, record.time_zone, record.source_flavor) == (4, "UTC", "mysql")
    assert record.timestamp == 1_700_000_000
    assert not record.foreign_key_checks
    assert record.unique_checks
    rename = classify("RENAME TABLE a TO b.c", "app", "mysql")
    assert epoch_ddl(query, rename, "mysql", 0).tables == (TableChanged("app", "a", "b", "c"),)
