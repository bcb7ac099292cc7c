"""Adapts a channel's rules to ``lower_case_table_names`` of its two servers.

If it is not 0 upstream, all names in the log are in lower case, and the patterns are lowered too. If it is not 0
downstream, two upstream tables may get the same name; that stops the channel before the first row.
"""

from __future__ import annotations

from dataclasses import replace

import pymysql

from schemas.letter_case import lowered
from schemas.tables import TableFilter
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.rules.event_filter import EventRule
from spark_consumer.rules.expressions.filter import ExpressionRule
from spark_consumer.rules.route import Route
from spark_consumer.target.session import closing, connect, unreachable


def with_servers_letter_case(config: ConsumerConfig, log: LogReader) -> ConsumerConfig:
    """Return the configuration for the letter case of the log and the downstream.

    Raises:
        LogError, DownstreamError: they cannot be read; TR618, two tables of the log are one table downstream.
    """
    last = log.last_epoch()
    if last is not None and last.record.names_in_lower_case:
        config = in_lower_case(config)
    if config.files is None and downstream_lowers_names(config):
        tables = TableFilter(config.include, config.exclude)
        there = log.tables(last.record.epoch) if last is not None else ()
        known = sorted(name for name in there if tables.allows(*name))
        config = replace(config, folded=tuple(known))
        _refuse_tables_that_are_one(config)
    return config


def _refuse_tables_that_are_one(config: ConsumerConfig) -> None:
    """Raise DownstreamError TR618 now instead of at the first use of the rules."""
    _ = config.rules


def in_lower_case(config: ConsumerConfig) -> ConsumerConfig:
    """Return the configuration with the patterns for the upstream's names in lower case."""
    return replace(
        config,
        upstream_lowers_names=True,
        include=tuple(map(lowered, config.include)),
        exclude=tuple(map(lowered, config.exclude)),
        filters=tuple(map(_filter, config.filters)),
        routes=tuple(map(lower_route, config.routes)),
        expressions=tuple(map(_expression, config.expressions)),
    )


def _filter(rule: EventRule) -> EventRule:
    return replace(
        rule, schema_pattern=lowered(rule.schema_pattern), table_pattern=_lowered(rule.table_pattern)
    )


def lower_route(route: Route) -> Route:
    """Return a route with its patterns in lower case."""
    return replace(
        route, schema_pattern=lowered(route.schema_pattern), table_pattern=_lowered(route.table_pattern)
    )


def _expression(rule: ExpressionRule) -> ExpressionRule:
    return replace(rule, schema_=lowered(rule.schema_), table=lowered(rule.table))


def _lowered(name: str | None) -> str | None:
    return None if name is None else lowered(name)


def downstream_lowers_names(config: ConsumerConfig) -> bool:
    """Whether the downstream stores all names in lower case. Raises DownstreamError."""
    try:
        with closing(connect(config.target)) as session:
            return bool(session.rows("SELECT @@lower_case_table_names")[0][0])
    except (pymysql.MySQLError, OSError) as error:
        raise unreachable(config.target, error) from error
