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
from tailrace.preflight.grants import ReplicatedObjects, RequiredRights, rights_results

_HOUR = 3600
_DAY = 24 * _HOUR
_SHORTEST_RETENTION = 6 * _HOUR


@dataclass(frozen=True)
class UpstreamFacts:
    """Facts about the upstream; None if a fact could not be read.

    Attributes:
        columns: the columns of the replicated tables, in lower case.
    """

    mariadb: bool
    version: str
    variables: dict[str, str]
    account: Privileges
    reach: ReplicatedObjects
    our_server_id: int
    replica_ids: list[int] | None
    keyless_tables: int | None
    non_transactional_tables: int | None
    only_cases_differ: int | None = None
    features: ServerFeatures = NO_FEATURES
    columns: Mapping[QualifiedName, frozenset[str]] | None = None
    encryption: Encryption = UNENCRYPTED


def upstream_findings(facts: UpstreamFacts) -> list[Result]:
    """Return all findings about the upstream."""
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
        setting("upstream", variables, "binlog_format", ["ROW"], "only row events can be replicated exactly"),
        _row_image(facts),
        setting(
            "upstream",
            variables,
            "binlog_row_metadata",
            ["FULL"],
            "columns are known only from tracked structures, and DDL that cannot be tracked stops the producer",
            level="warn",
        ),
        *_gtids(facts),
        _retention(variables),
        setting(
            "upstream",
            variables,
            "binlog_checksum",
            ["CRC32"],
            "transmission errors would not be detected",
            level="warn",
        ),
        *_server_id(facts),
        *_rights(facts),
        *_tables(facts),
    ]


def _row_image(facts: UpstreamFacts) -> Result:
    # FULL_NODUP omits from after images only columns that the before image has.
    whole = ["FULL", "FULL_NODUP"]
    why = "rows with missing columns are applied one by one, and"
    why += (
        " REPLACE stops the producer, and so do triggers on INSERT ... ON DUPLICATE KEY UPDATE that change columns"
        if facts.mariadb
        else " an INSERT that omits a column of the key stops the producer"
    )
    return setting("upstream", facts.variables, "binlog_row_image", whole, why, level="warn")


def _gtids(facts: UpstreamFacts) -> list[Result]:
    if facts.mariadb:
        return [Finding("ok", "upstream", "gtid_mode", "MariaDB always writes GTIDs")]
    why = "positions are file and offset, which are not valid after a failover"
    return [setting("upstream", facts.variables, "gtid_mode", ["ON"], why, level="warn")]


def _retention(variables: dict[str, str]) -> Result:
    days = variables.get("expire_logs_days", "0")
    text = variables.get("binlog_expire_logs_seconds")
    seconds = int(float(text or 0)) or int(float(days) * _DAY)
    if text is None and "expire_logs_days" not in variables:
        return NotChecked("upstream", "retention", "the server has no variable for how long it keeps binlogs")
    if not seconds:
        return Finding("ok", "upstream", "retention", "binlogs are kept until they are purged by hand")
    return verdict(
        seconds >= _SHORTEST_RETENTION,
        "upstream",
        "retention",
        f"binlogs are kept {seconds / _HOUR:g} hours",
        f"binlogs are kept only {seconds / _HOUR:g} hours: a producer that is stopped for longer cannot continue",
        f"SET GLOBAL binlog_expire_logs_seconds = {3 * _DAY}",
        "warn",
    )


def _server_id(facts: UpstreamFacts) -> list[Result]:
    ours, theirs = facts.our_server_id, facts.variables.get("server_id", "0")
    remedy = "set [source] server-id to a number that no other server or replica uses"
    if str(ours) == theirs:
        what = f"server-id {ours} is the server_id of the upstream"
        return [Finding("block", "upstream", "server-id", what, remedy, error="TR210")]
    if facts.replica_ids is None:
        return [NotChecked("upstream", "server-id", "the account may not list the upstream's replicas")]
    what = (
        f"a replica with server-id {ours} is connected: this producer, or a replica that it would disconnect"
    )
    free = f"server-id {ours} is free"
    return [verdict(ours not in facts.replica_ids, "upstream", "server-id", free, what, remedy, "warn")]


def _rights(facts: UpstreamFacts) -> list[Result]:
    name = " (MariaDB shows REPLICATION CLIENT as BINLOG MONITOR)" if facts.mariadb else ""
    rights = ("REPLICATION SLAVE", "REPLICATION CLIENT")
    binlog = RequiredRights(
        "privileges", rights, f"the binlog cannot be read without them{name}", error="TR202"
    )
    why = "structures and `tailrace compare` cannot be read without it"
    return rights_results(
        "upstream",
        facts.account,
        [binlog, RequiredRights("select", ("SELECT",), why, "table", "warn")],
        facts.reach,
    )


def _tables(facts: UpstreamFacts) -> list[Result]:
    if facts.keyless_tables is None or facts.non_transactional_tables is None:
        return [NotChecked("upstream", "tables", "the tables could not be listed")]
    results: list[Result] = []
    if facts.keyless_tables:
        what = f"{counted(facts.keyless_tables, 'table')} without a primary or NOT NULL unique key: rows are found"
        what += " one by one, by all their values"
        results.append(Finding("warn", "upstream", "keys", what, "give them a primary key"))
    if facts.non_transactional_tables:
        what = f"{counted(facts.non_transactional_tables, 'table')} without transactions: a rollback does not undo"
        what += " changes of their rows"
        results.append(Finding("warn", "upstream", "engines", what, "ALTER TABLE … ENGINE=InnoDB"))
    return results or [Finding("ok", "upstream", "tables", "all tables have a key and transactions")]
