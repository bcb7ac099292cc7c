"""Rows whose images lack columns: their schema, their statements, and where a doubt stops."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from producer.decode.event_decoder import EventDecoder
from producer.settings import SkipRule
from schemas.binlog import framing
from schemas.ddl.dml import read_dml, verb_on
from schemas.errors import DecodeError, DownstreamError, LogError, Where
from schemas.structure import TableStructure, has_full_images
from schemas.wire.avro_schema import KEY_CHANGE, envelope, row_schema
from schemas.wire.epoch import EpochCommitted
from spark_consumer.apply.prepared import ordered_rows
from spark_consumer.plan.plan import ApplyMode, SlicePlan, plan_slice
from spark_consumer.plan.statements import Limits
from spark_consumer.rows.ordered import statements
from spark_consumer.rows.render import render
from spark_consumer.rows.results import OrderedChange
from spark_consumer.rows.slice_rows import RangeRows
from spark_consumer.rules.expressions.filter import ExpressionRule
from spark_consumer.rules.expressions.kinds import Unevaluable
from spark_consumer.rules.rules import Rules
from spark_consumer.target.table import TargetTable
from spark_consumer.target.tables import default_of
from tests.support.applying.targets import column, unique
from tests.support.binlogs.decoder import new_decoder, run
from tests.support.binlogs.relay_events import event, format_description, gtid, query, xid
from tests.support.epochs.fake_topic import Change, delete, insert, integer, row_key, row_value, update
from tests.support.epochs.fake_topic import text as text_column
from tests.support.epochs.records import version_record

FULL = TableStructure(
    "d",
    "t",
    (integer("id"), integer("v", nullable=True), text_column("s", nullable=True), integer("n")),
    ("id",),
)
INSERTED = replace(FULL, before_columns=(), after_columns=("id", "v"))
UPDATED = replace(FULL, before_columns=("id",), after_columns=("id", "v"))
DELETED = replace(FULL, before_columns=("id",), after_columns=())
TARGET = TargetTable(
    ("d", "t"),
    (
        column("id", null=False),
        replace(column("v"), default_sql=b"DEFAULT"),
        replace(column("s", "varchar(60) utf8mb4"), default_sql=b"DEFAULT"),
        replace(column("n", null=False), default_sql=b"0", touched=True),
    ),
    (unique("id"),),
)


def plan(
    *structures: TableStructure, target: TargetTable = TARGET, safe: bool = False, **rules: Any
) -> SlicePlan:
    by_name = {row_schema(one).fingerprint.hex(): one for one in structures}
    return plan_slice(by_name, {("d", "t"): target}, Rules(**rules), Limits(2_000), Where(), safe=safe)


def sql(*changes: Change, **options: Any) -> list[list[str]]:
    """For each change what is tried in turn."""
    planned = plan(*{change.structure: None for change in changes}, **options)
    keys = [row_key(c.structure, c.after or c.before or {}) for c in changes]
    values = [row_value(c, 7, seq, "g") for seq, c in enumerate(changes)]
    rows = ordered_rows(
        planned, (r for r in render(planned, RangeRows(keys, values)) if isinstance(r, OrderedChange))
    )
    return [[text.decode() for text in (one.sql, *one.fallbacks)] for one in statements(rows, Limits(2_000))]


def test_what_is_not_known_is_no_field() -> None:
    images = {}
    for structure in (INSERTED, UPDATED, DELETED, replace(UPDATED, before_columns=None)):
        fields = {
            f["name"]: f["type"][1] for f in envelope(structure)["fields"] if f["name"] in ("after", "before")
        }
        images[structure] = [
            kind if isinstance(kind, str) else (kind["name"], [f["name"] for f in kind["fields"]])
            for kind in (fields["after"], fields["before"])
        ]
    assert list(images.values()) == [
        [("Row", ["id", "v"]), "Row"],
        [("Row", ["id", "v"]), ("OldRow", ["id"])],
        [("Row", ["id"]), "Row"],
        [("Row", ["id", "v"]), ("OldRow", ["id", "v", "s", "n"])],
    ]
    assert len({row_schema(structure).fingerprint for structure in (FULL, *images)}) == 5


def test_a_structure_says_which_columns_its_images_have() -> None:
    assert "before_columns" not in FULL.to_json()
    odd = replace(FULL, table='"after_columns":["')
    for structure in (FULL, odd, INSERTED, UPDATED, DELETED):
        assert TableStructure.from_json(structure.to_json()) == structure
        assert has_full_images(structure.to_json()) is structure.is_full


def test_versions_of_one_epoch_have_keys_of_their_own() -> None:
    versions = [version_record(3, s) for s in (FULL, INSERTED, UPDATED)]
    assert len({version.topic_key for version in versions}) == 3
    assert versions[0].topic_key == b"d.t@3"


def test_an_update_sets_what_its_image_has_and_keeps_the_servers_hands_off_the_rest() -> None:
    change = update(UPDATED, {"id": 1}, {"id": 1, "v": None})
    assert sql(change) == [["UPDATE `d`.`t` SET `id`=1,`v`=NULL,`n`=`n` WHERE `id`=1 LIMIT 1"]]


def test_a_key_change_sets_what_its_second_half_has() -> None:
    halves = delete(UPDATED, {"id": 1}, KEY_CHANGE), insert(UPDATED, {"id": 9, "v": 5}, KEY_CHANGE)
    assert sql(*halves) == [["UPDATE `d`.`t` SET `id`=9,`v`=5,`n`=`n` WHERE `id`=1 LIMIT 1"]]


def test_half_a_key_change_is_no_row() -> None:
    with pytest.raises(LogError, match="TR553"):
        sql(insert(UPDATED, {"id": 9, "v": 5}, KEY_CHANGE))


def test_an_insert_writes_defaults_and_rows_of_one_form_become_one_statement() -> None:
    rows = [insert(INSERTED, {"id": i, "v": i}) for i in (1, 2)]
    full = insert(FULL, {"id": 3, "v": 3, "s": "x", "n": 4})
    assert sql(*rows, full) == [
        ["INSERT INTO `d`.`t` (`id`,`v`,`s`,`n`) VALUES (1,1,DEFAULT,0),(2,2,DEFAULT,0)"],
        ["INSERT INTO `d`.`t` (`id`,`v`,`s`,`n`) VALUES (3,3,'x',4)"],
    ]


def test_a_default_that_nobody_can_know_stops() -> None:
    columns = [
        replace(one, default_sql=one.default_sql if one.name == "n" else None) for one in TARGET.columns
    ]
    target = replace(TARGET, columns=tuple(columns))
    with pytest.raises(DownstreamError, match="column s,"):
        plan(INSERTED, target=target)
    assert plan(UPDATED, DELETED, target=target)


def test_in_safe_mode_only_whole_rows_are_inserted() -> None:
    changes = [insert(INSERTED, {"id": 1, "v": 1}), update(UPDATED, {"id": 2}, {"id": 2, "v": 2})]
    assert sql(*changes, safe=True) == [
        [
            "UPDATE `d`.`t` SET `id`=1,`v`=1,`s`=DEFAULT,`n`=0 WHERE `id`=1 LIMIT 1",
            "INSERT INTO `d`.`t` (`id`,`v`,`s`,`n`) VALUES (1,1,DEFAULT,0)",
        ],
        ["UPDATE `d`.`t` SET `id`=2,`v`=2,`n`=`n` WHERE `id`=2 LIMIT 1"],
    ]


def test_deletes_are_compacted_until_another_image_comes_along() -> None:
    assert {table.mode for table in plan(FULL, DELETED).tables} == {ApplyMode.COMPACT}
    assert {table.mode for table in plan(FULL, DELETED, UPDATED).tables} == {ApplyMode.ORDERED}
    assert {table.mode for table in plan(FULL, INSERTED).tables} == {ApplyMode.ORDERED}


def test_an_expression_over_a_column_that_the_image_lacks_has_no_result() -> None:
    rule = ExpressionRule("d", "t", None, "id = 1", "n = 1", "v = 1")
    [table] = plan(UPDATED, expressions=(rule,)).tables
    assert table.filter is not None
    value = row_value(update(UPDATED, {"id": 1}, {"id": 1, "v": 1}), 1, 0, "g")
    assert table.filter.old_bits(value) == 1
    with pytest.raises(Unevaluable, match="lacks n"):
        table.filter.new_bits(value)


@pytest.mark.parametrize(
    ("flavor", "shown", "text"),
    [
        ("mysql", ("", None, "YES", "text"), b"DEFAULT"),
        ("mysql", ("", "x", "NO", "varchar"), b"DEFAULT"),
        ("mysql", ("", None, "NO", "decimal"), b"0"),
        ("mysql", ("", None, "NO", "json"), b"'null'"),
        ("mysql", ("", None, "NO", "geometry"), None),
        ("mysql", ("DEFAULT_GENERATED", "uuid()", "YES", "varchar"), None),
        ("mysql", ("on update CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP", "NO", "timestamp"), None),
        ("mysql", ("auto_increment", None, "NO", "int"), None),
        ("mariadb", ("", "NULL", "YES", "text"), b"DEFAULT"),
        ("mariadb", ("", "'it''s \\\\ '", "NO", "varchar"), b"DEFAULT"),
        ("mariadb", ("", "-1.5", "YES", "decimal"), b"DEFAULT"),
        ("mariadb", ("", "b'101'", "YES", "bit"), b"DEFAULT"),
        ("mariadb", ("", "concat('a','b')", "YES", "varchar"), None),
        ("mariadb", ("", "'a' || 'b'", "YES", "varchar"), None),
        ("mariadb", ("", "current_timestamp()", "NO", "datetime"), None),
        ("mariadb", ("", None, "NO", "enum"), b"1"),
    ],
)
def test_what_an_insert_writes_into_a_column_that_it_does_not_name(
    flavor: Any, shown: tuple[str, str | None, str, str], text: bytes | None
) -> None:
    extra, default, nullable, kind = shown
    assert default_of(flavor, extra, default, nullable == "YES", kind) == text


@pytest.mark.parametrize(
    ("statement", "tables"),
    [
        ("INSERT INTO t VALUES (1)", "d.t"),
        ("insert ignore x.`a b` SET a = 1", "x.a b"),
        ("/* why */ REPLACE LOW_PRIORITY t SELECT * FROM u", "d.t"),
        ("UPDATE t SET a = (SELECT 1 FROM u)", "d.t"),
        ("UPDATE IGNORE t AS a JOIN (x.u b, w) ON (a.i = b.i), v SET a.i = 1", None),
        ("UPDATE t a LEFT JOIN x.u b USING (i), v SET a.i = 1", "d.t x.u d.v"),
        ("UPDATE t, JSON_TABLE('[]', '$' COLUMNS (a INT PATH '$')) j SET t.a = 1", None),
        ("DELETE FROM t WHERE a IN (SELECT b FROM u)", "d.t"),
        ("DELETE QUICK a, b FROM t AS a JOIN u AS b ON a.i = b.i WHERE 1", "d.t d.u"),
        ("DELETE FROM a USING t AS a JOIN u USING (i)", "d.t d.u"),
        ("SET STATEMENT max_statement_time = 1 FOR UPDATE t SET a = 1", "d.t"),
        ("WITH c AS (SELECT 1) UPDATE t SET a = 1", None),
        ("CALL p()", None),
        ("LOAD DATA CONCURRENT LOCAL INFILE 'INTO TABLE x' REPLACE INTO TABLE t (a)", "d.t"),
        ("LOAD XML INFILE 'x' INTO TABLE x.`t`", "x.t"),
        ("LOAD DATA INFILE 'x' INTO t", None),
        ("UPDATE (SELECT 1) x SET a = 1", None),
        ("DELETE t", None),
        ("INSERT INTO 'unclosed", None),
    ],
)
def test_which_tables_a_statement_changes(statement: str, tables: str | None) -> None:
    found = read_dml(statement, "d", "mariadb")
    assert (found and " ".join(f"{name.db}.{name.table}" for name in found.tables)) == tables


def test_the_statement_that_names_a_table_is_the_one_that_changed_it() -> None:
    assert verb_on("replace into T set a = 1", "d", "t", "mariadb") == "REPLACE"
    assert (
        verb_on("INSERT INTO d.t VALUES (1) ON DUPLICATE KEY UPDATE a = 1", "d", "t", "mariadb") == "INSERT"
    )
    assert verb_on("LOAD DATA INFILE 'x' REPLACE INTO TABLE t", "d", "t", "mariadb") == "REPLACE"
    assert verb_on("LOAD DATA INFILE 'REPLACE' IGNORE INTO TABLE t", "d", "t", "mariadb") == "INSERT"
    assert verb_on("UPDATE a SET t = 1", "d", "t", "mariadb") is None
    assert verb_on("INSERT INTO x.t VALUES (1)", "d", "t", "mariadb") is None
    assert verb_on("", "d", "t", "mariadb") is None


def _decoder(*rules: SkipRule) -> EventDecoder:
    return new_decoder(skip=rules)


def _run(decoder: EventDecoder, *events: bytes) -> None:
    data = b"".join((format_description(), *events))
    decoder.leave_file_for("", "mysql-bin.000001")
    assert run(decoder, data) == len(data)


def _group(number: int, *inside: bytes) -> Sequence[bytes]:
    return [gtid(number), query(b"BEGIN"), *inside, xid()]


def _map(*codes: int) -> bytes:
    """A TABLE_MAP of d.t with the INT columns a, b, …, the first being the key, and full metadata."""
    names = b"".join(b"\1" + bytes((97 + i,)) for i in range(len(codes)))
    optional = b"\1\1\0" + bytes((4, len(names))) + names + b"\x08\1\0"
    body = b"\1d\0\1t\0" + bytes((len(codes),)) + bytes(codes) + b"\0" + b"\xff" + optional
    return event(framing.TABLE_MAP, bytes(8) + body)


def _rows(kind: int, *bitmaps: int, image: bytes = b"") -> bytes:
    return event(kind, bytes(6) + b"\1\0" + b"\2\0" + b"\2" + bytes(bitmaps) + image)


INT = 3
LACKS_KEY = _rows(framing.WRITE_ROWS, 0b10, image=b"\0\1\0\0\0")


def test_statements_are_passed_over_where_a_rule_names_all_their_tables() -> None:
    decoder = _decoder(SkipRule("d", "log_*", ("statement",)), SkipRule("x", "*", ("statement", "image")))
    texts = [b"INSERT INTO log_a VALUES (1)", b"UPDATE log_a, x.any SET a = 1", b"DELETE FROM x.other"]
    _run(decoder, *_group(1, *map(query, texts)), *_group(2, query(texts[0])))
    counted = [(s.db, s.table, s.kind, s.events) for s in decoder.state.epoch.events_skipped()]
    assert counted == [
        ("d", "log_a", "statement", 3),
        ("x", "any", "statement", 1),
        ("x", "other", "statement", 1),
    ]
    assert decoder.state.epoch.transactions == 2


@pytest.mark.parametrize(
    "text", [b"INSERT INTO t VALUES (1)", b"UPDATE log_a, t SET a = 1", b"CALL p()", b"FROBNICATE log_a"]
)
def test_other_statements_stop_all_the_same(text: bytes) -> None:
    decoder = _decoder(SkipRule("d", "log_*", ("statement",)), SkipRule("d", "t", ("image",)))
    with pytest.raises(DecodeError, match="TR409"):
        _run(decoder, *_group(1, query(text)))


def test_an_image_without_its_key_stops_with_its_statement() -> None:
    asked = event(framing.ROWS_QUERY, b"\x1aINSERT INTO t (b) VALUES (1)")
    with pytest.raises(DecodeError) as caught:
        _run(_decoder(), *_group(1, asked, _map(INT, INT), LACKS_KEY))
    error = caught.value
    assert error.code == "TR413"
    assert "column a," in error.message
    assert "INSERT INTO t (b) VALUES (1)" in error.message
    assert (error.where.table, error.where.file) == ("d.t", "mysql-bin.000001")
    assert error.where.position is not None
    assert error.where.gtid
    assert "[[skip]]" in error.hint


def test_an_image_without_its_key_is_passed_over_by_rule_and_its_neighbors_are_not() -> None:
    whole = _rows(framing.WRITE_ROWS, 0b11, image=b"\0\7\0\0\0\1\0\0\0")
    decoder = _decoder(SkipRule("d", "t", ("image",)))
    _run(decoder, *_group(1, _map(INT, INT), whole, LACKS_KEY, LACKS_KEY, whole))
    assert [(s.table, s.kind, s.events) for s in decoder.state.epoch.events_skipped()] == [("t", "image", 2)]
    assert decoder.state.epoch.seq == len(decoder.state.epoch.records) == 2


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (_rows(framing.WRITE_ROWS, 0), "no columns"),
        (_rows(framing.UPDATE_ROWS, 0b10, 0b11), "column a,"),
        (_rows(framing.UPDATE_ROWS, 0b01, 0b00), "what an UPDATE changed"),
        (_rows(framing.DELETE_ROWS, 0b10), "column a,"),
    ],
)
def test_images_that_tell_too_little(rows: bytes, said: str) -> None:
    with pytest.raises(DecodeError, match=f"TR413.*{said}"):
        _run(_decoder(), *_group(1, _map(INT, INT), rows))


def test_the_epochs_record_says_what_was_passed_over() -> None:
    decoder = _decoder(SkipRule("*", "*", ("statement",)))
    _run(decoder, *_group(1, query(b"INSERT INTO t VALUES (1)")))
    record = EpochCommitted(
        epoch=1, first_gtid=None, last_gtid=None, executed_gtids="", source_id="", source_file="", source_pos=4,
        relay_dir="", relay_file="", relay_pos=4, ranges=(), tables=(), structures=(), ddl=None, rows=0,
        transactions=1, digest=0, first_commit_ms=0, last_commit_ms=0, published_ms=0,
        skipped=decoder.state.epoch.events_skipped(),
    )  # fmt: skip
    assert EpochCommitted.decode(record.encode()) == record
    assert json.loads(json.dumps(record.skipped[0].events)) == 1
