"""The log tells which rows of a table without a key it has changed: all that it has, and as few others as it can."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from spark_consumer.epochs.log_reader import LogReader
from tailrace.config.addresses import source_url, target_url
from tailrace.reader.log import EpochReader
from tailrace.validate.history import History
from tailrace.validate.protocol import Key, Rows
from tailrace.validate.result import TableReport
from tailrace.validate.servers import PairSides, Servers
from tailrace.validate.tables import Chunk, TableReader
from tailrace.validate.validator import Validator
from tests.support.applying.validated import Channel
from tests.support.statements.value_families import COLUMNS, FAMILIES, OTHERS, VALUES
from tests.support.statements.value_types import LOOSE

pytestmark = pytest.mark.servers

Make = Callable[..., Channel]

#: families whose values are not compared with the log's, or whose two values it takes for the same
_ALIKE = {"f", "f0", "d", "d0", "b", "v", "l", "g", "w", "o", "e", "h", "j", "j2", "k"}


@contextmanager
def _sides(pipe: Channel) -> Iterator[PairSides]:
    config, rules = pipe.config, pipe.consumer
    with (
        closing(Servers(source_url(config), target_url(config), rules.key, 60)) as servers,
        EpochReader(rules.bootstrap_servers, rules.prefix, rules.kafka_security) as reader,
    ):
        run = Validator(servers, History(LogReader(rules), reader), rules, "", 0, lambda report: None)
        run.begin()
        pair = run.pair(TableReport(f"{pipe.there}.bag"))
        assert pair is not None
        yield run.sides(pair)


def _every_row(reader: TableReader) -> Rows:
    keys: set[Key] = set(reader.digests(Chunk(), range(16**3)))
    return reader.rows(keys)


@pytest.mark.parametrize(("up", "down"), [("mysql", "mariadb"), ("mariadb", "mysql"), ("mysql", "mysql")])
def test_the_log_tells_which_rows_it_has_changed(channel: Make, up: str, down: str) -> None:
    pipe = channel(up, down)
    pipe.log.sql(LOOSE, f"CREATE TABLE bag (id INT, {COLUMNS}) DEFAULT CHARSET utf8mb4")
    pipe.replicate()
    with _sides(pipe) as sides:
        before = sides.position()
        pipe.log.sql(
            LOOSE,
            "SET time_zone = '+00:00'",
            *(f"INSERT INTO bag VALUES ({n}, {VALUES})" for n in range(len(FAMILIES))),
            f"INSERT INTO bag VALUES (-1, {OTHERS})",
            "INSERT INTO bag (id) VALUES (-2)",
        )
        pipe.replicate()
        here, _ = sides.upstream(_every_row, sides.position())
        there, after = sides.downstream(_every_row)
        assert here.keys() == there.keys()
        assert len(here) == len(FAMILIES) + 2
        for rows in (here, there):
            assert set(sides.touched(rows, before, after)) == rows.keys()
            assert not set(sides.touched(rows, after, after))
        for n, (name, (_, _, other)) in enumerate(FAMILIES.items()):
            pipe.there_sql(f"UPDATE bag SET {name} = {other} WHERE id = {n}")
        planted, _ = sides.downstream(_every_row)
        planted = {key: rows for key, rows in planted.items() if rows[0][0] not in (b"-1", b"-2")}
        kept = planted.keys() - sides.touched(planted, before, after)
        found = {list(FAMILIES)[int(planted[key][0][0] or 0)] for key in kept}
        assert found == FAMILIES.keys() - _ALIKE
