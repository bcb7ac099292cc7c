"""Findings about the upstream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from schemas.counted import counted
from schemas.tables import QualifiedName
from spark_consumer.target.programs.privileges import Privileges
from tailrace.preflight.agreement import NO_FEATURES, ServerFeatures
from tailrace.preflight.encryption import UNENCRYPTED, Encryption, encryption_finding
from tailrace.preflight.finding import Finding, NotChecked, Result, setting, verdict
from tailrace.preflight.grants import Need, Reach, rights_results

_HOUR = 3600
_DAY = 24 * _HOUR
_SHORTEST_RETENTION = 6 * _HOUR


@dataclass(frozen=True)
class UpstreamFacts:
    """What was read from the upstream; None where it could not be.

    Attributes:
        columns: those of the replicated tables, in lower case.
    """

    mariadb: bool
    version: str
    variables: dict[str, str]
    account: Privileges
    reach: Reach
    our_server_id: int
    replica_ids: list[int] | None
    keyless_tables: int | None
    non_transactional_tables: int | None
    only_cases_differ: int | None = None
    features: ServerFeatures = NO_FEATURES
    columns: Mapping[QualifiedName, frozenset[str]] | None = None
    encryption: Encryption = UNENCRYPTED


def upstream_findings(facts: UpstreamFacts) -> list[Result]:
    """Everything that the upstream's settings say."""
    variables = facts.variables
    return [
        Finding("ok", "upstream", "reachable", f"{'MariaDB' if facts.mariadb else 'MySQL'} {facts.version}"),
        encryption_finding("upstream", facts.encryption),
        verdict(
            variables.get("log_bin", "").upper() == "ON",
            "upstream",
            "log_bin",
            "the binlog is on",
            "the binlog is off: there is nothing to replicate",
            "set log_bin in the server's option file and restart it",
            error="TR206",
        ),
        setting("upstream", variables, "binlog_format", ["ROW"], "only rows can be replicated exactly"),
        _row_image(facts),
        setting(
            "upstream",
            variables,
            "binlog_row_metadata",
            ["FULL"],
            "columns are known from tracked structures only, and DDL that cannot be followed stops the producer",
            level="warn",
        ),
        *_gtids(facts),
        _retention(variables),
        setting(
            "upstream",
            variables,
            "binlog_checksum",
            ["CRC32"],
            "damage on the way would go unnoticed",
            level="warn",
        ),
        *_server_id(facts),
        *_rights(facts),
        *_tables(facts),
    ]


def _row_image(facts: UpstreamFacts) -> Result:
    # What FULL_NODUP lacks is in its before images.
    whole = ["FULL", "FULL_NODUP"]
    why = "rows that lack columns are applied one by one, and"
    why += (
        " REPLACE stops the producer, as does what triggers change in INSERT ... ON DUPLICATE KEY UPDATE"
        if facts.mariadb
        else " an INSERT that leaves a column of the key to its default stops the producer"
    )
    return setting("upstream", facts.variables, "binlog_row_image", whole, why, level="warn")


def _gtids(facts: UpstreamFacts) -> list[Result]:
    if facts.mariadb:
        return [Finding("ok", "upstream", "gtid_mode", "MariaDB writes GTIDs always")]
    why = "positions are file and offset, which do not survive a failover"
    return [setting("upstream", facts.variables, "gtid_mode", ["ON"], why, level="warn")]


def _retention(variables: dict[str, str]) -> Result:
    days = variables.get("expire_logs_days", "0")
    text = variables.get("binlog_expire_logs_seconds")
    seconds = int(float(text or 0)) or int(float(days) * _DAY)
    if text is None and "expire_logs_days" not in variables:
        return NotChecked("upstream", "retention", "the server does not say how long it keeps binlogs")
    if not seconds:
        return Finding("ok", "upstream", "retention", "binlogs are kept until somebody purges them")
    return verdict(
        seconds >= _SHORTEST_RETENTION,
        "upstream",
        "retention",
        f"binlogs are kept {seconds / _HOUR:g} hours",
        f"binlogs are kept {seconds / _HOUR:g} hours only: a producer that is down longer loses its way",
        f"SET GLOBAL binlog_expire_logs_seconds = {3 * _DAY}",
        "warn",
    )


def _server_id(facts: UpstreamFacts) -> list[Result]:
    ours, theirs = facts.our_server_id, facts.variables.get("server_id", "0")
    remedy = "set [source] server-id to a number that no server and no other replica has"
    if str(ours) == theirs:
        what = f"server-id {ours} is the upstream's own"
        return [Finding("block", "upstream", "server-id", what, remedy, error="TR210")]
    if facts.replica_ids is None:
        return [NotChecked("upstream", "server-id", "the account may not list the upstream's replicas")]
    what = f"a replica with server-id {ours} is connected: our own producer, or one that it would disconnect"
    free = f"server-id {ours} is free"
    return [verdict(ours not in facts.replica_ids, "upstream", "server-id", free, what, remedy, "warn")]


def _rights(facts: UpstreamFacts) -> list[Result]:
    name = " (MariaDB shows REPLICATION CLIENT as BINLOG MONITOR)" if facts.mariadb else ""
    rights = ("REPLICATION SLAVE", "REPLICATION CLIENT")
    binlog = Need("privileges", rights, f"the binlog cannot be read without{name}", error="TR202")
    why = "structures and `tailrace compare` are read with it"
    return rights_results(
        "upstream", facts.account, [binlog, Need("select", ("SELECT",), why, "table", "warn")], facts.reach
    )


def _tables(facts: UpstreamFacts) -> list[Result]:
    if facts.keyless_tables is None or facts.non_transactional_tables is None:
        return [NotChecked("upstream", "tables", "the tables could not be listed")]
    results: list[Result] = []
    if facts.keyless_tables:
        what = f"without a primary or NOT NULL unique key: {counted(facts.keyless_tables, 'table')}, each of whose"
        what += " rows is matched by all its values, one by one"
        results.append(Finding("warn", "upstream", "keys", what, "give them a primary key"))
    if facts.non_transactional_tables:
        what = f"not transactional: {counted(facts.non_transactional_tables, 'table')}, and what a rollback leaves"
        what += " there stays"
        results.append(Finding("warn", "upstream", "engines", what, "ALTER TABLE … ENGINE=InnoDB"))
    return results or [Finding("ok", "upstream", "tables", "all tables have a key and transactions")]
