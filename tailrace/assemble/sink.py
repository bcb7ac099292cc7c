"""Constructs the sink of a channel: a server or a folder."""

from __future__ import annotations

from contextlib import closing, suppress
from functools import partial
from typing import Any

import pymysql

from schemas.errors import TailraceError
from spark_consumer.apply.applier import Applier, ChannelState
from spark_consumer.apply.connection import Connection
from spark_consumer.apply.ddl.run import DdlApplier, LoggedTables
from spark_consumer.apply.side_writes import SideWrites
from spark_consumer.apply.tables import channel_tables
from spark_consumer.apply.workers.pool import WorkerPool
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.rows.slice_rows import SliceRows
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.sinks.server import ServerSink, open_server
from spark_consumer.sinks.sink import Sink
from spark_consumer.target.session import Session, connect


def open_sink(config: ConsumerConfig, log: LogReader, worker_pool: WorkerPool | None = None) -> Sink[Any]:
    """Take over a channel on its server or in its folder as its only writer. Raises TailraceError.

    Args:
        worker_pool: applies the parts of slices; needed with several workers.
    """
    if config.files is not None:
        # It imports Arrow, which a server does not need.
        from spark_consumer.sinks.parquet.sink import open_files

        return open_files(config, config.files, log)
    logged = LoggedTables(log.tables, log.structures)
    return open_server(config, log, partial(server_sink, log, logged, None, worker_pool))


def make_tables(config: ConsumerConfig) -> None:
    """Make a server's tables for channels, if it can be reached; ``open_sink`` says why not."""
    if config.files is None:
        with suppress(TailraceError, pymysql.MySQLError, OSError), closing(connect(config.target)) as session:
            channel_tables.install(session)


def server_sink(
    log: LogReader,
    logged: LoggedTables,
    rows: SliceRows | None,
    worker_pool: WorkerPool | None,
    config: ConsumerConfig,
    session: Session,
    state: ChannelState,
) -> ServerSink:
    """Return the sink of a channel that was taken over in this state, on this connection."""
    rules, connection = config.rules, Connection(config, session)
    ddl = DdlApplier(config, rules, connection, state.ledger, logged)
    applier = Applier(config, connection, state, ddl, SideWrites(config.key, rules), worker_pool)
    return ServerSink(config, applier, log, rows)
