"""A table's structure at each place of a log."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from schemas.errors import LogError
from schemas.structure import TableStructure
from schemas.wire.avro_schema import row_schema
from schemas.wire.epoch import (
    BEGIN,
    CopyStep,
    EpochCommitted,
    SchemaChanged,
    StructureVersion,
    TableChanged,
    TableTouched,
)
from tailrace.reader.history import LookupPoint, StructureLookup, answer_dict, answer_text, find_structure
from tests.support.epochs.fake_topic import integer, text
from tests.support.epochs.records import epoch_record, version_record

A = TableStructure("shop", "t", (integer("id"),), ("id",))
B = TableStructure("shop", "t", (integer("id"), text("na`me", nullable=True)), ("id",))
OTHER = TableStructure("shop", "u", (integer("id"),), ("id",))
END = LookupPoint()
UUID = "00000000-0000-0000-0000-00000000cafe"


def fingerprint(structure: TableStructure) -> str:
    return row_schema(structure).fingerprint.hex()


class Log:
    """Epochs from a number on, and the schemas topic."""

    def __init__(self, first: int = 0) -> None:
        self.epochs: list[EpochCommitted] = []
        self.versions: list[StructureVersion] = []
        self.first = first

    def add(self, **fields: Any) -> Log:
        number = self.first + len(self.epochs)
        self.epochs.append(epoch_record(number, executed=f"{UUID}:1-{(number + 1) * 10}", **fields))
        return self

    def rows(self, structure: TableStructure, *, new: bool = False) -> Log:
        known = fingerprint(structure)
        if new:
            epoch = self.first + len(self.epochs)
            self.versions.append(version_record(epoch, structure))
        return self.add(tables=(TableTouched(structure.db, structure.table, known, 1, 0, 0),))

    def ddl(self, statement: str, kind: str, *tables: TableChanged) -> Log:
        return self.add(ddl=SchemaChanged(statement, "shop", kind, tables, "mysql", 0))

    def at(self, place: LookupPoint = END, name: tuple[str, str] = ("shop", "t")) -> StructureLookup:
        return find_structure(name, place, self.epochs, self.versions)

    def found(self, epoch: int) -> tuple[TableStructure, int, int | None]:
        answer = self.at(LookupPoint(epoch))
        return answer.structure, answer.first, answer.last


T = TableChanged("shop", "t")


def altered() -> Log:
    log = Log().add().ddl("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE", T).rows(A, new=True).add()
    log.ddl("ALTER TABLE t ADD `na``me` VARCHAR(60)", "ALTER TABLE", T).add().rows(B, new=True)
    # and back, without being sent again
    return log.ddl("ALTER TABLE t DROP `na``me`", "ALTER TABLE", T).rows(A).rows(OTHER, new=True)


def test_each_epoch_has_the_structure_of_its_rows() -> None:
    log = altered()
    assert log.found(1) == log.found(2) == (A, 1, 3)
    assert log.found(3) == (A, 1, 3)
    assert log.found(6) == (B, 4, 6)
    assert log.found(8) == log.found(9) == (A, 7, None)
    assert log.at().epoch == 9
    assert log.at(name=("shop", "u")).structure == OTHER


def test_a_ddl_without_rows_yet_is_told_with_the_structure_before_it() -> None:
    log = altered()
    answer = log.at(LookupPoint(5))
    assert (answer.structure, answer.last) == (B, 6)  # its rows came later, and say what it was
    log.ddl("ALTER TABLE t ADD x INT", "ALTER TABLE", T)
    answer = log.at()
    assert (answer.structure, answer.last) == (A, 9)
    assert answer.changed is not None
    assert "ADD x INT" in answer_text(answer, history=False)
    assert answer_dict(answer, history=False)["changed"]["epoch"] == 10
    # a DDL that changes nothing in the binlog's eyes
    log.rows(A)
    assert log.found(11) == (A, 7, None)
    assert log.at().changed is None


def test_a_copy_does_not_change_a_table() -> None:
    log = Log().rows(A, new=True).ddl("CREATE TABLE t (id INT)", "CREATE TABLE", T).rows(A)
    log.epochs[1] = replace(log.epochs[1], copy=CopyStep("", "shop", "t", BEGIN))
    assert [log.found(epoch) for epoch in range(3)] == [(A, 0, None)] * 3


def test_tables_that_are_renamed_or_dropped() -> None:
    log = altered().ddl("RENAME TABLE t TO v", "RENAME TABLE", TableChanged("shop", "t", None, "v"))
    with pytest.raises(
        LogError, match="TR581: the table has not existed since epoch 10: RENAME TABLE t TO v"
    ):
        log.at()
    assert log.found(9)[0] == A
    with pytest.raises(LogError, match="TR581: the table has had no rows since epoch 10"):
        log.at(name=("shop", "v"))
    v = TableStructure("shop", "v", A.columns, A.key)
    log.rows(v, new=True)
    assert log.at(name=("shop", "v")).first == 10
    log.ddl("DROP DATABASE shop", "DROP DATABASE")
    with pytest.raises(LogError, match="TR581: the table has not existed since epoch 12"):
        log.at(name=("shop", "v"))
    log.ddl("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE", T)
    with pytest.raises(LogError, match="TR581: the table has had no rows since epoch 13"):
        log.at()
    log.rows(A)
    assert log.found(14) == (A, 13, None)


def test_a_place_by_gtids() -> None:
    log = altered()
    assert log.at(LookupPoint(gtids=f"{UUID}:1-40")).epoch == 3
    assert log.at(LookupPoint(gtids=f"{UUID}:1-41")).epoch == 4
    assert log.at(LookupPoint(gtids=f"{UUID}:35")).epoch == 3
    with pytest.raises(
        LogError, match="TR580: the GTID set is not in the log yet: the log has epochs 0 to 9"
    ):
        log.at(LookupPoint(gtids=f"{UUID}:1-101"))
    with pytest.raises(LogError, match="TR580: the GTID set is not in the log yet"):
        log.at(LookupPoint(gtids="0-1-5"))
    with pytest.raises(LogError, match="TR560: --at-gtid"):
        log.at(LookupPoint(gtids=f"{UUID}:5-x"))


def test_what_is_kept_begins_late() -> None:
    log = Log(first=100).rows(A).add()
    log.versions = [version_record(7, A)]
    assert log.found(101) == (A, 7, None)
    with pytest.raises(
        LogError, match="TR580: epoch 50 is no longer in the log: the log has epochs 100 to 101"
    ):
        log.at(LookupPoint(50))
    with pytest.raises(LogError, match="TR580: epoch 102 is not in the log yet"):
        log.at(LookupPoint(102))
    with pytest.raises(LogError, match="TR580: the GTID set ends before the oldest epoch of the log"):
        log.at(LookupPoint(gtids=f"{UUID}:1-50"))
    with pytest.raises(LogError, match="TR581: the log has no rows and no DDL of this table up to epoch 101"):
        log.at(name=("shop", "T"))
    with pytest.raises(LogError, match="TR580: the log has no epochs yet"):
        Log().at()


def test_the_structure_reads_like_a_statement() -> None:
    text_ = answer_text(altered().at(LookupPoint(6)), history=True)
    assert f"-- fingerprint {fingerprint(B)}\n-- epochs 4 to 6, requested epoch 6 ({UUID}:1-70)\n" in text_
    assert (
        "CREATE TABLE `shop`.`t` (\n  `id` int NOT NULL,\n"
        "  `na``me` varchar(60) CHARACTER SET utf8mb4 NULL,\n  PRIMARY KEY (`id`)\n);" in text_
    )
    assert f"-- epoch 4: {fingerprint(B)}; ALTER TABLE t ADD `na``me` VARCHAR(60)" in text_
    found = answer_dict(altered().at(LookupPoint(6)), history=True)
    assert [column["name"] for column in found["columns"]] == ["id", "na`me"]
    assert [period["epoch"] for period in found["history"]] == [1, 4, 7]
