"""Reads what the copy with which a new log begins finds on both servers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pymysql.connections import Connection

from producer.copy.cascades import cascades_of, hidden_parents
from producer.copy.upstream_reader import cascading_keys, check_upstream
from producer.upstream.connect import LoginRefused, describe, variable
from relay_store.layout.directory import read_index, read_start
from schemas.access.server_url import ServerUrl
from schemas.errors import UpstreamError
from schemas.quote import quoted
from schemas.tables import QualifiedName, TableFilter
from schemas.wire.epoch import COPY
from spark_consumer.apply.tables import position_store
from spark_consumer.rules.channel import ChannelKey
from spark_consumer.rules.rules import Rules
from spark_consumer.target.programs.privileges import read_privileges
from spark_consumer.target.session import Session
from tailrace import servers
from tailrace.config.addresses import source_url
from tailrace.config.model import Config
from tailrace.preflight.downstream import version_of
from tailrace.preflight.first_copy import SourceFacts, SourceTable, TargetTable, targets_of_copy
from tailrace.preflight.grants import upstream_reach

_TABLES = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE FROM information_schema.TABLES"
    " WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED', 'SEQUENCE') ORDER BY TABLE_SCHEMA, TABLE_NAME"
)
# Unique keys that are implemented by a hash, which MariaDB has for long columns, do not identify rows in the binlog.
_KEYED = (
    "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.STATISTICS WHERE NON_UNIQUE = 0"
    " GROUP BY TABLE_SCHEMA, TABLE_NAME, INDEX_NAME HAVING MIN(INDEX_NAME) = 'PRIMARY' OR (MIN(INDEX_TYPE) <> 'HASH'"
    " AND SUM(NULLABLE = 'YES' OR COLUMN_NAME IS NULL OR SUB_PART IS NOT NULL) = 0)"
)


def copies_first(config: Config, log_id: str | None) -> bool:
    """Whether the producer is going to begin a log with a copy.

    Args:
        log_id: the id of the log in Kafka; empty without a log, None if it is not known.
    """
    root, relay = config.relay.dir, config.relay
    if log_id != "" or config.source is None:
        return False
    if root.is_dir() and read_index(root):
        start = read_start(root)
        return start is not None and start.log_begins == COPY
    return config.source.start == COPY and not relay.relay_binlog_gtid and not relay.relay_binlog_name


def read_source(config: Config) -> SourceFacts:
    """Read what a copy meets on the upstream. Raises UpstreamError if it cannot be reached."""
    url = source_url(config)
    with servers.asking(url, "upstream") as connection:
        mariadb = servers.is_mariadb(connection)
        version = version_of(str(servers.rows(connection, "SELECT VERSION()")[0][0]))
        folds = variable(connection, "lower_case_table_names") not in (None, "0")
        tables = TableFilter(config.tables.include, config.tables.exclude, folds=folds)
        found = servers.attempt(lambda: _source_tables(connection, tables))
        return SourceFacts(
            mariadb,
            version,
            read_privileges(Session(connection, "mariadb" if mariadb else "mysql", version, 0)),
            upstream_reach(tables, [table.name for table in found or ()]),
            _refusal(url),
            found,
        )


def _refusal(url: ServerUrl) -> UpstreamError | None:
    """Return why nothing can be copied from a server; None if it can, or if the account may not ask for that."""
    try:
        check_upstream(url, describe(url))
    except LoginRefused:
        return None
    except UpstreamError as error:
        return error
    return None


def _source_tables(connection: Connection[Any], tables: TableFilter) -> list[SourceTable]:
    def names(sql: str) -> set[QualifiedName]:
        return {(str(db), str(table)) for db, table in servers.rows(connection, sql)}

    keyed, keys = names(_KEYED), cascading_keys(connection, folds=tables.folds)
    found = []
    for db, table, kind, engine in servers.rows(connection, _TABLES):
        name = (str(db), str(table))
        if tables.allows(*name):
            cascades = cascades_of(name, keys)
            hidden = min(hidden_parents(cascades, tables), default=None)
            is_circular = bool(cascades.circle)
            found.append(
                SourceTable(name, str(engine or ""), name in keyed, kind == "SEQUENCE", hidden, is_circular)
            )
    return found


def read_targets(
    connection: Connection[Any],
    channels: Sequence[tuple[ChannelKey, Rules]],
    sources: Sequence[QualifiedName],
) -> list[TargetTable]:
    """Read what is in the place of the tables that the copy brings to channels without a position.

    Raises pymysql.MySQLError.
    """
    begun = {row.key for row in position_store.all_channels(partial(servers.rows, connection))}
    there = {
        (str(db), str(table)): str(kind)
        for db, table, kind in servers.rows(
            connection, "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE FROM information_schema.TABLES"
        )
    }
    return [
        TargetTable(target, source, there[target], _has_rows(connection, target, there[target]))
        for key, rules in channels
        if key not in begun
        for target, source in targets_of_copy(rules, sources).items()
        if target in there
    ]


def _has_rows(connection: Connection[Any], name: QualifiedName, kind: str) -> bool:
    return kind != "VIEW" and bool(servers.rows(connection, f"SELECT 1 FROM {quoted(*name)} LIMIT 1"))
