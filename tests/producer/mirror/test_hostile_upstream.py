"""An upstream, or whoever sits on the line to it, that says what no server says: over a real socket."""

from __future__ import annotations

import itertools
import struct
import threading
from dataclasses import replace
from pathlib import Path

import pymysql
import pytest

from producer.mirror.loop import Mirror
from producer.settings import RelaySettings
from producer.upstream.connect import describe, set_at_start
from relay_store.write.writer import RelayWriter
from schemas.access.server_connection import ServerConnection
from schemas.binlog import framing
from schemas.errors import ConfigError, RelayError, TailraceError, UpstreamError
from tests.support.binlogs.fake_upstream import FIRST, UUID, FakeUpstream, fake_upstream, framed, result_set
from tests.support.binlogs.relay_events import event, format_description, group, gtid, query, xid

SECOND = "mysql-bin.000002"
BAD_FILES = [
    "../../victim.log.000002",
    "/tmp/victim.000002",
    "sub/mysql-bin.000002",
    "..\\victim.000002",
    "mysql-bin.000002+7",
    "mysql-bin.000002+",
    "mysql-bin",
    "mysql-bin.2",
    "mysql-bin.0000002",
    "mysql-bin.99999999999",
    "mysql-bin.9999999999",
    "mysql-bin.٠٠٠٠٠٢",
    ".000002",
    "",
    "mysql\0bin.000002",
    "mysql\nbin.000002",
    'mysql"bin.000002',
    "mysql'bin.000002",
    "\x1b[2Jbin.000002",
    "\u202ebin.000002",
    "b" * 300 + ".000002",
]
BAD_UUIDS = ["../../elsewhere", "/tmp/x", "", "x", UUID + "0", UUID[:-1] + "g", UUID + "/..", "\x1b[2J", "."]


@pytest.fixture(params=["mysql", "mariadb"])
def upstream(request):
    with fake_upstream(request.param) as made:
        yield made


@pytest.fixture
def mysql():
    with fake_upstream() as made:
        yield made


def rotate(name: str | bytes, position: int = 4, *, flags: int = framing.FLAG_ARTIFICIAL) -> bytes:
    body = struct.pack("<Q", position) + (name if isinstance(name, bytes) else name.encode())
    return event(framing.ROTATE, body, timestamp=0, flags=flags)


def mirrored(upstream: FakeUpstream, root: Path, until: int = 1 << 20) -> TailraceError | None:
    """Mirror what the upstream sends until its first file is there up to a position, or nothing can heal."""
    stop, failure = threading.Event(), []
    with_relay = RelayWriter.open(root)
    mirror = Mirror(upstream.url, with_relay, RelaySettings(), server_id=9)

    def run() -> None:
        try:
            mirror.run(stop, (FIRST, until))
        except TailraceError as error:
            failure.append(error)

    thread = threading.Thread(target=run, daemon=True)
    try:
        thread.start()
        while thread.is_alive() and not mirror.progress.last_error:
            thread.join(0.01)
        stop.set()
        thread.join(20)
        assert not thread.is_alive()
    finally:
        with_relay.close()
    return failure[0] if failure else mirror.progress.last_error


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_what_a_usual_server_sends_is_mirrored(mysql, tmp_path):
    events = [format_description(), *group(1), *group(2)]
    mysql.sends(rotate(FIRST), *events, rotate(SECOND), format_description())
    assert mirrored(mysql, tmp_path / "relay", 4 + len(b"".join(events))) is None
    assert [p.name for p in sorted((tmp_path / "relay").rglob("mysql-bin*"))] in ([FIRST], [FIRST, SECOND])


@pytest.mark.parametrize("name", [*BAD_FILES, b"mysql-bin\xff.000002", b"\xc3"], ids=repr)
def test_a_rotate_to_what_is_no_binlog_file_stops_and_writes_nothing(mysql, tmp_path, name):
    victim = tmp_path / "victim.log.000002"
    victim.write_text("precious")
    mysql.sends(rotate(FIRST), format_description(), *group(1), rotate(name))
    error = mirrored(mysql, tmp_path / "relay")
    assert isinstance(error, UpstreamError)
    assert (error.code, error.where.file) == ("TR209", FIRST)
    assert victim.read_text() == "precious"
    assert set(everything(tmp_path)) == {
        "victim.log.000002",
        "relay/relay.lock",
        "relay/purge.lock",
        "relay/server-uuid.index",
        "relay/start.toml",
        f"relay/{UUID}.000001/relay.meta",
        f"relay/{UUID}.000001/{FIRST}",
    }


@pytest.mark.parametrize("name", BAD_FILES, ids=repr)
def test_a_list_of_binlogs_with_what_is_none_is_not_believed(upstream, tmp_path, name):
    for question in ("SHOW BINARY LOGS", "SHOW BINARY LOG STATUS", "SHOW MASTER STATUS"):
        usual = upstream.answers.get(question)
        if not isinstance(usual, list):
            continue
        upstream.answers[question] = [[name, *usual[0][1:]]]
        with pytest.raises(UpstreamError) as failure:
            describe(upstream.url)
        assert failure.value.code == "TR209"
        upstream.answers[question] = usual
    assert everything(tmp_path) == {}


@pytest.mark.parametrize("uuid", BAD_UUIDS, ids=repr)
def test_a_server_uuid_that_is_none_becomes_no_folder(mysql, tmp_path, uuid):
    mysql.answers["'server_uuid'"] = [["server_uuid", uuid]]
    if uuid:
        error = mirrored(mysql, tmp_path / "relay")
        assert error is not None
        assert error.code == "TR209"
    assert {p.name for p in tmp_path.rglob("*")} <= {"relay", "relay.lock"}


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("VERSION()", []),
        ("VERSION()", [[]]),
        ("'server_id'", [["server_id", "x"]]),
        ("'server_id'", [["server_id"]]),
        ("SHOW BINARY LOGS", [[FIRST]]),
        ("SHOW BINARY LOGS", [[FIRST, "many"]]),
        ("SHOW BINARY LOGS", [[None, 7]]),
        ("STATUS", []),
        ("STATUS", [[FIRST, "x", "", "", ""]]),
        ("STATUS", [[FIRST]]),
        ("LOG STATUS", [[FIRST, 4, "", "", "no set"]]),
        ("LOG STATUS", [[FIRST, 4, "", "", f"{UUID}:0"]]),
        ("gtid_binlog_state", [["0-1"]]),
        ("gtid_binlog_state", []),
        ("BINLOG_GTID_POS", [[f"{UUID}:1-5"]]),
        ("'gtid_domain_id'", [["gtid_domain_id", 1 << 40]]),
        ("'gtid_purged'", [["gtid_purged", "\x1b[2J"]]),
    ],
)
def test_an_answer_that_no_server_gives_is_an_error_of_the_upstream(upstream, question, answer):
    found = [known for known in upstream.answers if question in known]
    for known in found:
        upstream.answers[known] = answer
    if found:
        with pytest.raises(UpstreamError) as failure:
            describe(upstream.url)
        assert failure.value.code in ("TR209", "TR201")


def test_a_set_at_a_files_start_that_is_none(mysql):
    info = describe(mysql.url)
    mysql.answers["SHOW BINLOG EVENTS"] = [[FIRST, 4, "Previous_gtids", 1, 5, "nonsense"]]
    with pytest.raises(UpstreamError, match="TR209"):
        set_at_start(mysql.url, info, FIRST)


_MARIADB_LIST = event(framing.MARIADB_GTID_LIST, struct.pack("<I", 7))
BAD_EVENTS = {
    "number of a GTID": event(framing.GTID, struct.pack("<B16sq", 0, bytes(16), -5)),
    "number past the last": event(framing.GTID, struct.pack("<B16sq", 0, bytes(16), (1 << 63) - 1)),
    "short GTID": event(framing.GTID, bytes(5)),
    "tagged GTID without anything": event(framing.GTID_TAGGED, b""),
    "long tagged GTID": event(framing.GTID_TAGGED, b"\x02\xff" + bytes(2000)),
    "short list": _MARIADB_LIST,
    "short MariaDB GTID": event(framing.MARIADB_GTID, b"\1"),
    "previous GTIDs of many sources": event(framing.PREVIOUS_GTIDS, struct.pack("<Q", 1 << 55)),
    "previous GTIDs backwards": event(
        framing.PREVIOUS_GTIDS, struct.pack("<Q16sQ4q", 1, bytes(16), 2, 5, 6, 1, 2)
    ),
    "previous GTIDs of many intervals": event(
        framing.PREVIOUS_GTIDS, struct.pack("<Q16sQ", 1, bytes(16), 1 << 60)
    ),
    "previous GTIDs with a tag of control signs": event(
        framing.PREVIOUS_GTIDS,
        struct.pack("<Q16sB3sQqq", 1 | 1 << 8 | 1 << 56, bytes(16), 6, b'"\n\x1b', 1, 1, 2),
    ),
    "short QUERY": event(framing.QUERY, bytes(4)),
    "nothing": event(framing.XID, b"")[:3],
}


@pytest.mark.parametrize("bad", BAD_EVENTS.values(), ids=BAD_EVENTS)
def test_an_event_that_no_server_writes_stops_at_its_place(mysql, tmp_path, bad):
    good = [format_description(), *group(1)]
    mysql.sends(rotate(FIRST), *good, bad)
    error = mirrored(mysql, tmp_path / "relay")
    assert error is not None
    assert error.code in ("TR208", "TR209"), error
    assert error.where.file == FIRST
    assert error.where.position == 4 + len(b"".join(good))
    # Nothing of it is in the file: another start goes on without a hand.
    kept = (tmp_path / "relay" / f"{UUID}.000001" / FIRST).read_bytes()
    assert kept == framing.MAGIC + b"".join(good)
    RelayWriter.open(tmp_path / "relay").close()


def sized(size: int) -> bytes:
    """The head of an event that says it has so many bytes."""
    return framing.HEADER.pack(1, framing.WRITE_ROWS, 1, size, 0, 0)


@pytest.mark.parametrize(
    "packets",
    [
        framed(b"\0" + sized(0xFFFFFFFF), 1),
        b"\xff\xff\xff\1\0" + sized(0xFFFFFFFF),
        b"\xff\xff\xff\1\0" + sized(framing.MAX_EVENT + 1),
        b"\xff\xff\xff\1\0" + sized(30),
        b"\x20\0\0\1\0" + sized(0xFFFFFE),
        b"\0\0\0\1" * 8,
        b"\1\0\0\1\0" * 8,
        b"\7\0\0\1\0" + bytes(40),
        b"\xff\xff\xff\1\xff" + bytes(40),
    ],
    ids=range(9),
)
def test_sizes_are_compared_before_anything_is_waited_for(mysql, tmp_path, packets):
    mysql.sends(rotate(FIRST), format_description(), *group(1))
    (begin,) = mysql.stream()
    mysql.stream = lambda: (begin, packets)
    error = mirrored(mysql, tmp_path / "relay")
    assert error is not None
    assert (error.code, error.where.file) == ("TR208", FIRST)


@pytest.mark.parametrize(
    "greeting",
    [
        lambda: itertools.repeat(b"\xff\xff\xff\0" + bytes(0xFFFFFF)),
        lambda: (b"\xff\xff\xff\0" + bytes(0xFFFFFF) if n == 0 else bytes(1 << 20) for n in range(64)),
        lambda: (framed(b"", 0),),
        lambda: (framed(b"\x0a", 0),),
        lambda: (framed(b"\x0a8.0\0" + bytes(5), 0),),
        lambda: (framed(b"\x0anot.a.version\0" + bytes(60), 0),),
        lambda: (framed(b"\x0a8\xff\0" + b"\xff" * 60, 0),),
        lambda: (framed(b"\xff\x15\x04#28000" + b"x" * 1000, 0),),
        lambda: (b"HTTP/1.1 400 Bad Request\r\n\r\n",),
        lambda: (framed(b"\x0a8.0\0", 9),),
    ],
    ids=range(10),
)
def test_a_greeting_that_is_none_is_an_error_of_the_connection(mysql, greeting):
    mysql.greeting = greeting
    with pytest.raises(UpstreamError) as failure:
        describe(mysql.url)
    assert failure.value.code in ("TR201", "TR202")


@pytest.mark.parametrize(
    "answer",
    [
        framed(b"", 1),
        framed(b"\xfc", 1),
        framed(b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff", 1) + framed(b"", 2),
        framed(b"\1", 1) + framed(b"", 2),
        framed(b"\xfb/etc/passwd", 1),
        result_set([["a"]])[:-9] + framed(b"\xfd\xff\xff\xff", 4),
        framed(b"\xff", 1),
    ],
    ids=range(7),
)
def test_an_answer_that_is_no_result_is_an_error_of_the_connection(mysql, answer):
    mysql.answers["VERSION()"] = answer
    with pytest.raises(UpstreamError, match="TR201"):
        describe(mysql.url)


def test_a_statement_that_is_not_prepared_is_an_error_of_the_connection(mysql):
    connection = ServerConnection(host="127.0.0.1", port=mysql.url.port, user="x")
    # The fake upstream answers with OK, which has no number of a statement.
    with pytest.raises(pymysql.MySQLError, match="Malformed"):
        connection.prepare(b"INSERT INTO t VALUES (?)")


def prepared(*packets):
    """The answer of a server that has prepared statement 7 with 300 parameters."""
    numbered = enumerate((b"\0\7\0\0\0\0\0\x2c\1\0\0\0", *packets), 1)
    return b"".join(framed(packet, number) for number, packet in numbered)


def test_definitions_of_parameters_are_passed_over(mysql):
    connection = ServerConnection(host="127.0.0.1", port=mysql.url.port, user="x")
    mysql.prepared = prepared(*[b"\3def any"] * 300, b"\xfe\0\0\2\0")
    assert connection.prepare(b"INSERT INTO t VALUES (?)") == b"\7\0\0\0"
    assert connection.query("SELECT GTID_SUBSET") == 0


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (
            prepared(*[b"\3def"] * 9, b"\xff\x25\5#70100interrupted"),
            pymysql.OperationalError,
            "1317.*interrupted",
        ),
        (
            prepared(*[b"\3def"] * 9) + framed(b"\xff\x1d\4shutdown", 0),
            pymysql.OperationalError,
            "2013.*Lost connection",
        ),
        (prepared(*[b"\3def"] * 9) + framed(b"\3def", 12), pymysql.InternalError, "got 12 expected 11"),
    ],
    ids=["error", "shutdown", "gap"],
)
def test_what_comes_instead_of_a_definition_is_an_error(mysql, answer, error, message):
    connection = ServerConnection(host="127.0.0.1", port=mysql.url.port, user="x", read_timeout=20)
    mysql.prepared = answer
    with pytest.raises(error, match=message):
        connection.prepare(b"INSERT INTO t VALUES (?)")


def test_an_answer_without_an_end_is_given_up(mysql):
    connection = ServerConnection(host="127.0.0.1", port=mysql.url.port, user="x", max_answer=1 << 20)
    mysql.answers["endless"] = result_set([["a"]])[: -len(framed(b"\xfe\0\0\2\0", 1))] + b"".join(
        framed(b"\1a", number) for number in range(5, 200_000)
    )
    with pytest.raises(pymysql.MySQLError, match="does not end"), connection.cursor() as cursor:
        cursor.execute("SELECT endless")


@pytest.mark.parametrize("plugin", [b"mysql_clear_password", b"dialog"])
def test_no_server_gets_the_password_in_clear_text_over_an_open_line(mysql, plugin):
    mysql.login = framed(b"\xfe" + plugin + b"\0\x04Password: ", 2)
    with pytest.raises(ConfigError, match=r"TR152: .*clear text"):
        describe(replace(mysql.url, password="very secret"))
    assert b"very secret" not in b"".join(mysql.received)


def test_gtids_of_the_other_kind_of_server_stop_before_they_are_counted(tmp_path):
    with fake_upstream("mariadb") as upstream:
        upstream.sends(rotate(FIRST), format_description(), *group(1))
        error = mirrored(upstream, tmp_path / "relay")
    assert error is not None
    assert error.code == "TR209"


def test_a_damaged_checksum_stays_what_it_was(mysql, tmp_path):
    bad = bytearray(xid())
    bad[20] ^= 1
    mysql.sends(rotate(FIRST), format_description(), gtid(1), query(b"BEGIN"), bytes(bad))
    error = mirrored(mysql, tmp_path / "relay")
    assert isinstance(error, RelayError)
    assert error.code == "TR304"
