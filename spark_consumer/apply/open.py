"""Builds the objects that apply a channel's slices."""

from __future__ import annotations

from spark_consumer.apply import ledger
from spark_consumer.apply.applier import Applier, ChannelState
from spark_consumer.apply.connection import Connection
from spark_consumer.apply.ddl.run import DdlApplier, LoggedTables
from spark_consumer.apply.side_writes import SideWrites
from spark_consumer.apply.tables import error_log, nontransactional_info
from spark_consumer.apply.workers.pool import WorkerPool
from spark_consumer.epochs.position import Position
from spark_consumer.rules.channel import ChannelKey
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.target.session import Session


def open_applier(
    config: ConsumerConfig,
    session: Session,
    position: Position,
    logged: LoggedTables,
    worker_pool: WorkerPool | None = None,
) -> Applier:
    """Return the writer of a channel that was taken over at this position, on this connection.

    Raises pymysql.MySQLError, OSError.
    """
    rules, state = config.rules, read_state(session, config.key, position)
    connection = Connection(config, session)
    ddl = DdlApplier(config, rules, connection, state.ledger, logged)
    return Applier(config, connection, state, ddl, SideWrites(config.key, rules), worker_pool)


def read_state(session: Session, channel: ChannelKey, position: Position) -> ChannelState:
    """Read the state of a channel from the downstream. Raises pymysql.MySQLError, OSError."""
    return ChannelState(
        position,
        ledger.choose_ledger(session, position),
        error_log.decided(session, channel),
        error_log.read(session, channel) is not None,
        frozenset(nontransactional_info.read(session, channel)),
    )
