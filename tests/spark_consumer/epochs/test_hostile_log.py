"""Whatever lies in the log's topics: it is read as what the producer writes, or it stops at its place."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer.decode.row_decoder import Images, RowDecoder
from schemas.errors import LogError
from schemas.sql.literals import compile_literals, compile_renderers
from schemas.structure import Column, TableStructure
from schemas.types import codec_of
from schemas.types.json_sql import typed_literal
from schemas.varint import encode_bytes, encode_long
from schemas.wire.avro_schema import row_schema
from schemas.wire.epoch import (
    ABSENT,
    EPOCH_KEY,
    EPOCH_RECORD,
    INCOMPLETE,
    STRUCTURE_RECORD,
    CopyStep,
    EpochCommitted,
    OffsetRange,
    PreparedTransaction,
    RowRun,
    SchemaChanged,
    Skipped,
    TableChanged,
    TableTouched,
    encode_structure_version,
)
from schemas.wire.log_records import (
    OTHER_VERSION,
    UNFIT,
    At,
    EpochChain,
    LoggedVersion,
    check_names,
    check_rows,
    read_epoch,
    read_version,
    structure_of,
)
from schemas.wire.row_check import compile_check
from spark_consumer.epochs.tracker import BROKEN, MemoryVersions, TrackerRow, tracked
from spark_consumer.plan.plan import ApplyMode, SlicePlan, TablePlan
from spark_consumer.plan.statements import Limits
from spark_consumer.rows.render import render
from spark_consumer.rows.slice_rows import RangeRows
from spark_consumer.rules.expressions.filter import ExpressionRule, compile_filter
from spark_consumer.sinks.parquet.changes import changes, file_columns
from spark_consumer.target.row_locator import compile_finder
from tailrace.reader.rows import RowReader
from tests.support.epochs.fake_topic import Change, delete, insert, integer, row_key, row_value, text, update
from tests.support.epochs.records import SOURCE, epoch_record, version_record
from tests.support.processes.limits import bounded

AT = At("p.epochs", 7)
PLACE = re.escape(f"{AT}: ")
T = TableStructure("shop", "t", (integer("id"), text("v", nullable=True)), ("id",))
VERSION = version_record(5, T)
DDL = SchemaChanged(
    "ALTER TABLE t ADD x INT", "shop", "ALTER TABLE", (TableChanged("shop", "t"),), "mysql", 1_700_000_000
)
EPOCH = replace(
    epoch_record(
        5,
        rows=3,
        transactions=2,
        executed=f"{SOURCE}:1-12",
        ranges=(OffsetRange(0, 10, 12), OffsetRange(3, 4, 6)),
        tables=(TableTouched("shop", "t", VERSION.fingerprint, 1, 2, 0),),
        structures=(VERSION,),
    ),
    first_gtid=f"{SOURCE}:11",
    last_gtid=f"{SOURCE}:12",
    digest=99,
    skipped=(Skipped("shop", "u", "statement", 2),),
    prepared=(PreparedTransaction("X'61',X'',1", None, f"{SOURCE}.000001", "mysql-bin.000001", 100, 200),),
)
RUNS = (RowRun(2, 40, (OffsetRange(0, 10, 12),)), RowRun(1, 59, (OffsetRange(3, 4, 6),)))
CHANGED = replace(
    epoch_record(6, transactions=1, ddl=DDL, executed=f"{SOURCE}:1-13"), source_pos=2000, relay_pos=2000
)

COPY = CopyStep("11111111-0000-0000-0000-00000000c0b1", "shop", "t", "rows", lower='["1"]', upper='["2"]')
COPIED = replace(
    EPOCH,
    first_gtid=None,
    last_gtid=None,
    transactions=0,
    tables=(TableTouched("shop", "t", VERSION.fingerprint, 0, 0, 0, 3, incomplete=True),),
    copy=COPY,
)
COPIED_FOR_NEW = replace(
    COPIED,
    tables=(replace(COPIED.tables[0], incomplete=False, new_channels=INCOMPLETE),),
    for_new_channels=True,
)
BEGUN = replace(
    epoch_record(
        6,
        ddl=replace(DDL, statement="CREATE TABLE `t` (`id` int, PRIMARY KEY (`id`))", kind="CREATE TABLE"),
        executed=f"{SOURCE}:1-12",
    ),
    copy=replace(COPY, step="begin", again=True, lower=None, upper=None, upstream_rows=7),
)
ENDED = replace(BEGUN, epoch=7, ddl=None, copy=replace(COPY, step="end", lower=None, upper=None))


def outputs(value: bytes) -> list[TrackerRow]:
    """What the tracker outputs for a record."""
    return list(tracked(MemoryVersions(), [(AT.offset, EPOCH_KEY, value)], AT.topic))


def reread(epoch: EpochCommitted) -> EpochCommitted:
    return read_epoch(epoch.encode(), AT)


def test_what_the_producer_writes_is_read() -> None:
    assert reread(EPOCH) == EPOCH
    assert reread(replace(EPOCH, runs=RUNS)) == replace(EPOCH, runs=RUNS)
    assert reread(CHANGED) == CHANGED
    for_new = [replace(epoch, for_new_channels=True) for epoch in (COPIED_FOR_NEW, BEGUN, ENDED)]
    for epoch in (COPIED, replace(COPIED, runs=RUNS), BEGUN, ENDED, *for_new):
        assert reread(epoch) == epoch
    whole_chunk = replace(COPIED, rows=0, tables=(), ranges=(), digest=0, structures=())
    assert reread(whole_chunk) == whole_chunk
    assert read_version(encode_structure_version(VERSION), AT, VERSION.topic_key) == LoggedVersion(
        **VERSION.__dict__, at=AT
    )
    assert structure_of(VERSION) == T


# epochs ---------------------------------------------------------------------------------------------

_TOUCHED = EPOCH.tables[0]
_FORGED: dict[str, dict[str, Any]] = {
    "a negative number": {"epoch": -1},
    "no server": {"source_id": "../../victim"},
    "another server's folder": {"relay_dir": "00000000-0000-0000-0000-0000000000ff.000001"},
    "a folder outside": {"relay_dir": "../../etc"},
    "an absolute folder": {"relay_dir": "/etc"},
    "a file outside": {"relay_file": "../victim.000001"},
    "no file": {"relay_file": "mysql-bin"},
    "a file of the upstream outside": {"source_file": "/etc/passwd.000001"},
    "a part of another file": {"relay_file": "mysql-bin.000002"},
    "no part": {"relay_file": "mysql-bin.000001+7"},
    "a negative position": {"relay_pos": -4, "source_pos": -4},
    "two positions": {"relay_pos": 50},
    "no set": {"executed_gtids": "DROP TABLE t"},
    "a set of both kinds": {"executed_gtids": f"{SOURCE}:1-12,0-1-7"},
    "an endless set": {"executed_gtids": f"{SOURCE}:1-99999999999999999999999"},
    "a GTID that is not executed": {"last_gtid": f"{SOURCE}:13"},
    "no GTID": {"first_gtid": "x"},
    "a negative time": {"last_commit_ms": -1},
    "a time behind all": {"published_ms": 1 << 62},
    "a negative digest": {"digest": -1},
    "negative counts": {"tables": (replace(_TOUCHED, inserts=-1, updates=4),)},
    "negative transactions": {"transactions": -1},
    "an empty range": {"ranges": (OffsetRange(0, 10, 10),)},
    "a range that ends first": {"ranges": (OffsetRange(0, 10, 4),)},
    "negative offsets": {"ranges": (OffsetRange(0, -10, 4),)},
    "a negative partition": {"ranges": (OffsetRange(-1, 0, 4),)},
    "a partition twice": {"ranges": (OffsetRange(1, 0, 4), OffsetRange(1, 4, 9))},
    "no fingerprint": {"tables": (replace(_TOUCHED, fingerprint="'); import os"),)},
    "an empty name": {"tables": (replace(_TOUCHED, table=""),)},
    "a NUL in a name": {"tables": (replace(_TOUCHED, db="a\0b"),)},
    "an endless name": {"tables": (replace(_TOUCHED, db="a" * 300),)},
    "another epoch's structure": {"structures": (replace(VERSION, epoch=4),)},
    "a structure of nobody": {"structures": (replace(VERSION, table=""),)},
    "a structure that is no JSON": {"structures": (replace(VERSION, structure="{"),)},
    "another one's schema": {"structures": (replace(VERSION, avro_schema='{"type":"record"}'),)},
    "a recursive schema": {
        "structures": (replace(VERSION, avro_schema=VERSION.avro_schema.replace('"int"', '"Envelope"')),)
    },
    "a prepared transaction without a place": {
        "prepared": (replace(EPOCH.prepared[0], relay_pos=9, relay_end=9),)
    },
    "a prepared transaction outside": {"prepared": (replace(EPOCH.prepared[0], relay_dir="/tmp"),)},
    "no XID": {"prepared": (replace(EPOCH.prepared[0], xid="X'61'; DROP TABLE t"),)},
    "no log": {"log_id": "'; DROP TABLE t; -- "},
    "no origin": {"origins": (SOURCE, "a b")},
    "a begin behind the begin": {"log_begins": "origin"},
    "less than nothing skipped": {"skipped": (Skipped("shop", "u", "statement", -1),)},
}  # fmt: skip


_OTHER_ROWS: dict[str, dict[str, Any]] = {
    "a count beside its tables": {"rows": 4},
    "rows without tables": {"tables": ()},
    "more rows than records": {"rows": 10**15, "tables": (replace(_TOUCHED, inserts=10**15 - 2),)},
    "rows without records": {"ranges": ()},
    "records without rows": {"rows": 0, "tables": ()},
    "a digest of nothing": {"rows": 0, "tables": (), "ranges": ()},
}


@pytest.mark.parametrize("fault", _OTHER_ROWS)
def test_an_epoch_whose_numbers_contradict_each_other_has_other_rows(fault: str) -> None:
    forged = reread(replace(EPOCH, **_OTHER_ROWS[fault]))
    with pytest.raises(LogError, match="TR554: epoch 5, at offset 7 of the epochs topic: "):
        check_rows(forged, 7)
    check_rows(EPOCH, 7)


_FORGED_RUNS: dict[str, tuple[RowRun, ...]] = {
    "missing rows": RUNS[:1],
    "rows twice": (*RUNS, RUNS[1]),
    "rows of other epochs": (RUNS[0], replace(RUNS[1], ranges=(OffsetRange(3, 4, 7),))),
    "a gap": (replace(RUNS[0], rows=1, ranges=(OffsetRange(0, 11, 12),)), replace(RUNS[1], rows=2)),
    "another partition": (RUNS[0], replace(RUNS[1], ranges=(OffsetRange(4, 4, 6),))),
    "a partition twice": (replace(RUNS[0], ranges=(OffsetRange(0, 10, 11), OffsetRange(0, 11, 12))), RUNS[1]),
    "more rows than records": (replace(RUNS[0], rows=3), replace(RUNS[1], rows=0)),
    "more rows than the epoch": (RUNS[0], replace(RUNS[1], rows=2)),
    "no rows": (*RUNS, RowRun(0, 0, ())),
    "another digest": (RUNS[0], replace(RUNS[1], digest=60)),
}


@pytest.mark.parametrize("fault", _FORGED_RUNS)
def test_runs_that_are_not_the_epochs_rows_stop_at_its_place(fault: str) -> None:
    with pytest.raises(LogError, match=rf"^TR568: {PLACE}"):
        reread(replace(EPOCH, runs=_FORGED_RUNS[fault]))


_COPIED = COPIED.tables[0]
_FORGED_COPIES: dict[str, tuple[EpochCommitted, dict[str, Any]]] = {
    "rows of a copy outside": (COPIED, {"copy": None}),
    "no id": (COPIED, {"copy": replace(COPY, copy="'; DROP TABLE t; -- ")}),
    "no step": (COPIED, {"copy": replace(COPY, step="truncate")}),
    "no name": (COPIED, {"copy": replace(COPY, db="")}),
    "a NUL in its name": (COPIED, {"copy": replace(COPY, table="t\0")}),
    "a key that is no JSON": (COPIED, {"copy": replace(COPY, lower="1")}),
    "a key that is no list": (COPIED, {"copy": replace(COPY, upper='{"id": "1"}')}),
    "a key of numbers": (COPIED, {"copy": replace(COPY, upper="[1]")}),
    "an empty key": (COPIED, {"copy": replace(COPY, upper="[]")}),
    "a deep key": (COPIED, {"copy": replace(COPY, upper="[" * 20_000 + "]" * 20_000)}),
    "an endless key": (COPIED, {"copy": replace(COPY, upper=json.dumps(["1" * (1 << 17)]))}),
    "transactions": (COPIED, {"transactions": 1}),
    "a GTID": (COPIED, {"first_gtid": f"{SOURCE}:11"}),
    "changes among its rows": (COPIED, {"tables": (replace(_COPIED, inserts=1, reads=2),)}),
    "a complete table": (COPIED, {"tables": (replace(_COPIED, incomplete=False),)}),
    "a table that only new channels have": (COPIED, {"for_new_channels": True}),
    "a table that others have": (COPIED_FOR_NEW, {"for_new_channels": False}),
    "two copies of a table": (
        EPOCH,
        {"tables": (replace(EPOCH.tables[0], incomplete=True, new_channels=ABSENT),)},
    ),
    "an unknown state": (EPOCH, {"tables": (replace(EPOCH.tables[0], new_channels="gone"),)}),
    "both absent and not": (
        EPOCH,
        {
            "tables": (
                replace(EPOCH.tables[0], inserts=0),
                replace(EPOCH.tables[0], updates=0, new_channels=ABSENT),
            )
        },
    ),
    "changes for new channels": (EPOCH, {"for_new_channels": True}),
    "another table": (COPIED, {"tables": (replace(_COPIED, table="u"),)}),
    "another table beside": (COPIED, {"tables": (replace(_COPIED, reads=1), replace(_COPIED, reads=2, db="u"))}),
    "negative reads": (COPIED, {"tables": (replace(_COPIED, reads=-1),)}),
    "rows with a statement": (COPIED, {"ddl": BEGUN.ddl}),
    "both complete and not": (
        EPOCH,
        {"tables": (replace(_TOUCHED, inserts=0), replace(_TOUCHED, updates=0, incomplete=True))},
    ),
    "a begin without a statement": (BEGUN, {"ddl": None}),
    "a begin with another statement": (BEGUN, {"ddl": DDL}),
    "a begin of another table": (BEGUN, {"copy": replace(COPY, step="begin", table="u", lower=None, upper=None)}),
    "a begin with a key": (BEGUN, {"copy": replace(COPY, step="begin", upper=None)}),
    "a begin of fewer than no rows": (
        BEGUN,
        {"copy": replace(COPY, step="begin", lower=None, upper=None, upstream_rows=-1)},
    ),
    "a begin with rows": (BEGUN, {"tables": COPIED.tables, "rows": 3, "ranges": COPIED.ranges}),
    "an end with rows": (ENDED, {"tables": COPIED.tables, "rows": 3, "ranges": COPIED.ranges}),
    "an end with a statement": (ENDED, {"ddl": BEGUN.ddl}),
}  # fmt: skip


@pytest.mark.parametrize("fault", _FORGED_COPIES)
def test_a_forged_epoch_of_a_copy_stops_at_its_place(fault: str) -> None:
    epoch, forged = _FORGED_COPIES[fault]
    with pytest.raises(LogError, match=rf"^TR568: {PLACE}"):
        reread(replace(epoch, **forged))


def _used(epoch: EpochCommitted) -> None:
    for version in reread(epoch).structures:
        structure_of(LoggedVersion(**version.__dict__, at=AT))


@pytest.mark.parametrize("fault", _FORGED)
def test_a_forged_epoch_stops_at_its_place(fault: str) -> None:
    forged = replace(EPOCH, **_FORGED[fault])
    with pytest.raises(LogError, match=rf"^TR568: {PLACE}"):
        _used(forged)
    [broken] = outputs(forged.encode())
    assert (broken.kind, broken.text and broken.text[:40]) == (
        BROKEN,
        "topic p.epochs, partition 0, offset 7: t",
    )


@pytest.mark.parametrize(
    "fault",
    [
        {"statement": "DROP DATABASE mysql"},
        {"statement": "INSERT INTO t VALUES (1)"},
        {"statement": "SELECT 1 INTO OUTFILE '/tmp/x'"},
        {"statement": "SET GLOBAL general_log = 1"},
        {"statement": "ALTER TABLE mysql.user ADD x INT"},
        {"statement": "ALTER TABLE u ADD x INT"},
        {"statement": "RENAME TABLE t TO mysql.user"},
        {"default_db": "mysql"},
        {"tables": ()},
        {"tables": (TableChanged("shop", "t"), TableChanged("shop", "t"))},
        {"kind": "CREATE USER"},
        {"source_flavor": "oracle"},
        {"timestamp": -1},
        {"sql_mode": -1},
        {"charset_client": 1 << 20},
        {"time_zone": "'; DROP TABLE t; --\n"},
        {"settings": (("default_storage_engine", "x' --"),)},
        {"settings": (("lc_time_names", "1; DROP TABLE t"),)},
        {"settings": (("character_set_collations", "1=2, SET GLOBAL x=1"),)},
        {"tables": (TableChanged("shop", "t\0"),)},
        {"default_db": "a" * 300},
    ],
    ids=str,
)
def test_a_forged_ddl_stops_at_its_place(fault: dict[str, Any]) -> None:
    with pytest.raises(LogError, match=rf"TR568: {PLACE}"):
        reread(replace(CHANGED, ddl=replace(DDL, **fault)))


@pytest.mark.parametrize(
    "value", [None, b"", b"garbage", b"\xff" * 40, EPOCH.encode()[:-1], EPOCH.encode() + b"\0"]
)
def test_a_record_that_is_no_epoch_stops_at_its_place(value: bytes | None) -> None:
    with pytest.raises(LogError, match=rf"TR568: {PLACE}the record is not an epoch"):
        read_epoch(value, AT)


@pytest.mark.parametrize("other", [b"\xc3\x01" + bytes(8), STRUCTURE_RECORD.header])
def test_a_record_of_another_schema_stops_with_both_fingerprints(other: bytes) -> None:
    named = rf"{other[2:].hex()}, and this version of Tailrace reads {EPOCH_RECORD.header[2:].hex()}"
    with pytest.raises(LogError, match=rf"TR568: {PLACE}.*{named}") as stopped:
        read_epoch(other + EPOCH.encode()[len(other) :], AT)
    assert stopped.value.hint == OTHER_VERSION
    [broken] = outputs(other + EPOCH.encode()[len(other) :])
    assert named in broken.text
    swapped = EPOCH_RECORD.header + encode_structure_version(VERSION)[len(other) :]
    with pytest.raises(LogError, match="its schema has the fingerprint"):
        read_version(swapped, AT, VERSION.topic_key)


@pytest.mark.parametrize(
    "value", [EPOCH.encode()[10:], EPOCH.encode()[:9], b"\0\0\0\0\1" + EPOCH.encode()[10:]]
)
def test_a_record_without_a_header_is_no_epoch(value: bytes) -> None:
    with pytest.raises(LogError, match="it does not start with the header of a schema"):
        read_epoch(value, AT)


@pytest.mark.parametrize("key", [None, b"", b"epoch2", b"shop.t@1"])
def test_a_record_under_another_key_is_no_epoch(key: bytes | None) -> None:
    with pytest.raises(LogError, match=rf"TR568: {PLACE}.* its key is "):
        read_epoch(EPOCH.encode(), AT, key)


_NEXT = replace(
    EPOCH, epoch=6, structures=(), executed_gtids=f"{SOURCE}:1-14", relay_pos=2000, source_pos=2000,
    ranges=(OffsetRange(0, 12, 14), OffsetRange(2, 0, 2)),
)  # fmt: skip


def test_epochs_that_follow_each_other_are_taken() -> None:
    chain = EpochChain("p.epochs")
    chain.add(EPOCH, 7)
    chain.add(_NEXT, 9)
    # Another server's relay log begins anew.
    other = "11111111-0000-0000-0000-00000000cafe"
    moved: dict[str, Any] = {
        "source_id": other,
        "relay_dir": f"{other}.000002",
        "relay_pos": 4,
        "source_pos": 4,
    }
    chain.add(replace(_NEXT, epoch=7, ranges=(), tables=(), rows=0, digest=0, **moved), 11)


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (
            {"epoch": 5},
            "TR567: topic p.epochs, partition 0, offset 9: epoch 5 cannot follow epoch 5 at offset 7",
        ),
        ({"epoch": 3}, "TR567: topic p.epochs, partition 0, offset 9: epoch 3 cannot"),
        ({"log_id": SOURCE}, "TR567: .* it belongs to another log"),
        ({"epoch": 8}, "TR551: epoch 6 is missing"),
        ({"ranges": (OffsetRange(0, 11, 14),)}, "TR567: .* start at offset 11, but earlier ones end at 12"),
        ({"ranges": (OffsetRange(0, 1, 3),)}, "TR567: .* start at offset 1, but earlier ones end at 12"),
        ({"executed_gtids": f"{SOURCE}:12-14"}, "TR567: .* is no longer executed"),
        ({"executed_gtids": ""}, "TR567: .* is no longer executed"),
        ({"copy": COPY}, "TR567: .* it is a copy's, and executes transactions"),
        ({"relay_pos": 500, "source_pos": 500}, "TR567: .* it ends at mysql-bin.000001:500, before that one"),
    ],
    ids=str,
)
def test_a_forged_epoch_contradicts_the_one_before_it(fault: dict[str, Any], code: str) -> None:
    chain = EpochChain("p.epochs")
    chain.add(EPOCH, 7)
    with pytest.raises(LogError, match=code):
        chain.add(replace(_NEXT, **fault), 9)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_a_mutated_epoch_is_read_as_it_is_written_or_refused(data: st.DataObject) -> None:
    damaged = _mutated(data, data.draw(st.sampled_from([EPOCH, CHANGED, COPIED, BEGUN])).encode())
    try:
        found = read_epoch(damaged, AT)
    except LogError as refused:
        code, what = refused.code, refused.message
        assert (code, str(AT) in what) == ("TR568", True)
    else:
        EpochChain("p.epochs").add(found, 7)
    assert outputs(damaged)


def _mutated(data: st.DataObject, content: bytes) -> bytes:
    kind = data.draw(st.sampled_from(["flip", "cut", "insert", "repeat"]))
    at = data.draw(st.integers(0, len(content) - 1))
    if kind == "flip":
        return content[:at] + bytes([content[at] ^ data.draw(st.integers(1, 255))]) + content[at + 1 :]
    if kind == "cut":
        return content[:at] + content[at + data.draw(st.integers(1, 9)) :]
    if kind == "insert":
        return content[:at] + data.draw(st.binary(min_size=1, max_size=12)) + content[at:]
    other = data.draw(st.integers(0, len(content)))
    return content[:other] + content[min(at, other) :]


def test_absurd_lengths_take_neither_memory_nor_time() -> None:
    endless = [b"\xff" * 9 + b"\x01", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", encode_long(1 << 40)]
    content = EPOCH.encode()

    def work() -> int:
        refused = 0
        for at in range(len(content)):
            for number in endless:
                try:
                    read_epoch(content[:at] + number + content[at + 1 :], AT)
                except LogError:
                    refused += 1
        return refused

    assert bounded(work, megabytes=64, seconds=60) > 2 * len(content)


# structures -----------------------------------------------------------------------------------------


def _spoiled(**fields: Any) -> LoggedVersion:
    """A version whose column ``v`` is another one, with a schema and a fingerprint that fit."""
    raw = T.to_dict()
    raw["columns"][1] |= fields
    made = json.dumps(raw, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return LoggedVersion(5, "shop", "t", VERSION.fingerprint, made, VERSION.avro_schema, at=AT)


@pytest.mark.parametrize(
    "fields",
    [
        {"charset": "utf8mb4 X'' + __import__('os').system('false') #"},
        {"charset": 'x" + __import__("os").system("false") + b"'},
        {"meta": "1)); __import__('os').system('false'); ((1"},
        {"meta": 1.5},
        {"meta": True},
        {"meta": 1 << 80},
        {"meta": -1},
        {"code": "15"},
        {"code": 99},
        {"code": -1},
        {"nullable": 1},
        {"name": ""},
        {"name": "id"},
        {"name": 5},
        {"name": None},
        {"name": "a\0b"},
        {"members": ["x"] * 3},
        {"members": "abc"},
        {"unheard_of": 1},
        {"code": 248, "meta": 8, "members": [str(n) for n in range(65)]},
        {"code": 246, "meta": 0xFFFF},
        {"code": 16, "meta": 1 << 30},
    ],
    ids=str,
)
def test_a_forged_structure_stops_at_its_place(fields: dict[str, Any]) -> None:
    with pytest.raises(LogError, match=rf"TR568: {PLACE}the structure"):
        structure_of(_spoiled(**fields))


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "5", "null", '"x"', "[" * 100_000, '{"columns":[]}', "9" * 100_000, '{"db":NaN}'],
    ids=lambda text: text[:20],
)
def test_what_is_no_structure_stops_at_its_place(text: str) -> None:
    with pytest.raises(LogError, match="TR568"):
        structure_of(replace(LoggedVersion(**VERSION.__dict__, at=AT), structure=text))


def test_the_fingerprint_is_the_structures() -> None:
    other = replace(VERSION, fingerprint="0123456789abcdef")
    with pytest.raises(LogError, match=f"TR568: .* its fingerprint is {VERSION.fingerprint}"):
        structure_of(other)


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (None, VERSION.topic_key),
        (b"", VERSION.topic_key),
        (b"garbage", VERSION.topic_key),
        (encode_structure_version(VERSION)[:-1], VERSION.topic_key),
        (encode_structure_version(VERSION) + b"x", VERSION.topic_key),
        (encode_structure_version(VERSION), None),
        (encode_structure_version(VERSION), b"shop.other@5"),
        (encode_structure_version(replace(VERSION, epoch=-1)), b"shop.t@-1"),
        (encode_structure_version(replace(VERSION, avro_schema="{}")), VERSION.topic_key),
        (encode_structure_version(replace(VERSION, fingerprint="../x")), VERSION.topic_key),
    ],
)
def test_a_record_that_is_no_structure_stops_at_its_place(value: bytes | None, key: bytes | None) -> None:
    with pytest.raises(LogError, match=rf"TR568: {PLACE}the record is not a"):
        read_version(value, AT, key)


def test_one_name_stands_for_one_structure() -> None:
    """As only ids of a registry can be given twice."""
    other = TableStructure("shop", "t", (integer("id"),), ("id",))
    first = replace(VERSION, fingerprint="00000001")
    second = replace(version_record(6, other), fingerprint="00000001")
    logged = [LoggedVersion(**one.__dict__, at=At("p.schemas", n)) for n, one in enumerate((first, second))]
    with pytest.raises(LogError, match=r"TR568: topic p.schemas, partition 0, offset 1: .* at offset 0"):
        check_names(logged)
    assert check_names([logged[0], logged[0]]) == [logged[0], logged[0]]


# names as code --------------------------------------------------------------------------------------

_NAMES = [
    "a'b", 'a"b', "a`b", "a\\", "a\\'", "a\nb", "a\n    raise SystemExit(1)\n", "{v}", "%s", "%(x)s",
    "'''", '"""', "#", "__import__('os').abort()", "'+__import__('os').abort()+'", "\u2028", "é", "😀", "\x1b[2J",
    "b'' if 1 else 2", "a;b", "v[p]", "x" * 64, "/*", "*/", "--", "?", "\ud7ff", "\x7f", "\t",
]  # fmt: skip


@pytest.mark.parametrize("hostile", _NAMES)
def test_no_name_becomes_code(hostile: str) -> None:
    """Databases, tables, columns, members and types are data in every function that is generated."""
    members = (hostile.replace(",", ""), "b")
    structure = TableStructure(
        hostile, hostile,
        (
            integer(hostile),
            text(hostile + "2", nullable=True),
            Column(hostile + "3", hostile, 247, 1, False, members=members),
            Column(hostile + "4", hostile, 248, 1, False, members=members),
            Column(hostile + "5", hostile, 252, 2, True, charset="binary"),
        ),
        (hostile,),
    )  # fmt: skip
    version = version_record(5, structure)
    assert structure_of(replace(version)) == structure
    reread(replace(EPOCH, structures=(version,)))
    names = [column.name for column in structure.columns]
    before = {hostile: 1, names[1]: hostile, names[2]: members[0], names[3]: members[0], names[4]: b"'"}
    after = {**before, names[1]: None, names[2]: "b"}
    update_ = update(structure, before, after)
    key, value = row_key(structure, after), row_value(update_, 1, 0, "g")
    compile_check(structure)(key, value)
    made = compile_renderers(structure, tuple(names))
    quoted = b"`" + hostile.encode().replace(b"`", b"``") + b"`"
    assert made.match_key(key) == quoted + b"=1"
    escaped = members[0].encode().replace(b"'", b"''")
    assert made.after(value) == b"(1,NULL,'b','" + escaped + b"',X'27')"
    assert made.assignments(value).startswith(quoted + b"=1,")
    assert made.match_before(value).startswith(quoted + b" <=> 1 AND ")
    assert compile_literals(structure, tuple(names), before=True)(value)[2] == b"'" + escaped + b"'"
    finder = compile_finder(structure, (hostile,), True)
    assert finder.match_old(value) == quoted + b"=1"
    row = RowReader(structure).read(key, value, 0, 0)
    assert (row.before, row.after, row.db) == (before, after, hostile)
    header = row_schema(structure).header
    plan = SlicePlan((TablePlan(header, structure, ApplyMode.ORDERED, ("d", "t")),), Limits(2_000))
    assert len(list(changes(plan, RangeRows([key], [value])))) == 2
    assert file_columns(structure).before == tuple(names)
    for kind in ("write", "update", "delete"):
        assert RowDecoder(structure).decode(kind, Images.full(structure)) is not None
    rule = ExpressionRule(hostile, hostile, insert_value_expr=f"{quoted.decode()} = 1")
    if hostile.isprintable() and "\\" not in hostile:
        found = compile_filter(structure, (rule,), ())
        assert found.drops("insert", row_value(insert(structure, after), 1, 0, "g"))


@pytest.mark.parametrize(
    "code", [15, 252, 253, 254, 140, 141, 245, 246, 16, 12, 17, 18, 19, 247, 248, 3, 4, 5, 8]
)
@pytest.mark.parametrize("field", ["meta", "charset"])
def test_codecs_refuse_columns_that_are_none(code: int, field: str) -> None:
    """What is no number, or no character set, never gets into a generated line."""
    hostile = Column("c", "x", code, 1, True)
    object.__setattr__(hostile, field, "1+__import__('os').abort()")

    with suppress(ValueError, TypeError):
        codec = codec_of(hostile)
        lines = [*codec.decode(hostile, "a0", ["b''", "b''"]), *codec.literal(hostile, "s0", 1)]
        assert "abort" not in "".join(lines)


# rows -----------------------------------------------------------------------------------------------


def plan_of(structure: TableStructure, mode: ApplyMode = ApplyMode.COMPACT) -> SlicePlan:
    names = tuple(column.name for column in structure.columns)
    table = TablePlan(row_schema(structure).header, structure, mode, ("shop", "t"), names)
    return SlicePlan((table,), Limits(2_000))


def rendered(
    structure: TableStructure, key: bytes, value: bytes, mode: ApplyMode = ApplyMode.COMPACT
) -> list[Any]:
    return list(render(plan_of(structure, mode), RangeRows([key], [value])))


_ROW = insert(T, {"id": 1, "v": "x"})
_KEY = row_key(T, {"id": 1})


def _refuse(key: bytes, change: Change, *modes: ApplyMode) -> None:
    value = row_value(change, 1, 0, "g")
    uses: list[Callable[[], object]] = [
        *(partial(rendered, T, key, value, mode) for mode in modes),
        lambda: list(changes(plan_of(T), RangeRows([key], [value]))),
        lambda: RowReader(T).read(key, value, 0, 0),
    ]
    for use in uses:
        with pytest.raises((ValueError, LookupError)):
            use()


@pytest.mark.parametrize(
    ("key", "change"),
    [
        (row_key(T, {"id": 2}), _ROW),
        (_KEY[:-1], _ROW),
        (_KEY + b"\0", _ROW),
        (b"", _ROW),
        (row_key(replace(T, table="u"), {"id": 1}), _ROW),
        (row_key(T, {"id": 2}), update(T, {"id": 1, "v": "x"}, {"id": 1, "v": "y"})),
        (row_key(T, {"id": 2}), delete(T, {"id": 1, "v": "x"})),
    ],
)
def test_the_key_is_the_rows(key: bytes, change: Change) -> None:
    """Not where rows are compacted: whoever can write such a record can write one with the right key as well."""
    _refuse(key, change, ApplyMode.ORDERED)


@pytest.mark.parametrize(
    "change",
    [
        Change(T, "x", None, {"id": 1, "v": "x"}),
        Change(T, "d", None, {"id": 1, "v": "x"}),
        Change(T, "c", {"id": 1, "v": "x"}, None),
        Change(T, "u", None, None),
    ],
)
def test_the_operation_is_the_rows(change: Change) -> None:
    _refuse(_KEY, change, ApplyMode.COMPACT, ApplyMode.ORDERED)


KEYS_BEHIND = TableStructure(
    "shop", "t",
    (text("a", nullable=True), Column("f", "double", 5, 8, True), integer("x"), Column("j", "json", 245, 4, True),
     text("y"), integer("z")),
    ("z", "x"),
)  # fmt: skip


def test_a_key_is_found_wherever_its_columns_are() -> None:
    image = {
        "a": None,
        "f": 1.5,
        "x": 70_000,
        "j": {"text": "1.50", "$": "decimal(3,2)"},
        "y": "y" * 200,
        "z": -9,
    }
    for structure in (KEYS_BEHIND, replace(KEYS_BEHIND, key=("x", "y")), replace(KEYS_BEHIND, key=())):
        key, value = row_key(structure, image), row_value(insert(structure, image), 1, 0, "g")
        compile_check(structure)(key, value)
        with pytest.raises(ValueError, match="another row"):
            compile_check(structure)(key + b"x", value)


def test_a_row_that_is_cut_anywhere_is_none() -> None:
    value = row_value(update(T, {"id": 1, "v": "old" * 9}, {"id": 1, "v": "new" * 9}), 1, 0, "g")
    for end in range(10, len(value)):
        with pytest.raises(UNFIT):
            RowReader(T).read(_KEY, value[:end], 0, 0)
        with pytest.raises(UNFIT):
            deque(rendered(T, _KEY, value[:end], ApplyMode.ORDERED))


_DATES = TableStructure("shop", "t", (integer("id"), Column("d", "date", 10, 0, True)), ("id",))
_JSON = TableStructure("shop", "t", (integer("id"), Column("j", "json", 245, 4, True)), ("id",))
_DOUBLE = TableStructure("shop", "t", (integer("id"), Column("f", "double", 5, 8, True)), ("id",))


@pytest.mark.parametrize(
    ("structure", "image"),
    [
        (_DATES, {"id": 1, "d": "2020-01-01'),(2,'"}),
        (_JSON, {"id": 1, "j": {"text": '"x"', "$": "char) FROM mysql.user)) -- "}}),
        (_JSON, {"id": 1, "j": {"text": '"1\' AS CHAR)), SLEEP(9)) -- "', "$": "date"}}),
        (_JSON, {"id": 1, "j": {"text": '"base64:type999:AA=="', "$": "opaque(999)"}}),
        (_JSON, {"id": 1, "j": {"text": '"x"', "$": "opaque"}}),
        (_JSON, {"id": 1, "j": {"text": "null", "$": "signed"}}),
        (_JSON, {"id": 1, "j": {"text": "1e400", "$": "signed"}}),
        (_JSON, {"id": 1, "j": {"text": "NaN", "$": "date"}}),
        (_JSON, {"id": 1, "j": {"text": "[" * 100_000, "$": "date"}}),
        (_JSON, {"id": 1, "j": {"text": "{", "$": "date"}}),
        (_JSON, {"id": 1, "j": {"$": "date"}}),
        (_DOUBLE, {"id": 1, "f": float("nan")}),
        (_DOUBLE, {"id": 1, "f": float("-inf")}),
    ],
    ids=str,
)
def test_no_value_becomes_sql(structure: TableStructure, image: dict[str, Any]) -> None:
    value = row_value(insert(structure, image), 1, 0, "g")
    with pytest.raises(UNFIT):
        rendered(structure, row_key(structure, image), value)


def test_a_typed_document_has_as_many_types_as_it_says() -> None:
    def document(count: int, *parts: str) -> bytes:
        return encode_long(count) + b"".join(encode_bytes(p.encode()) for p in parts) + b"\0"

    assert typed_literal(document(2, "text", "1", "$", "signed"), 0)[0]
    for damaged in (
        document(-2, "text", "1", "$", "signed"),
        document(1 << 60, "text", "1", "$", "signed"),
        document(1, "text", "1", "$", "signed"),
        document(3, "text", "1", "$", "signed"),
    ):
        with pytest.raises(UNFIT):
            typed_literal(damaged, 0)


ODD = TableStructure(
    "shop", "odd",
    (
        integer("id"),
        Column("big", "bigint unsigned", 8, 0, True, unsigned=True),
        Column("d", "decimal(65,30)", 246, 65 << 8 | 30, True),
        Column("t", "datetime(6)", 18, 6, True),
        Column("b", "binary(3)", 254, 3, True, charset="binary"),
        Column("s", "varchar(9)", 15, 9, True, charset="latin1"),
        Column("j", "json", 245, 4, True),
        Column("f", "float", 4, 4, True),
        Column("bit", "bit(9)", 16, 9, True),
        Column("e", "enum('a','b')", 247, 1, True, members=("a", "b")),
        Column("m", "set('a','b')", 248, 1, True, members=("a", "b")),
    ),
    ("id",),
)  # fmt: skip
_ODD_IMAGE = {
    "id": 300, "big": 1 << 63, "d": "1.5", "t": "2020-01-02 03:04:05.678901", "b": b"abc", "s": "'s'",
    "j": {"text": "[1.50]", "$[0]": "decimal(3,2)"}, "f": 0.5, "bit": b"\x01\x02", "e": "b", "m": "a,b",
}  # fmt: skip


def _odd(change: Callable[..., Change], *images: dict[str, Any]) -> bytes:
    from decimal import Decimal

    numbers = [{**image, "big": Decimal(image["big"]), "d": Decimal(image["d"])} for image in images]
    return row_value(change(ODD, *numbers), 1, 0, "g")


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_a_mutated_row_is_rendered_or_refused(data: st.DataObject) -> None:
    content = data.draw(
        st.sampled_from([_odd(insert, _ODD_IMAGE), _odd(update, _ODD_IMAGE, {**_ODD_IMAGE, "e": "a"})])
    )
    key, head = row_key(ODD, {"id": 300}), content[:10]
    damaged = head + _mutated(data, content[10:])
    for use in (
        lambda: rendered(ODD, key, damaged),
        lambda: rendered(ODD, key, damaged, ApplyMode.ORDERED),
        lambda: list(changes(plan_of(ODD), RangeRows([key], [damaged]))),
        lambda: RowReader(ODD).read(key, damaged, 0, 0),
    ):
        try:
            results = use()
        except UNFIT:
            continue
        if isinstance(results, list):
            for result in results:
                _check_literals(result)


def _check_literals(result: Any) -> None:
    """Quotes in a statement are in pairs, and nothing but what a row can be stands outside."""
    for part in result[7:10]:
        if isinstance(part, bytes) and result[0] != 2 and b"ARROW" not in part:
            assert part.count(b"'") % 2 == 0
