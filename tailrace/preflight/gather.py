"""Reads the facts and makes the findings; a server that does not answer is a finding itself."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import pymysql
from pymysql.connections import Connection

from schemas.errors import TailraceError
from schemas.tables import NEVER_REPLICATED, TableFilter
from spark_consumer.letter_case import in_lower_case
from spark_consumer.privileges import read_privileges
from spark_consumer.rules import Rules
from spark_consumer.session import Session
from tailrace import kafka_door, servers, wiring
from tailrace.config import Config
from tailrace.config_file import kafka_security
from tailrace.preflight.agreement import NO_KIT
from tailrace.preflight.downstream import DownstreamFacts, downstream_findings, version_of
from tailrace.preflight.finding import Finding, NotChecked, Part, Preflight, Result
from tailrace.preflight.grants import downstream_reach, upstream_reach
from tailrace.preflight.kafka import KafkaFacts, TopicFacts, kafka_findings
from tailrace.preflight.kit import attempt, read_kit
from tailrace.preflight.local import consumer_findings, folder_findings, relay_findings
from tailrace.preflight.programs import read_programs
from tailrace.preflight.upstream import UpstreamFacts, upstream_findings

_PATIENCE_S = 8.0


def preflight(config: Config) -> Preflight:
    """Check everything that the configuration names."""
    upstream: UpstreamFacts | None = None
    results: list[Result] = []
    try:
        upstream = read_upstream(config)
        results += upstream_findings(upstream)
    except TailraceError as error:
        results += _unreachable("upstream", error, "binlog settings, privileges, retention")
    results += relay_findings(config.relay.dir)
    try:
        results += kafka_findings(read_kafka(config))
    except TailraceError as error:
        results += _unreachable("kafka", error, "limits, topics")
    for one in wiring.targets(config):
        found = _of_target(one, upstream)
        # Those of a channel's own target say whose they are.
        results += found if one is config else [replace(each, part=_named(config, one)) for each in found]
    return Preflight((*results, *consumer_findings(config.consumer.checkpoint_dir)))


def _named(config: Config, own: Config) -> Part:
    names = [name for name in config.channel if config.for_channel(name).target == own.target]
    return f"downstream of {', '.join(names)}"


def _of_target(config: Config, upstream: UpstreamFacts | None) -> list[Result]:
    try:
        if (files := wiring.files_target(config)) is not None:
            return folder_findings(files)
        return downstream_findings(read_downstream(config, upstream))
    except TailraceError as error:
        return _unreachable("downstream", error, "privileges, GTIDs, settings")


def _unreachable(part: Part, error: TailraceError, rest: str) -> list[Result]:
    found = Finding("block", part, "reachable", error.what, error.hint)
    return [found, NotChecked(part, "settings", f"not looked at: {rest}")]


def read_upstream(config: Config) -> UpstreamFacts:
    """The upstream's facts. Raises UpstreamError when it cannot be reached."""
    url = wiring.source_url(config)
    with closing(servers.connect(url, "upstream")) as connection:
        try:
            mariadb = servers.is_mariadb(connection)
            names = attempt(lambda: _replica_ids(connection, mariadb))
            tables = TableFilter(config.tables.include, config.tables.exclude)
            columns = attempt(lambda: _columns(connection, tables))
            return UpstreamFacts(
                mariadb,
                str(servers.rows(connection, "SELECT VERSION()")[0][0]),
                servers.variables(connection),
                read_privileges(_session(connection, mariadb)),
                upstream_reach(tables, columns or ()),
                wiring.server_id(config),
                names,
                attempt(lambda: _count(connection, _KEYLESS)),
                attempt(lambda: _count(connection, _NOT_TRANSACTIONAL)),
                attempt(lambda: _count(connection, _CASES)),
                read_kit(connection, tables),
                columns,
            )
        except pymysql.MySQLError as error:
            raise servers.unreachable(url, "upstream", error) from error


def read_downstream(config: Config, upstream: UpstreamFacts | None) -> DownstreamFacts:
    """The downstream's facts. Raises DownstreamError when it cannot be reached."""
    url = wiring.target_url(config)
    with closing(servers.connect(url, "downstream")) as connection:
        try:
            session = _session(connection, servers.is_mariadb(connection))
            variables = servers.variables(connection)
            columns = (upstream.columns if upstream else None) or {}
            each = _rules(config, upstream, folds=variables.get("lower_case_table_names", "0") != "0")
            account = read_privileges(session)
            return DownstreamFacts(
                session.flavor == "mariadb",
                str(session.value("SELECT VERSION()")),
                variables,
                account,
                downstream_reach(each, columns),
                upstream.mariadb if upstream else None,
                upstream.variables if upstream else None,
                upstream.only_cases_differ if upstream else None,
                read_kit(connection),
                upstream.kit if upstream else NO_KIT,
                attempt(
                    lambda: read_programs(session, account, each, upstream.columns if upstream else None)
                ),
            )
        except pymysql.MySQLError as error:
            raise servers.unreachable(url, "downstream", error) from error


def _session(connection: Connection[Any], mariadb: bool) -> Session:
    version = str(servers.rows(connection, "SELECT VERSION()")[0][0])
    return Session(connection, "mariadb" if mariadb else "mysql", version_of(version), 0)


def _rules(config: Config, upstream: UpstreamFacts | None, *, folds: bool) -> list[Rules]:
    """The rules of all channels that write to a target, as its two servers compare names."""
    one = wiring.recovery_config(config)
    if upstream is not None and upstream.variables.get("lower_case_table_names", "0") != "0":
        one = in_lower_case(one)
    return [Rules.of(replace(each, folded=() if folds else None)) for each in (one, *one.beside)]


def _columns(connection: Connection[Any], tables: TableFilter) -> dict[tuple[str, str], frozenset[str]]:
    """The columns of the upstream's replicated tables, in lower case."""
    found: dict[tuple[str, str], set[str]] = {}
    for db, table, column in servers.rows(
        connection, "SELECT table_schema, table_name, column_name FROM information_schema.columns"
    ):
        if tables.allows(str(db), str(table)):
            found.setdefault((str(db), str(table)), set()).add(str(column).lower())
    return {name: frozenset(names) for name, names in found.items()}


def _replica_ids(connection: Connection[Any], mariadb: bool) -> list[int]:
    # Either statement is unknown to some version of the other flavour.
    found = servers.rows(connection, "SHOW SLAVE HOSTS" if mariadb else "SHOW REPLICAS")
    return [int(row[0]) for row in found]


_NOT_OURS = "(" + ", ".join(f"'{name}'" for name in sorted(NEVER_REPLICATED)) + ")"
_KEYLESS = f"""
SELECT COUNT(*) FROM information_schema.tables t WHERE t.table_type = 'BASE TABLE'
  AND t.table_schema NOT IN {_NOT_OURS} AND NOT EXISTS (
    SELECT 1 FROM information_schema.statistics s WHERE s.table_schema = t.table_schema
      AND s.table_name = t.table_name AND s.non_unique = 0
    GROUP BY s.index_name HAVING SUM(s.nullable = 'YES' OR s.column_name IS NULL) = 0)
"""
_NOT_TRANSACTIONAL = f"""
SELECT COUNT(*) FROM information_schema.tables t JOIN information_schema.engines e ON e.engine = t.engine
WHERE t.table_type = 'BASE TABLE' AND t.table_schema NOT IN {_NOT_OURS} AND e.transactions <> 'YES'
"""


_CASES = f"""
SELECT COUNT(*) FROM (SELECT 1 FROM information_schema.tables WHERE table_schema NOT IN {_NOT_OURS}
  GROUP BY BINARY LOWER(table_schema), BINARY LOWER(table_name) HAVING COUNT(*) > 1) names
"""


def _count(connection: Connection[Any], sql: str) -> int:
    return int(servers.rows(connection, sql)[0][0])


def read_kafka(config: Config) -> KafkaFacts:
    """The brokers' facts. Raises what ``kafka_door.brokers`` raises."""
    admin, metadata = kafka_door.brokers(config.kafka.bootstrap_servers, kafka_security(config.kafka))
    prefix = config.kafka.prefix
    names = [f"{prefix}.{kind}" for kind in ("rows", "epochs", "schemas")]
    topics = {}
    for name in names:
        if name in metadata.topics:
            parts = metadata.topics[name].partitions
            replicas = min((len(part.replicas) for part in parts.values()), default=0)
            topics[name] = TopicFacts(len(parts), replicas, _settings(admin, "topic", name))
    broker = str(next(iter(metadata.brokers), 0))
    limits = _settings(admin, "broker", broker)
    return KafkaFacts(len(metadata.brokers), limits, topics, prefix, config.kafka.partitions)


def _settings(admin: Any, kind: str, name: str) -> dict[str, str] | None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import ConfigResource

    resource = ConfigResource(ConfigResource.Type[kind.upper()], name)
    try:
        [future] = admin.describe_configs([resource], request_timeout=_PATIENCE_S).values()
        return {key: str(entry.value) for key, entry in future.result(_PATIENCE_S).items()}
    except (KafkaException, TimeoutError):
        return None
