"""`tailrace relay cat`: what events say, and which of them are shown."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from relay_store.layout import directory as layout
from relay_store.write.writer import RelayWriter
from schemas.binlog import framing
from tailrace.reader.event_content import TYPES, ContentReader
from tests.support.binlogs.damage import LOGS, copy_of, events_of
from tests.support.binlogs.relay_events import event, format_description, gtid, xid
from tests.support.processes.relay_command import relay

FIRST, SECOND, THIRD = "mysql-bin.000001", "mysql-bin.000002", "mysql-bin.000003"


def cat(root: Path, *options: str) -> list[dict[str, Any]]:
    result = relay(root, "cat", "--json", *options)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture(params=sorted(LOGS))
def flavor(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def root(flavor: str, tmp_path: Path) -> Path:
    return copy_of(flavor, tmp_path)


def test_every_event_is_shown_at_its_place(root: Path) -> None:
    shown = [(f"{e['sub_dir']}/{e['file']}", e["position"], e["size"], e["type"]) for e in cat(root)]
    assert shown == [(file, pos, len(data), data[4]) for file, pos, data in events_of(root)]
    assert not any("not_read" in e or e["name"] == "UNKNOWN" for e in cat(root))


def test_rows_are_those_of_the_statements(root: Path) -> None:
    """What tests/golden/relay_logs was made with."""
    found = []
    for e in cat(root, "--verbose"):
        for inner in [e, *e.get("events", [])]:
            found += [(inner["name"].split("_")[0], row) for row in inner.get("rows", [])]
    before = {"id": 1, "state": "new", "total": "9.99", "note": "grün"}
    assert found[0] == ("WRITE", {"before": None, "after": before})
    assert found[2] == ("UPDATE", {"before": before, "after": {**before, "state": "paid"}})
    assert found[3] == (
        "DELETE",
        {"before": {"id": 2, "state": "paid", "total": "0.00", "note": None}, "after": None},
    )
    kind, moved = found[-1]
    assert (kind, moved["before"]["id"], moved["after"]["id"]) == ("UPDATE", 4, 40)
    assert moved["after"]["at"] == "2026-02-03 04:05:06.789"


def test_statements_tables_and_targets(root: Path, flavor: str) -> None:
    shown = cat(root)
    queries = [e["query"] for e in shown if e["name"] == "QUERY" and e["query"] != "BEGIN"]
    assert queries[:2] == [
        "CREATE DATABASE shop",
        "CREATE TABLE shop.orders (id INT PRIMARY KEY, state ENUM('new','paid'), total DECIMAL(9,2), note TEXT)",
    ]
    assert {(e["db"], e["table"]) for e in shown if e["name"] == "TABLE_MAP"} == {("shop", "orders")}
    assert [e["next_file"] for e in shown if e["name"] == "ROTATE"] == [SECOND, THIRD]
    version = {"mysql": "9.7", "mariadb": "11.4"}[flavor]
    assert all(e["server_version"].startswith(version) for e in shown if e["name"] == "FORMAT_DESCRIPTION")
    assert all("rows" not in e for e in shown)


def test_a_compressed_transaction_is_shown_inside(tmp_path: Path) -> None:
    [payload] = [e for e in cat(copy_of("mysql", tmp_path)) if e["name"] == "TRANSACTION_PAYLOAD"]
    assert payload["compression"] == "ZSTD"
    assert [e["name"] for e in payload["events"]] == ["QUERY", "TABLE_MAP", "WRITE_ROWS", "XID"]
    assert payload["events"][2]["row_count"] == 2
    assert sum(e["size"] for e in payload["events"]) == payload["uncompressed_size"]


def test_one_file_and_a_part_of_it(root: Path) -> None:
    whole = cat(root, "--file", SECOND)
    assert {e["file"] for e in whole} == {SECOND}
    subdir = layout.read_index(root)[0]
    assert cat(root, "--file", SECOND, "--sub-dir", subdir) == whole
    assert cat(root, "--sub-dir", subdir) == cat(root)
    start, stop = whole[3]["position"], whole[7]["position"]
    assert (
        cat(root, "--file", SECOND, "--start-position", str(start), "--stop-position", str(stop))
        == whole[3:7]
    )
    # A position within an event: the first event behind it.
    assert cat(root, "--file", SECOND, "-j", str(start - 1))[0]["position"] == start
    # Over several files, the start is in the first one and the stop in the last.
    assert cat(root, "--start-position", "200", "--stop-position", "130")[-1]["file"] == THIRD


def test_a_file_that_is_not_there(root: Path) -> None:
    result = relay(root, "cat", "--file", "mysql-bin.000009")
    assert result.exit_code == 1
    assert "TR303" in str(result.exception)


def test_transactions_by_gtid(root: Path, flavor: str) -> None:
    shown = cat(root)
    gtids = [e["gtid"] for e in shown if "gtid" in e]
    # The first two: MariaDB's set means everything up to there.
    wanted = gtids[1] if flavor == "mariadb" else f"{gtids[0]},{gtids[1]}"
    part = cat(root, "--include-gtids", wanted)
    assert [e["gtid"] for e in part if "gtid" in e] == gtids[:2]
    assert [e["name"] for e in part] == [part[0]["name"], "QUERY"] * 2
    rest = cat(root, "--exclude-gtids", wanted)
    assert [e["gtid"] for e in rest if "gtid" in e] == gtids[2:]
    assert rest[-1]["name"] == "XID"
    assert relay(root, "cat", "--include-gtids", "nonsense").exit_code == 2


def test_a_span_of_time(root: Path) -> None:
    shown = cat(root)
    times = sorted({e["time"] for e in shown})
    assert cat(root, "--start-datetime", times[0]) == shown
    assert cat(root, "--stop-datetime", times[0].replace("T", " ").rstrip("Z")) == []
    assert cat(root, "--start-datetime", "2100-01-01 00:00:00") == []
    assert cat(root, "--stop-datetime", "2100-01-01T00:00:00+02:00") == shown
    later = cat(root, "--start-datetime", times[-1])
    assert later == shown[len(shown) - len(later) :]
    assert relay(root, "cat", "--start-datetime", "soon").exit_code == 2


def test_text_is_for_people(root: Path) -> None:
    lines = relay(root, "cat", "--verbose").stdout.splitlines()
    assert lines[0] == f"# {layout.read_index(root)[0]}/{FIRST}"
    assert sum(line.startswith("# ") for line in lines) == 3
    assert any('query="CREATE DATABASE shop"' in line for line in lines)
    assert any('### before {"id": 1' in line and 'after {"id": 1' in line for line in lines)


def test_files_without_checksums_and_types_that_engine_unknown(tmp_path: Path) -> None:
    root = tmp_path / "relay"
    writer = RelayWriter.open(root)
    writer.open_subdir("3e11fa47-71ca-11e1-9e33-c80aa9429562")
    writer.rotate(FIRST)
    first = bytearray(format_description()[:-4])
    first[-1] = framing.CHECKSUM_NONE
    body = bytes(first[19:])
    strange = framing.HEADER.pack(1, 99, 1, 24, 0, 0) + b"what?"
    data = event(framing.FORMAT_DESCRIPTION, body, 4) + gtid(1)[:-4] + strange
    size = struct.pack("<I", len(gtid(1)) - 4)
    data = data.replace(gtid(1)[:-4], gtid(1)[:9] + size + gtid(1)[13:-4])
    end = xid()[:9] + struct.pack("<I", len(xid()) - 4) + xid()[13:-4]
    writer.append([data + end], 4 + len(data + end))
    writer.close()
    shown = cat(root)
    assert [e["name"] for e in shown] == ["FORMAT_DESCRIPTION", "GTID", "UNKNOWN", "XID"]
    assert shown[0]["checksum"] == "NONE"
    assert (shown[1]["gtid"], shown[2]["type"], shown[2]["size"]) == (
        "00010203-0405-0607-0809-0a0b0c0d0e0f:1",
        99,
        24,
    )
    assert "UNKNOWN type 99" in relay(root, "cat").stdout


@settings(deadline=None)
@given(kind=st.integers(0, 255), body=st.binary(max_size=200))
@example(kind=framing.QUERY, body=b"")
@example(kind=framing.TRANSACTION_PAYLOAD, body=b"\x02\x01\xff\x00" + bytes(40))
def test_no_event_is_a_crash(kind: int, body: bytes) -> None:
    reader = ContentReader()
    reader.feed(format_description())
    for one in (event(kind, body), event(kind, bytes(6) + b"\1\0" + body)):
        reader.feed(one)
        fields = reader.fields(one)
        assert fields["name"] == TYPES.get(kind, "UNKNOWN")
        json.dumps(fields)
