"""Where transaction groups end, for the shapes that both servers write."""

from __future__ import annotations

import struct

import pytest

from schemas.binlog import framing
from schemas.binlog.groups import GroupScanner
from tests.support.binlogs.relay_events import event, gtid, query, rows, xid


def mariadb_gtid(sequence: int, flags: int = 0) -> bytes:
    return event(framing.MARIADB_GTID, struct.pack("<QIB6x", sequence, 3, flags))


def boundaries(events: list[bytes]) -> list[bool]:
    scanner = GroupScanner()
    return [scanner.feed(one[4], one, True) for one in events]


ANONYMOUS = event(framing.ANONYMOUS_GTID, bytes(25))
PREPARE = event(framing.XA_PREPARE, bytes(20))
PAYLOAD = event(framing.TRANSACTION_PAYLOAD, bytes(30))
INTVAR = event(framing.INTVAR, bytes(9))
STANDALONE = mariadb_gtid(5, framing.MARIADB_FL_STANDALONE)
COMPRESSED = event(framing.MARIADB_QUERY_COMPRESSED, bytes(40))

SHAPES = {
    "transaction": [gtid(1), query(b"BEGIN"), rows(), xid()],
    "ddl": [gtid(1), query(b"CREATE TABLE a (i int)")],
    "anonymous": [ANONYMOUS, query(b"BEGIN"), rows(), xid()],
    "myisam": [gtid(1), query(b"BEGIN"), rows(), query(b"COMMIT")],
    "rolled back myisam": [gtid(1), query(b"BEGIN"), rows(), query(b"ROLLBACK")],
    "savepoint": [gtid(1), query(b"BEGIN"), query(b"SAVEPOINT `a`"), query(b"ROLLBACK TO `a`"), xid()],
    "statement": [gtid(1), INTVAR, query(b"ALTER TABLE a ADD j int")],
    "xa prepare": [gtid(1), query(b"XA START X'61',X'',1"), rows(), query(b"XA END X'61',X'',1"), PREPARE],
    "xa commit": [gtid(1), query(b"XA COMMIT X'61',X'',1")],
    "compressed": [gtid(1), PAYLOAD],
    "create select": [gtid(1), query(b"BEGIN"), query(b"CREATE TABLE a START TRANSACTION"), rows(), xid()],
    "mariadb transaction": [mariadb_gtid(5), rows(), xid()],
    "mariadb myisam": [mariadb_gtid(5), rows(), query(b"COMMIT")],
    "mariadb create select": [mariadb_gtid(5), query(b"CREATE TABLE a (i int)"), rows(), xid()],
    "mariadb xa prepare": [mariadb_gtid(5), query(b"XA START X'61',X'',1"), rows(), PREPARE],
    "mariadb xa commit": [mariadb_gtid(5, 128), query(b"XA COMMIT X'61',X'',1")],
    "mariadb ddl": [STANDALONE, query(b"START ALTER")],
    "mariadb long ddl": [STANDALONE, COMPRESSED],
    "mariadb statement": [STANDALONE, INTVAR, query(b"BEGIN NOT ATOMIC")],
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_group_ends_with_its_last_event(name):
    events = SHAPES[name]
    assert boundaries(events) == [False] * (len(events) - 1) + [True]


def test_the_scanner_names_the_group():
    scanner = GroupScanner()
    scanner.feed(framing.GTID, gtid(7), True)
    assert scanner.gtid() == "00010203-0405-0607-0809-0a0b0c0d0e0f:7"
    scanner.feed(framing.MARIADB_GTID, mariadb_gtid(9), True)
    assert scanner.gtid() == "3-1-9"
    scanner.feed(framing.ANONYMOUS_GTID, ANONYMOUS, True)
    assert scanner.gtid() == ""


def test_events_between_groups_are_boundaries():
    kinds = [framing.FORMAT_DESCRIPTION, framing.PREVIOUS_GTIDS, framing.ROTATE, framing.STOP]
    assert boundaries([event(kind, bytes(20)) for kind in kinds]) == [True] * 4
