"""Rows are looked up by their keys, also where the downstream's statistics say that a table is nearly empty."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compose.databases import Database
from schemas.quote import quoted
from schemas.structure import TableStructure
from tests.support.applying.apply_steps import apply_rows, open_channel
from tests.support.epochs.fake_topic import delete, integer
from tests.support.names import own_database

pytestmark = [pytest.mark.servers, pytest.mark.parametrize("flavor", ["mysql", "mariadb"], indirect=True)]
_ROWS = 30_000


@pytest.fixture
def db(request: pytest.FixtureRequest, downstream: Database) -> Iterator[str]:
    yield from own_database("look_", request, downstream)


def _read_in_sequence(server: Database) -> int:
    return int(server.execute("SHOW GLOBAL STATUS LIKE 'Handler_read_rnd_next'")[0][1])


@pytest.mark.parametrize(
    "key", ["PRIMARY KEY (id)", "PRIMARY KEY (v, id)", "UNIQUE `a``b-ü` (id)"], ids=["one", "two", "named"]
)
def test_a_delete_of_many_rows_does_not_read_the_whole_table(downstream: Database, db: str, key: str) -> None:
    # The name in the hint is quoted, too.
    name = "t `x"
    digits = " UNION ALL ".join(f"SELECT {n} AS n" for n in range(10))
    numbers = ", ".join(f"({digits}) AS n{place}" for place in range(5))
    number = " + ".join(f"n{place}.n * {10**place}" for place in range(5))
    downstream.execute(
        f"CREATE DATABASE {db}",
        f"CREATE TABLE {quoted(db, name)} (id INT NOT NULL, v INT NOT NULL, {key}) STATS_AUTO_RECALC = 0",
        f"INSERT INTO {quoted(db, name)} SELECT {number}, 7 FROM {numbers} WHERE {number} < {_ROWS}",
        "UPDATE mysql.innodb_table_stats SET n_rows = 0, clustered_index_size = 1, sum_of_other_index_sizes = 1"
        f" WHERE database_name = '{db}'",
        f"FLUSH TABLE {quoted(db, name)}",
    )
    structure = TableStructure(
        db, name, (integer("id"), integer("v")), ("v", "id") if "v," in key else ("id",)
    )
    before = _read_in_sequence(downstream)
    gone = (delete(structure, {"id": n, "v": 7}) for n in range(0, _ROWS, 60))
    apply_rows(*open_channel(downstream.url("tailrace"), db), *gone)
    assert _read_in_sequence(downstream) - before < _ROWS // 2
    assert downstream.execute(f"SELECT COUNT(*) FROM {quoted(db, name)}") == [(_ROWS - _ROWS // 60,)]
