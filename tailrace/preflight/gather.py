"""Reads the facts and returns the findings; a server that does not answer is a finding too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pymysql.connections import Connection

from producer.mirror.start import MirrorStart, choose_start
from producer.upstream.connect import LoginRefused, describe
from relay_store.layout.directory import read_index
from relay_store.read.start import initial_position
from schemas.access.server_login import tls_of
from schemas.errors import TailraceError, UpstreamError
from schemas.tables import NEVER_REPLICATED, QualifiedName, TableFilter
from schemas.wire.epoch import COPY, ORIGIN
from spark_consumer.epochs.letter_case import in_lower_case
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.start import complete_copy, first_kept
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.rules.rules import Rules
from spark_consumer.rules.scope import Scope
from spark_consumer.target.programs.privileges import read_privileges
from spark_consumer.target.session import Session
from tailrace import probe_kafka, servers
from tailrace.config.addresses import (
    files_target,
    kafka_security,
    log_address,
    server_id,
    source_url,
    target_url,
    targets,
)
from tailrace.config.channels import channel_rules, channels_of
from tailrace.config.model import Config
from tailrace.other_pipelines import (
    channels_feeding,
    channels_on,
    follows,
    is_same_cluster,
    is_same_server,
    server_identity,
    tables_of,
)
from tailrace.preflight.agreement import NO_FEATURES, ServerFeatures
from tailrace.preflight.channels import ChannelFacts, channel_findings
from tailrace.preflight.copy_facts import copies_first, read_source, read_targets
from tailrace.preflight.downstream import (
    DownstreamFacts,
    Nontransactional,
    downstream_findings,
    version_of,
)
from tailrace.preflight.encryption import Encryption
from tailrace.preflight.finding import Finding, NotChecked, Part, Preflight, Result
from tailrace.preflight.first_copy import source_findings, target_findings
from tailrace.preflight.grants import downstream_reach, upstream_reach
from tailrace.preflight.kafka import KafkaFacts, TopicFacts, kafka_findings
from tailrace.preflight.local import consumer_findings, folder_findings, relay_findings, secret_findings
from tailrace.preflight.loops import LoopFacts, loop_findings
from tailrace.preflight.programs import read_programs
from tailrace.preflight.upstream import UpstreamFacts, upstream_findings
from tailrace.status.new_channels import NewChannels
from tailrace.status.position import last_epoch

_COLLATIONS = "SELECT collation_name FROM information_schema.collations WHERE collation_name IS NOT NULL"
# MariaDB's full names of collations that belong to several character sets.
_FULL_COLLATIONS = "SELECT full_collation_name FROM information_schema.collation_character_set_applicability"
_ENGINES = "SELECT engine FROM information_schema.engines WHERE support IN ('YES', 'DEFAULT')"
_USED_COLLATIONS = (
    "SELECT DISTINCT table_schema, table_name, collation_name FROM information_schema.columns"
    " WHERE collation_name IS NOT NULL"
)
_USED_ENGINES = (
    "SELECT table_schema, table_name, engine FROM information_schema.tables"
    " WHERE table_type = 'BASE TABLE' AND engine IS NOT NULL"
)
_KAFKA_TIMEOUT_S = 8.0
_CONNECT_TIMEOUT_S = 2  # for checks that a server which does not answer only leaves out


def preflight(config: Config, file: Path) -> Preflight:
    """Check everything that the configuration of ``file`` names."""
    log_id, of_kafka = _of_kafka(config)
    upstream, found = _of_upstream(config)
    copied, of_copy = _of_first_copy(config, log_id)
    results = [*secret_findings(file, config), *found, *of_copy]
    results += [*relay_findings(config.relay.dir), *of_kafka]
    if log_id == "":
        results += _of_log_start(config)
    elif log_id is not None:
        results += _of_new_channels(config)
    for one in targets(config):
        found = _of_target(one, upstream, channels_of(config, one), log_id, copied)
        # Findings about a channel's own target name the channel.
        results += found if one is config else [replace(each, part=_named(config, one)) for each in found]
    return Preflight((*results, *consumer_findings(config.consumer.checkpoint_dir)))


def producer_results(config: Config) -> list[Result]:
    """Return the results for ``tailrace produce``, without slow checks."""
    _, results = _of_upstream(config, quick=True, features=False)
    log_id, found = _of_kafka(config)
    results += [*_of_first_copy(config, log_id)[1], *relay_findings(config.relay.dir), *found]
    if config.target is not None and files_target(config) is None:
        results += _loops(config, [Scope(config.tables.include, config.tables.exclude)], log_id)
    return results


def consumer_results(config: Config, channel: str) -> list[Result]:
    """Return the results for ``tailrace consume`` of a channel; of the upstream, only settings that both must share."""
    own = config.for_channel(channel)
    own = own.model_copy(update={"consumer": own.consumer.model_copy(update={"channel": channel})})
    upstream = _of_upstream(own, quick=True)[0] if own.source is not None else None
    log_id, results = _of_kafka(own)
    copied, _ = _of_first_copy(own, log_id)
    results += _of_target(own, upstream, [channel_rules(config, channel)], log_id, copied)
    return [*results, *consumer_findings(config.consumer.checkpoint_dir)]


def _of_upstream(
    config: Config, *, quick: bool = False, features: bool = True
) -> tuple[UpstreamFacts | None, list[Result]]:
    try:
        facts = read_upstream(config, quick=quick, features=features)
    except TailraceError as error:
        return None, _unreachable("upstream", error, "binlog settings, privileges, retention")
    return facts, upstream_findings(facts)


def _of_first_copy(config: Config, log_id: str | None) -> tuple[list[QualifiedName], list[Result]]:
    """Return the tables that the log will begin with copies of, and the findings about that; nothing without copies."""
    if not copies_first(config, log_id):
        return [], []
    try:
        facts = read_source(config)
    except TailraceError:
        # The findings about the upstream say so.
        return [], []
    return [table.name for table in facts.tables or ()], source_findings(facts)


def _of_kafka(config: Config) -> tuple[str | None, list[Result]]:
    """Return the log's id (empty without a log, None if unknown) and the findings."""
    try:
        results, last = kafka_findings(read_kafka(config)), last_epoch(config)
    except TailraceError as error:
        return None, _unreachable("kafka", error, "limits, topics")
    return "" if last is None else last.log_id, results


def _of_log_start(config: Config) -> list[Result]:
    """Return findings about the transactions before the start of a new log."""
    try:
        before, why = _log_start(config)
    except TailraceError as error:
        if isinstance(error, LoginRefused) or (isinstance(error, UpstreamError) and error.retryable):
            return [NotChecked("kafka", "log_begins", "the upstream cannot be reached")]
        return [Finding("block", "kafka", "log_begins", error.message, error.hint)]
    if why == ORIGIN:
        return [Finding("ok", "kafka", "log_begins", "the log will contain everything ever written upstream")]
    if why == COPY:
        return [Finding("ok", "kafka", "log_begins", "the log will begin with a copy of the tables")]
    remedy = "start the producer, copy the upstream's data to the downstream, and start the channel with"
    remedy += " `--from gtid:SET`, the GTID set of the copy"
    what = f"the log will start after {before} ({why}): it will not contain what was written before"
    return [Finding("warn", "kafka", "log_begins", what, remedy)]


def _of_new_channels(config: Config) -> list[Result]:
    """Return from where a new channel could begin, as the topics are now."""
    log = LogReader(log_address(config.kafka))
    try:
        copied, first, has_first_rows = complete_copy(log), first_kept(log).record, log.has_first_rows()
    except TailraceError as error:
        return [NotChecked("kafka", "new_channels", error.message)]
    began = copied.record.epoch if copied is not None else None
    found = NewChannels.of(first, began, has_first_rows=has_first_rows)
    if found.begin is None:
        return [Finding("warn", "kafka", "new_channels", found.text, "run `tailrace copy --all`")]
    return [Finding("ok", "kafka", "new_channels", found.text)]


def _log_start(config: Config) -> tuple[str, str]:
    """Return the GTID set or position before the log's start, and why it starts there. Raises TailraceError."""
    url, root, relay = source_url(config), config.relay.dir, config.relay
    info = describe(url)
    if root.is_dir() and read_index(root) and (found := initial_position(root, info.flavor)):
        return str(found.executed) or str(found.position), found.log_begins
    tables = TableFilter(config.tables.include, config.tables.exclude, folds=info.folds)
    position = config.source.start if config.source else "copy"
    start = MirrorStart(relay.relay_binlog_gtid, relay.relay_binlog_name, position, tables=tables)
    begin = choose_start(url, info, start)
    return begin.gtid_set or f"{begin.file}:{begin.pos}", begin.log_begins


def _named(config: Config, own: Config) -> Part:
    names = [name for name in config.channel if config.for_channel(name).target == own.target]
    return f"downstream of {', '.join(names)}"


def _of_target(
    config: Config,
    upstream: UpstreamFacts | None,
    channels: list[ConsumerConfig],
    log_id: str | None,
    copied: Sequence[QualifiedName],
) -> list[Result]:
    try:
        if (files := files_target(config)) is not None:
            return folder_findings(files)
        found = downstream_findings(read_downstream(config, upstream, channels))
        found += channel_findings(read_channels(config, channels, log_id))
        found += _of_copy_target(config, upstream, channels, copied) if copied else []
    except TailraceError as error:
        return _unreachable("downstream", error, "privileges, GTIDs, settings")
    return found + _loops(config, [one.scope for one in channels], log_id)


def _of_copy_target(
    config: Config,
    upstream: UpstreamFacts | None,
    channels: list[ConsumerConfig],
    copied: Sequence[QualifiedName],
) -> list[Result]:
    """Return findings about what is downstream in the place of the copied tables."""
    with servers.asking(target_url(config), "downstream") as connection:
        folds = servers.variables(connection).get("lower_case_table_names", "0") != "0"
        keys, rules = [one.key for one in channels], _rules(channels, upstream, folds=folds)
        found = servers.attempt(lambda: read_targets(connection, list(zip(keys, rules, strict=True)), copied))
    return target_findings(found)


def _loops(config: Config, scopes: list[Scope], log_id: str | None) -> list[Result]:
    try:
        return loop_findings(read_loops(config, scopes, log_id or ""))
    except TailraceError as error:
        return [NotChecked("downstream", "loops", f"one of the servers did not answer: {error.message}")]


def _unreachable(part: Part, error: TailraceError, rest: str) -> list[Result]:
    found = Finding("block", part, "reachable", error.message, error.hint, passes=True)
    return [found, NotChecked(part, "settings", f"not checked: {rest}")]


def read_upstream(config: Config, *, quick: bool = False, features: bool = True) -> UpstreamFacts:
    """Read the upstream's facts. Raises UpstreamError if it cannot be reached.

    Args:
        quick: leave out facts that only cause warnings and take long to read if there are many tables.
        features: also read the collations and engines that a downstream must have.
    """
    url = source_url(config)
    options = {"connect_timeout": _CONNECT_TIMEOUT_S} if quick else {}
    with servers.asking(url, "upstream", **options) as connection:
        mariadb = servers.is_mariadb(connection)
        names = servers.attempt(lambda: _replica_ids(connection, mariadb))
        tables = TableFilter(config.tables.include, config.tables.exclude)
        columns = servers.attempt(lambda: _columns(connection, tables)) if features else None
        return UpstreamFacts(
            mariadb,
            str(servers.rows(connection, "SELECT VERSION()")[0][0]),
            servers.variables(connection),
            read_privileges(_session(connection, mariadb)),
            upstream_reach(tables, columns or ()),
            server_id(config),
            names,
            None if quick else servers.attempt(lambda: _count(connection, _KEYLESS)),
            None if quick else servers.attempt(lambda: _count(connection, _NOT_TRANSACTIONAL)),
            servers.attempt(lambda: _count(connection, _CASES)),
            _read_features(connection, tables) if features else NO_FEATURES,
            columns,
            Encryption.of(url, tls_of(connection)),
        )


def read_channels(config: Config, channels: list[ConsumerConfig], log_id: str | None) -> ChannelFacts:
    """Read the downstream's channels. Raises DownstreamError if it cannot be reached."""
    url = target_url(config)
    with servers.asking(url, "downstream") as connection:
        return ChannelFacts(
            {one.key: one.scope for one in channels},
            log_id,
            servers.attempt(lambda: channels_on(connection)),
            frozenset(tables_of(connection)),
        )


def read_downstream(
    config: Config, upstream: UpstreamFacts | None, channels: Sequence[ConsumerConfig]
) -> DownstreamFacts:
    """Read the downstream's facts. Raises DownstreamError if it cannot be reached.

    Args:
        channels: the channels that write to it.
    """
    url = target_url(config)
    with servers.asking(url, "downstream") as connection:
        session = _session(connection, servers.is_mariadb(connection))
        variables = servers.variables(connection)
        columns = (upstream.columns if upstream else None) or {}
        each = _rules(channels, upstream, folds=variables.get("lower_case_table_names", "0") != "0")
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
            _read_features(connection),
            upstream.features if upstream else NO_FEATURES,
            servers.attempt(
                lambda: read_programs(session, account, each, upstream.columns if upstream else None)
            ),
            Encryption.of(url, tls_of(connection)),
            servers.attempt(lambda: _nontransactional(session, each)),
        )


def _session(connection: Connection[Any], mariadb: bool) -> Session:
    version = str(servers.rows(connection, "SELECT VERSION()")[0][0])
    return Session(connection, "mariadb" if mariadb else "mysql", version_of(version), 0)


def _rules(channels: Sequence[ConsumerConfig], upstream: UpstreamFacts | None, *, folds: bool) -> list[Rules]:
    """Return the channels' rules, with names in the letter case of their servers."""
    if upstream is not None and upstream.variables.get("lower_case_table_names", "0") != "0":
        channels = list(map(in_lower_case, channels))
    return [replace(one, folded=() if folds else None).rules for one in channels]


def _read_features(connection: Connection[Any], tables: TableFilter | None = None) -> ServerFeatures:
    """Read a server's features.

    Args:
        tables: which tables are replicated; None to leave out the collations and engines in use.
    """

    def names(sql: str) -> frozenset[str]:
        return frozenset(str(name) for (name,) in servers.rows(connection, sql) if name is not None)

    def used(sql: str) -> dict[str, str]:
        assert tables is not None
        rows = servers.rows(connection, sql)
        return {str(name): f"{db}.{table}" for db, table, name in rows if tables.allows(str(db), str(table))}

    zone = "SELECT CONVERT_TZ('2020-01-01 00:00:00', 'UTC', 'Europe/Berlin') IS NOT NULL"
    collations = servers.attempt(lambda: names(_COLLATIONS))
    return ServerFeatures(
        servers.attempt(lambda: bool(servers.rows(connection, zone)[0][0])),
        None
        if collations is None
        else collations | (servers.attempt(lambda: names(_FULL_COLLATIONS)) or frozenset()),
        servers.attempt(lambda: names(_ENGINES)),
        servers.attempt(lambda: used(_USED_COLLATIONS)) if tables is not None else None,
        servers.attempt(lambda: used(_USED_ENGINES)) if tables is not None else None,
    )


def _nontransactional(session: Session, rules: Sequence[Rules]) -> list[Nontransactional]:
    """Return the downstream's tables without transactions that rows may be written to."""
    rows = session.rows(
        "SELECT t.TABLE_SCHEMA, t.TABLE_NAME, t.ENGINE, EXISTS (SELECT 1 FROM information_schema.STATISTICS s"
        " WHERE s.TABLE_SCHEMA = t.TABLE_SCHEMA AND s.TABLE_NAME = t.TABLE_NAME AND s.NON_UNIQUE = 0)"
        " FROM information_schema.TABLES t JOIN information_schema.ENGINES e ON e.ENGINE = t.ENGINE"
        " WHERE t.TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') AND e.TRANSACTIONS <> 'YES'"
        f" AND t.ENGINE <> 'BLACKHOLE' AND t.TABLE_SCHEMA NOT IN {_NOT_OURS}"
    )
    return [
        Nontransactional(f"{db}.{table}", str(engine), bool(keyed))
        for db, table, engine, keyed in rows
        if any(one.may_write_to(str(db), str(table)) for one in rules)
    ]


def _columns(connection: Connection[Any], tables: TableFilter) -> dict[tuple[str, str], frozenset[str]]:
    """Return the columns of the upstream's replicated tables, in lower case."""
    found: dict[tuple[str, str], set[str]] = {}
    for db, table, column in servers.rows(
        connection, "SELECT table_schema, table_name, column_name FROM information_schema.columns"
    ):
        if tables.allows(str(db), str(table)):
            found.setdefault((str(db), str(table)), set()).add(str(column).lower())
    return {name: frozenset(names) for name, names in found.items()}


def read_loops(config: Config, scopes: list[Scope], log_id: str) -> LoopFacts:
    """Read how upstream and downstream replicate to each other. Raises TailraceError if one cannot be reached."""
    source, target = source_url(config), target_url(config)
    with (
        servers.asking(source, "upstream", connect_timeout=_CONNECT_TIMEOUT_S) as up,
        servers.asking(target, "downstream", connect_timeout=_CONNECT_TIMEOUT_S) as down,
    ):
        there, tables = servers.attempt(lambda: channels_on(up)), tables_of(up)
        return LoopFacts(
            is_same_server(up, down) or is_same_cluster(up, down),
            log_id,
            server_identity(down),
            None
            if there is None
            else [one for scope in scopes for one in channels_feeding(there, scope, tables)],
            servers.attempt(lambda: follows(up, down, target)),
            servers.attempt(lambda: follows(down, up, source)),
        )


def _replica_ids(connection: Connection[Any], mariadb: bool) -> list[int]:
    # Neither statement exists in all versions of both flavors.
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
    """Read the brokers' facts. Raises the errors of ``probe_kafka.brokers``."""
    admin, metadata = probe_kafka.brokers(config.kafka.bootstrap_servers, kafka_security(config.kafka))
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
        [future] = admin.describe_configs([resource], request_timeout=_KAFKA_TIMEOUT_S).values()
        return {key: str(entry.value) for key, entry in future.result(_KAFKA_TIMEOUT_S).items()}
    except (KafkaException, TimeoutError):
        return None
