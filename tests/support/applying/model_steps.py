"""Steps of tests with a model: create its tables, compare it with a downstream, decide about a refused event."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from compose.databases import Database
from spark_consumer.apply.tables import error_log, position_store
from spark_consumer.apply.tables.error_log import ChannelError
from spark_consumer.plan.refusal import EventRefused
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.target.session import Session, closing, connect
from tests.support.applying.model import TABLES, Model
from tests.support.applying.parts import MemoryLog, apply_log


def create_tables(server: Database, db: str) -> str:
    """Create a database with the model's tables; returns its name."""
    server.execute(
        f"CREATE DATABASE {db} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
        f"USE {db}",
        *(f"CREATE TABLE {table} {columns}" for table, columns in TABLES.items()),
    )
    return db


def rows_of(server: Database, db: str, table: str, columns: list[str]) -> list[tuple[Any, ...]]:
    found = server.execute(f"SELECT {', '.join(columns)} FROM {db}.{table}")
    return sorted(found, key=repr)


def assert_equal(server: Database, model: Model) -> None:
    for table, rows in model.tables.items():
        columns = [column.name for column in model.structure(table).columns]
        wanted = sorted((tuple(row[name] for name in columns) for row in rows), key=repr)
        assert rows_of(server, model.db, table, columns) == wanted, table


def assert_audited(server: Database, channel: str, epochs: int) -> None:
    """Each epoch in one audit row, all workers level, and each number of the ledger used once."""
    batches = server.execute(
        f"SELECT first_epoch, last_epoch FROM tailrace.applied_epochs WHERE channel = '{channel}' ORDER BY 1"
    )
    covered = [epoch for begin, end in batches for epoch in range(begin, end + 1)]
    assert covered == list(range(epochs))
    [(uuid, number, consistent)] = server.execute(
        "SELECT ledger_uuid, ledger_seq, consistent FROM tailrace.relay_log_info"
        f" WHERE Channel_name = '{channel}'"
    )
    assert consistent == 1
    ahead = f"SELECT COUNT(*) FROM tailrace.worker_info WHERE Channel_name = '{channel}' AND ahead = 1"
    assert server.execute(ahead) == [(0,)]
    if server.flavor == "mysql":
        [(executed,)] = server.execute("SELECT @@GLOBAL.gtid_executed")
        ours = next(part for part in executed.replace("\n", "").split(",") if part.startswith(uuid))
        assert ours == (f"{uuid}:1-{number}" if number > 1 else f"{uuid}:1")


def refusal(config: ConsumerConfig, log: MemoryLog) -> EventRefused | None:
    """Apply the log; the event that the downstream refused, if one was."""
    try:
        apply_log(config, log)
    except EventRefused as error:
        return error
    return None


def decide(config: ConsumerConfig, refused: EventRefused, *before: str) -> None:
    """Have statements run instead of an event: the event's own, and some before it."""
    with _stopped(config, refused) as (session, stopped):
        assert stopped.statement is not None
        error_log.add(session, config.key, stopped, (*before, stopped.statement), "a test")


def leave_out(config: ConsumerConfig, refused: EventRefused) -> None:
    """Have an event skipped."""
    with _stopped(config, refused) as (session, stopped):
        error_log.add(session, config.key, stopped, (), "a test")


@contextmanager
def _stopped(config: ConsumerConfig, refused: EventRefused) -> Iterator[tuple[Session, ChannelError]]:
    with closing(connect(config.target)) as session:
        position_store.take_over(session, config.key)
        token = position_store.require_position(session, config.key).fencing_token
        error_log.record(session, config.key, token, refused)
        stopped = error_log.read(session, config.key)
        assert stopped is not None
        yield session, stopped
