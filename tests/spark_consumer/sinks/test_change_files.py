"""A folder of change files: its commit protocol, and rows of every type as columns."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.access.server_url import ServerUrl
from schemas.errors import ConfigError, DownstreamError, LogError
from schemas.structure import Column, TableStructure
from schemas.wire.avro_schema import row_schema
from schemas.wire.epoch import (
    BEGIN,
    DIGEST_MODULUS,
    END,
    ROWS,
    CopyStep,
    SchemaChanged,
    TableChanged,
    TableTouched,
)
from spark_consumer.epochs.position import BEFORE_ALL, ChannelStart
from spark_consumer.epochs.slices import LoggedEpoch, Slice
from spark_consumer.rows.slice_rows import RangeRows
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.rules.event_filter import EventRule
from spark_consumer.rules.expressions.filter import ExpressionRule
from spark_consumer.rules.route import Route
from spark_consumer.sinks.parquet.changes import changes, file_columns
from spark_consumer.sinks.parquet.folder import Folder, directory_name, read, refuse_without_position
from spark_consumer.sinks.parquet.sink import ParquetSink, PreparedFiles, streams_of
from tailrace.config.addresses import files_target, target_url
from tailrace.config.model import Config, Target
from tailrace.preflight.local import folder_findings
from tests.support.epochs.fake_topic import delete, insert, integer, row_key, row_value, text, update
from tests.support.epochs.fake_topic import read as read_row
from tests.support.epochs.records import epoch_record

T = TableStructure("shop", "t", (integer("id"), text("s", nullable=True)), ("id",))
ODD = TableStructure(
    "shop",
    "odd",
    (
        integer("id"),
        Column("big", "bigint unsigned", 8, 0, True, unsigned=True),
        Column("d", "decimal(65,30)", 246, 65 << 8 | 30, True),
        Column("t", "datetime(6)", 18, 6, True),
        Column("b", "binary(3)", 254, 3, True, charset="binary"),
        Column("s", "varchar(9)", 15, 9, True, charset="latin1"),
        Column("j", "json", 245, 4, True),
        Column("f", "float", 4, 4, True),
    ),
    ("id",),
)


def config(**rules: Any) -> ConsumerConfig:
    return ConsumerConfig("", "p", ServerUrl("unused"), channel="lake", **rules)


def prepared(sink: ParquetSink, number: int, *rows: Any, ddl: SchemaChanged | None = None) -> PreparedFiles:
    """An epoch as the executors hand it over."""
    structures = {row_schema(c.structure).fingerprint.hex(): c.structure for c in rows}
    values = [row_value(c, number, n, f"u:{number}") for n, c in enumerate(rows)]
    record = epoch_record(
        number,
        rows=len(rows),
        ddl=ddl,
        transactions=1,
        executed=f"0-1-{number}",
        tables=tuple(TableTouched(s.db, s.table, f, len(rows), 0, 0) for f, s in structures.items()),
    )
    slice_ = Slice((LoggedEpoch(replace(record, digest=0 % DIGEST_MODULUS), number),))
    plan = sink._plan_tables(structures, ())
    keys = [row_key(c.structure, c.after or c.before or {}) for c in rows]
    return PreparedFiles(slice_, streams_of(plan, changes(plan, RangeRows(keys, values))))


def opened(root: Path, **rules: Any) -> ParquetSink:
    return ParquetSink.open(config(**rules), root, ChannelStart(BEFORE_ALL, None, "earliest"))


def rows_of(root: Path) -> list[dict[str, Any]]:
    found = [
        row for path in sorted(root.glob("[!_]*/*/*.parquet")) for row in pq.read_table(path).to_pylist()
    ]
    return sorted(found, key=lambda row: (row["epoch"], row["seq"]))


def test_batches_become_files_and_what_is_applied_is_not_applied_again(tmp_path: Path) -> None:
    sink = opened(tmp_path, routes=(Route("shop", "lake"),))
    first = {"id": 1, "s": "é"}
    sink.apply(prepared(sink, 0, insert(T, first), update(T, first, {"id": 1, "s": None})))
    once = prepared(sink, 1, delete(T, {"id": 1, "s": None}))
    assert sink.apply(once).statements == 2
    assert sink.apply(once).statements == 0
    with pytest.raises(LogError, match="TR551"):
        sink.apply(prepared(sink, 3, insert(T, first)))
    sink.record_end()
    sink.close()
    assert [(r["op"], r["before"], r["after"]) for r in rows_of(tmp_path)] == [
        ("c", None, first),
        ("u", first, {"id": 1, "s": None}),
        ("d", {"id": 1, "s": None}, None),
    ]
    assert {path.parent.relative_to(tmp_path).as_posix() for path in tmp_path.glob("*/*/*.parquet")} == {
        "lake/t"
    }
    content = read(tmp_path)
    assert content is not None
    assert (content["consistent"], content["position"]["epoch"]) == (True, 1)
    batches = [json.loads(path.read_text()) for path in sorted((tmp_path / "_tailrace/batches").iterdir())]
    assert [(b["first_epoch"], b["rows"], b["executed_gtid_set"]) for b in batches] == [
        (0, 2, "0-1-0"),
        (1, 1, "0-1-1"),
    ]
    again = opened(tmp_path, routes=(Route("shop", "lake"),))
    assert again.position.epoch == 1


def test_every_type_is_kept_and_text_that_is_none_too(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    row = {
        "id": 1,
        "big": Decimal(2**64 - 1),
        "d": Decimal("12345678901234567890123456789012345.000000000000000000000000000001"),
        "t": "0000-00-00 00:00:00.000001",
        "b": b"a\0\0",
        "s": b"\x81",
        "j": {"text": '{"a": 1.0}', "$.a": "DECIMAL"},
        "f": 0.5,
    }
    sink.apply(prepared(sink, 0, insert(ODD, row), insert(ODD, {**dict.fromkeys(row), "id": 2})))
    one, two = rows_of(tmp_path)
    assert one["after"] == {**row, "s": None, "j": '{"a": 1.0}'}
    assert one["after_extra"] == [("j", b'{"$.a": "DECIMAL"}'), ("s", b"\x81")]
    assert two["after"] == {**dict.fromkeys(row), "id": 2}
    assert two["after_extra"] is None
    schema = file_columns(ODD).schema.field("after").type
    assert [schema.field(name).type for name in ("big", "d")] == [pa.decimal128(20, 0), pa.decimal256(65, 30)]


def test_images_that_lack_columns_have_the_columns_that_they_have(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    short = replace(ODD, before_columns=("id",), after_columns=("id", "s", "f"))
    new = replace(ODD, before_columns=(), after_columns=("id", "s"))
    sink.apply(
        prepared(
            sink,
            0,
            update(short, {"id": 1}, {"id": 1, "s": b"\x81", "f": None}),
            insert(new, {"id": 2, "s": "x"}),
        )
    )
    one, two = rows_of(tmp_path)
    assert (one["before"], one["after"]) == ({"id": 1}, {"id": 1, "s": None, "f": None})
    assert one["after_extra"] == [("s", b"\x81")]
    assert (two["before"], two["after"]) == (None, {"id": 2, "s": "x"})


def test_ddl_is_noted_and_filters_hold(tmp_path: Path) -> None:
    rule = EventRule("shop", "Ignore", "t", ("delete",))
    sink = opened(tmp_path, filters=(rule,), exclude=("shop.odd",))
    row = {"id": 1, "s": None}
    sink.apply(
        prepared(
            sink,
            0,
            insert(T, row),
            delete(T, row),
            insert(ODD, {c.name: None for c in ODD.columns} | {"id": 1}),
        )
    )
    for number, table in enumerate(("t", "odd"), 1):
        ddl = SchemaChanged(
            f"TRUNCATE TABLE {table}", "shop", "TRUNCATE TABLE", (TableChanged("shop", table),), "mysql", 0
        )
        sink.apply(prepared(sink, number, ddl=ddl))
    assert [(r["op"], r["source_table"]) for r in rows_of(tmp_path)] == [("c", "t")]
    [noted] = [json.loads(p.read_text()) for p in (tmp_path / "_tailrace/schema_changes").iterdir()]
    assert (noted["statement"], noted["epoch"]) == ("TRUNCATE TABLE t", 1)
    with pytest.raises(ConfigError, match="TR136"):
        opened(tmp_path / "x", expressions=(ExpressionRule("shop", "t", "id = 1"),))


def test_rows_of_a_copy_are_written_and_its_start_is_not_noted(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    statement = SchemaChanged(
        "CREATE TABLE t (id INT)", "shop", "CREATE TABLE", (TableChanged("shop", "t"),), "mysql", 0
    )
    steps = [(BEGIN, [], statement), (ROWS, [read_row(T, {"id": 1, "s": "é"})], None), (END, [], None)]
    for number, (step, rows, ddl) in enumerate(steps):
        made = prepared(sink, number, *rows, ddl=ddl)
        epoch = replace(made.slice_.first, copy=CopyStep("", "shop", "t", step))
        sink.apply(replace(made, slice_=Slice((LoggedEpoch(epoch, number),))))
    assert [(r["op"], r["before"], r["after"]) for r in rows_of(tmp_path)] == [
        ("r", None, {"id": 1, "s": "é"})
    ]
    assert not (tmp_path / "_tailrace/schema_changes").exists()


def test_a_folder_is_one_channels_and_one_process_s(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    with pytest.raises(DownstreamError, match="TR681"):
        opened(tmp_path)
    sink.close()
    with pytest.raises(DownstreamError, match=r"TR683: .* belongs to channel lake of p"):
        ParquetSink.open(replace(config(), channel="other"), tmp_path, None)
    for damaged in ("{", "[" * 100_000, "[]", "{}", '{"files": {"0": "../x"}}', '{"files": {"../0": "x"}}'):
        (tmp_path / "_tailrace/position.json").write_text(damaged)
        with pytest.raises(DownstreamError, match="TR682"):
            read(tmp_path)
    (tmp_path / "_tailrace/position.json").write_text("{")
    with pytest.raises(DownstreamError, match="TR682"):
        opened(tmp_path)
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(DownstreamError, match="TR680"):
        opened(file)


def test_a_lost_position_is_no_reason_to_begin_anew(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    refuse_without_position(tmp_path / "new")
    (tmp_path / "_tailrace/position.json").unlink()
    refuse_without_position(tmp_path)
    sink.apply(prepared(sink, 0, insert(T, {"id": 1, "s": "é"})))
    sink.close()
    (tmp_path / "_tailrace/position.json").unlink()
    with pytest.raises(DownstreamError, match=r"TR682: .*position\.json is missing"):
        refuse_without_position(tmp_path)


def test_what_was_interrupted_is_completed_or_undone(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.open()
    with folder.staging(0) as path:
        path.write_bytes(b"committed")
    with folder.staging(1) as path:
        path.write_bytes(b"not committed")
    # As after a kill behind the commit: nothing has been moved yet.
    (tmp_path / "_tailrace/position.json").write_text(json.dumps({"files": {"0": "db/t/1.parquet"}}))
    folder.close()
    folder.open()
    assert (tmp_path / "db/t/1.parquet").read_bytes() == b"committed"
    assert list((tmp_path / "_tailrace/staged").iterdir()) == []
    folder.close()
    (tmp_path / "db/t/1.parquet").unlink()
    with pytest.raises(DownstreamError, match=r"TR682: a committed file is missing: .*1\.parquet"):
        folder.open()


def test_names_that_are_no_names_of_folders() -> None:
    assert [directory_name(n) for n in ("a b", "..", "_tailrace", "x/y", "50%", "größe")] == [
        "a b",
        "%2E.",
        "%5Ftailrace",
        "x%2Fy",
        "50%25",
        "größe",
    ]


def test_check_says_whether_the_folder_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    levels = [one.level for name in ("new/deep", "file") for one in folder_findings(tmp_path / name)]  # type: ignore[union-attr]
    assert levels == ["ok", "block"]


def test_the_target_is_a_server_or_a_whole_path() -> None:
    lake = Config(target=Target(url="parquet:/data/lake"))
    assert files_target(lake) == Path("/data/lake")
    with pytest.raises(ConfigError, match="TR107"):
        target_url(lake)
    with pytest.raises(ValueError, match="absolute path"):
        Target(url="parquet:lake")
