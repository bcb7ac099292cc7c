"""Every type's values as real servers log them, decoded by us and by mysql-replication."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from compose.databases import Database
from relay_store.layout.directory import write_index
from tailrace.verify_rows import known
from tailrace.verify_rows.compare import compare_rows
from tests.support.golden.golden_binlogs import SUBDIR
from tests.support.statements.value_types import LOOSE, types_of

_ALWAYS = {
    known.ZERO_DATE, known.IMPOSSIBLE_DATE, known.ZERO_TIMESTAMP, known.ZERO_YEAR, known.NEGATIVE_FRACTION,
    known.EMPTY_SET,
}  # fmt: skip
# With metadata it is told which bytes are BINARY, and what an ENUM's members are.
_NAMED = {known.BINARY_ZEROS, known.MEMBERS, known.TEXT}


@pytest.mark.parametrize(
    ("flavor", "settings", "differences"),
    [
        ("mysql", "binlog_row_metadata = FULL", _ALWAYS | _NAMED),
        ("mysql", "binlog_row_metadata = MINIMAL", _ALWAYS | {known.BINARY_ZEROS, known.TEXT}),
        ("mysql", "binlog_transaction_compression = ON", _ALWAYS | _NAMED),
        ("mysql", "binlog_checksum = NONE", _ALWAYS | _NAMED),
        ("mysql", "binlog_row_image = MINIMAL", _ALWAYS | _NAMED),
        ("mariadb", "binlog_row_metadata = FULL", _ALWAYS | _NAMED),
        ("mariadb", "binlog_row_metadata = NO_LOG", _ALWAYS),
        ("mariadb", "log_bin_compress = ON", _ALWAYS | _NAMED),
        ("mariadb", "binlog_row_image = MINIMAL", _ALWAYS | _NAMED),
    ],
)
def test_only_known_differences(
    server: Callable[..., Database], flavor: str, settings: str, differences: set[str], tmp_path: Path
) -> None:
    upstream = server(flavor)
    upstream.execute(f"SET GLOBAL {settings}", "CREATE DATABASE v CHARACTER SET utf8mb4")
    values = _write_all(upstream, flavor)
    upstream.stop()
    (tmp_path / SUBDIR).mkdir()
    for file in sorted(upstream.data.glob("mysql-bin.0*")):
        shutil.copy(file, tmp_path / SUBDIR)
    write_index(tmp_path, [SUBDIR])
    report = compare_rows(tmp_path)
    assert report.differences == []
    assert set(report.known) == differences
    assert set(report.not_compared) == {known.IMPOSSIBLE_DATE}
    assert report.rows > 3 * values


def _write_all(upstream: Database, flavor: str) -> int:
    """Insert, change and delete every value of every type; how many there are."""
    count = 0
    with upstream.connect(database="v") as connection, connection.cursor() as cursor:
        cursor.execute(LOOSE)
        cursor.execute("SET SESSION time_zone = '+00:00'")
        for i, (sql_type, literals, _) in enumerate(types_of(flavor)):
            cursor.execute(f"CREATE TABLE t{i} (id INT PRIMARY KEY, v {sql_type})")
            for number, literal in enumerate([*literals, "NULL"]):
                cursor.execute(f"INSERT INTO t{i} VALUES ({number}, {literal})")
                count += 1
            cursor.execute(f"UPDATE t{i} SET v = NULL WHERE id = 0")
            cursor.execute(f"UPDATE t{i} SET id = id + 100")
            cursor.execute(f"DELETE FROM t{i}")
    return count
