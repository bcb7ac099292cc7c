"""`relay verify --rows` on golden binlogs: all differences to mysql-replication are known ones."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from typer.testing import CliRunner, Result

from producer.decode.rows_events import DecodedTable
from relay_store.layout.directory import write_index
from relay_store.read.reader import RelayReader
from schemas.binlog import framing
from schemas.structure import Column
from schemas.types.temporal import TIME, TIMESTAMP2
from tailrace.commands.app import app
from tailrace.reader.event_rows import Images, decoded_rows
from tailrace.verify_rows import compare, known
from tailrace.verify_rows.compare import RowsReport, compare_rows
from tailrace.verify_rows.report import findings_of, notes_of
from tests.support.binlogs.damage import LOGS, copy_of, events_of
from tests.support.golden.golden_binlogs import BINLOGS, FILE, SUBDIR
from tests.support.paths import CHECKOUT

GOLDEN = {
    "mysql": {known.BINARY_ZEROS, known.JSON_SCALAR, known.JSON_DIFF},
    "mariadb": {known.BINARY_ZEROS},
    "mysql_images": {known.JSON_DIFF},
    "mariadb_images": set(),
    "mysql_values": set(known.KNOWN) - {known.LATE_TIMESTAMP, known.OLD_TIME},
    "mariadb_values": {
        known.ZERO_DATE, known.IMPOSSIBLE_DATE, known.ZERO_TIMESTAMP, known.ZERO_YEAR, known.NEGATIVE_FRACTION,
        known.EMPTY_SET, known.MEMBERS, known.BINARY_ZEROS, known.TEXT,
    },
}  # fmt: skip


def golden_log(name: str, root: Path) -> Path:
    """A golden binlog as a relay log."""
    shutil.copytree(BINLOGS / name / SUBDIR, root / SUBDIR)
    write_index(root, [SUBDIR])
    return root


def rows_events(root: Path) -> int:
    """How many events of rows there are, those inside of compressed transactions not counted."""
    kinds, reader = [], RelayReader(root)
    while block := reader.read_block():
        at = 0
        while at < len(block.data):
            kinds.append(block.data[at + 4])
            at += framing.header(block.data, at).size
    reader.close()
    return sum(kind in framing.INSIDE_GROUP and kind not in _NO_ROWS for kind in kinds)


_NO_ROWS = {
    framing.TABLE_MAP, framing.INTVAR, framing.RAND, framing.USER_VAR, framing.ROWS_QUERY,
    framing.MARIADB_ANNOTATE_ROWS,
}  # fmt: skip


@pytest.mark.parametrize("name", GOLDEN)
def test_the_decoders_agree_but_for_what_is_known(name: str, tmp_path: Path) -> None:
    root = golden_log(name, tmp_path)
    report = compare_rows(root)
    assert report.differences == []
    assert set(report.known) == GOLDEN[name]
    left_out = sum(report.not_compared.values()) - report.not_compared[known.IMPOSSIBLE_DATE]
    assert report.events + left_out >= rows_events(root)
    assert report.values > report.rows > 0


def test_what_cannot_be_compared_is_counted(tmp_path: Path) -> None:
    """A DATE that is in no calendar costs the library its event; MariaDB's old formats do not say their fractions."""
    report = compare_rows(golden_log("mariadb_values", tmp_path))
    old = "the log does not say how many digits the fractions of old temporal columns have"
    assert report.not_compared == {known.IMPOSSIBLE_DATE: 1, old: 1}
    assert any("1 rows event not compared" in note for note in notes_of(report))


@pytest.mark.parametrize("name", ["mysql", "mariadb"])
def test_a_wrong_value_of_ours_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any column: NULL stands in its place."""
    report = compare_rows(golden_log(name, tmp_path))
    wrong = _Wrong(monkeypatch)
    for column in ("id", *"abcdefghijklmnopqrst"):
        wrong.column = column
        [found] = compare_rows(tmp_path).differences
        assert (found.table, found.row, found.image, found.column) == ("g.types", 1, "after", column)
        assert found.file.endswith("/mysql-bin.000001")
        assert found.ours != found.theirs
    assert wrong.calls > report.events


class _Wrong:
    """Makes a column of the table ``types`` NULL in the first row that is inserted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.column, self.calls = "", 0
        monkeypatch.setattr(compare, "decoded_rows", self.rows)

    def rows(self, table: DecodedTable, kind: int, event: bytes) -> Iterator[tuple[list[Images], int]]:
        self.calls += 1
        for rows, size in decoded_rows(table, kind, event):
            if kind in (framing.WRITE_ROWS, framing.WRITE_ROWS_V1) and "t" in (
                after := rows[0]["after"] or {}
            ):
                after[self.column] = None
            yield rows, size


def test_a_row_too_many_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = golden_log("mysql", tmp_path)
    monkeypatch.setattr(compare, "decoded_rows", lambda *event: _twice(decoded_rows(*event)))
    report = compare_rows(root)
    assert {(found.ours, found.theirs) for found in report.differences} == {("a row", "no row")}
    assert report.different == report.events


def _twice(portions: Iterator[tuple[list[Images], int]]) -> Iterator[tuple[list[Images], int]]:
    for rows, size in portions:
        yield [*rows, rows[-1]], size


def test_a_difference_says_where_and_both_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = golden_log("mysql", tmp_path)
    _Wrong(monkeypatch).column = "b"
    [finding] = findings_of(compare_rows(root))
    assert finding.code == "TR337"
    assert re.fullmatch(r"golden\.000001/mysql-bin\.000001:\d+", finding.location)
    said = (
        "table g.types, row 1, after image, column b: NULL by us, 18446744073709551615 by mysql-replication"
    )
    assert finding.message == said


def _column(code: int, meta: int) -> Column:
    return Column("c", "", code, meta, True)


@pytest.mark.parametrize(
    ("column", "ours", "theirs", "name"),
    [
        (_column(TIMESTAMP2, 0), "2100-01-01 00:00:00", "1963-11-25 17:31:44", known.LATE_TIMESTAMP),
        (_column(TIMESTAMP2, 0), "2100-01-01 00:00:00", "1963-11-25 17:31:45", ""),
        (_column(TIME, 0), "-00:00:01", "1677:72:15", ""),
        (_column(TIME, 0), "-00:00:01", "1678:12:15", known.OLD_TIME),
    ],
)
def test_a_difference_is_known_only_to_the_letter(column: Column, ours: Any, theirs: Any, name: str) -> None:
    assert known.known_difference(column, ours, theirs, None) == name


def _verify(root: Path, *options: str) -> Result:
    config = root.with_name("tailrace.toml")
    config.write_text(f'[relay]\ndir = "{root}"\n')
    return CliRunner().invoke(app, ["relay", "verify", "--rows", *options, "--config", str(config)])


@pytest.mark.parametrize("name", sorted(LOGS))
def test_the_command_on_a_servers_own_log(name: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    result = _verify(root)
    assert (result.exit_code, result.stdout.endswith("events: sound\n")) == (0, True), result.stdout
    assert "decoded with mysql-replication too, and compared:" in result.stdout
    rows = json.loads(_verify(root, "--json").stdout)["rows"]
    assert rows["rows"] > 0
    assert rows["different"] == 0


def test_the_command_on_a_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = copy_of(sorted(LOGS)[0], tmp_path)
    different = RowsReport(events=1, rows=1, values=1, different=101)
    place = ("s/mysql-bin.000001", 4, "d.t", 1, "after", "v")
    different.differences.append(compare.Difference(*place, b"\x00\xff", None))
    monkeypatch.setattr(compare, "compare_rows", lambda root, progress: different)
    result = _verify(root)
    assert result.exit_code == 5
    assert "TR337  s/mysql-bin.000001:4" in result.stdout
    assert "0x00ff by us, NULL by mysql-replication" in " ".join(result.stdout.split())
    assert "100 further differences not listed" in result.stdout
    found = json.loads(_verify(root, "--json").stdout)
    assert not found["sound"]
    assert found["rows"]["differences"][0]["ours"] == "0x00ff"


def test_a_damaged_log_is_not_decoded(tmp_path: Path) -> None:
    root = copy_of(sorted(LOGS)[0], tmp_path)
    next(root.rglob("relay.meta")).unlink()
    result = _verify(root)
    assert result.exit_code == 5
    assert "the rows were not compared" in result.stdout


def test_the_documents_name_every_known_difference_in_order() -> None:
    section = (CHECKOUT / "docs/RELAY_LOG.md").read_text().split("## Rows decoded twice")[1]
    assert re.findall(r"^\| ([^|]+) \| .+ \| .+ \|$", section, re.MULTILINE)[1:] == list(known.KNOWN)


@pytest.mark.parametrize("name", GOLDEN)
def test_any_damage_with_a_right_checksum_gives_a_report(name: str, tmp_path: Path) -> None:
    """One flipped bit in a TABLE_MAP or in rows: never an exception of a decoder."""
    root, rng = golden_log(name, tmp_path), random.Random(name)
    file = root / SUBDIR / FILE
    events = [bytearray(event) for _, _, event in events_of(root)]
    damaged = [event for event in events if event[4] in framing.INSIDE_GROUP - _NO_ROWS | {framing.TABLE_MAP}]
    different = 0
    for _ in range(20):
        event = rng.choice(damaged)
        whole, at = bytes(event), rng.randrange(framing.HEADER_SIZE, len(event) - framing.CHECKSUM_SIZE)
        event[at] ^= 1 << rng.randrange(8)
        event[-framing.CHECKSUM_SIZE :] = crc32(event[: -framing.CHECKSUM_SIZE]).to_bytes(4, "little")
        file.write_bytes(framing.MAGIC + b"".join(events))
        different += compare_rows(root).different > 0
        event[:] = whole
    assert different > 0
