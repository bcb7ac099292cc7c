"""Findings about the downstream."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tailrace.preflight.agreement import NO_KIT, Kit, agreement_findings
from tailrace.preflight.finding import Finding, Level, NotChecked, Result, setting, verdict
from tailrace.preflight.grants import rights_result, scoped_rights_result

_MIN_PACKET = 16 << 20
_DATA_RIGHTS = ["SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "ALTER", "INDEX", "REFERENCES"]
_PROGRAM_RIGHTS = ["CREATE VIEW", "CREATE ROUTINE", "ALTER ROUTINE", "EVENT"]


@dataclass(frozen=True)
class DownstreamFacts:
    """What was read from the downstream, and of the upstream what both must agree on (None if unknown)."""

    mariadb: bool
    version: str
    variables: dict[str, str]
    grants: list[str]
    upstream_mariadb: bool | None
    upstream_variables: dict[str, str] | None
    only_cases_differ: int | None = None
    kit: Kit = NO_KIT
    upstream_kit: Kit = NO_KIT


def downstream_findings(facts: DownstreamFacts) -> list[Result]:
    """Everything that the downstream's settings say."""
    variables = facts.variables
    return [
        Finding(
            "ok", "downstream", "reachable", f"{'MariaDB' if facts.mariadb else 'MySQL'} {facts.version}"
        ),
        scoped_rights_result(
            "downstream",
            "privileges",
            facts.grants,
            _DATA_RIGHTS,
            "rows and tables are written, schema tailrace too",
        ),
        *_programs(facts),
        *_ledger(facts),
        _read_only(variables),
        setting("downstream", variables, "default_storage_engine", ["INNODB"], "only it has transactions"),
        _packet(variables),
        *_agreement(facts),
    ]


def _programs(facts: DownstreamFacts) -> list[Result]:
    """Whether views, routines and events can be made as the upstream has them."""
    definer = "SET USER" if facts.mariadb else "SET_ANY_DEFINER"
    why = 'views, routines and events cannot be made; or set "ignore" for them in [ddl]'
    wanted = [*_PROGRAM_RIGHTS, definer]
    result = scoped_rights_result("downstream", "programs", facts.grants, wanted, why)
    if isinstance(result, Finding) and result.level == "block":
        result = replace(result, level="warn")
    trusted = facts.variables.get("log_bin_trust_function_creators", "ON").upper() in ("ON", "1")
    if trusted or facts.variables.get("log_bin", "").upper() != "ON":
        return [result]
    what = "log_bin_trust_function_creators is OFF: CREATE FUNCTION may be refused"
    remedy = 'SET GLOBAL log_bin_trust_function_creators = ON, or [ddl] routines = "ignore"'
    return [result, Finding("warn", "downstream", "functions", what, remedy)]


def _ledger(facts: DownstreamFacts) -> list[Result]:
    """Whether the server's own GTIDs can prove what was applied; otherwise an intent row has to do."""
    variables = facts.variables
    on = variables.get("log_bin", "").upper() == "ON"
    if not facts.mariadb:
        on = on and variables.get("gtid_mode", "").upper() == "ON"
    name = "log_bin" if facts.mariadb else "gtid_mode"
    if not on:
        what = (
            f"{name} is not ON: after a crash within a DDL the tables' structure has to decide if it happened"
        )
        return [Finding("warn", "downstream", "ledger", what, f"set {name} = ON in the server's option file")]
    if facts.mariadb:
        wanted = ["BINLOG ADMIN", "BINLOG REPLAY"]
    else:
        wanted = ["REPLICATION_APPLIER", "SESSION_VARIABLES_ADMIN"]
    why = "the channel's GTIDs, which prove what was applied, cannot be set without"
    result = rights_result("downstream", "ledger", facts.grants, wanted, why)
    if isinstance(result, Finding) and result.level == "block":
        return [Finding("warn", "downstream", "ledger", result.what, result.remedy)]
    return [result]


def _read_only(variables: dict[str, str]) -> Result:
    on = [
        name
        for name in ("read_only", "super_read_only")
        if variables.get(name, "OFF").upper() not in {"OFF", "0"}
    ]
    remedy = "SET GLOBAL read_only = OFF, or give the account the right to write all the same"
    what = f"{' and '.join(on)} is on: the account may not be able to write"
    level: Level = "block" if "super_read_only" in on else "warn"
    return verdict(not on, "downstream", "read_only", "the server takes writes", what, remedy, level)


def _packet(variables: dict[str, str]) -> Result:
    size = int(variables.get("max_allowed_packet", "0"))
    if not size:
        return NotChecked("downstream", "max_allowed_packet", "the server has no such variable")
    mib = f"max_allowed_packet is {size / (1 << 20):g} MiB"
    remedy = f"SET GLOBAL max_allowed_packet = {64 << 20}"
    good = size >= _MIN_PACKET
    return verdict(
        good, "downstream", "max_allowed_packet", mib, f"{mib}: large rows do not fit", remedy, "warn"
    )


def _agreement(facts: DownstreamFacts) -> list[Result]:
    if facts.upstream_variables is None or facts.upstream_mariadb is None:
        return [NotChecked("downstream", "agreement", "the upstream's settings are not known")]
    results: list[Result] = []
    if facts.upstream_mariadb != facts.mariadb:
        what = "upstream and downstream are of different flavours: DDL that only one of them knows stops the channel"
        results.append(
            Finding("warn", "downstream", "flavor", what, "keep to statements that both understand")
        )
    results.append(_letter_cases(facts, facts.upstream_variables))
    return results + agreement_findings(
        facts.upstream_variables, facts.variables, facts.upstream_kit, facts.kit
    )


def _letter_cases(facts: DownstreamFacts, upstream: dict[str, str]) -> Result:
    name = "lower_case_table_names"
    ours, theirs = (v.get(name, "0") for v in (facts.variables, upstream))
    if ours == theirs or theirs != "0":
        fine = (
            "both servers treat names' letters alike"
            if ours == theirs
            else "all names are in lower case here"
        )
        return Finding("ok", "downstream", name, fine)
    what = (
        f"{name} is 0 upstream and {ours} here: names that differ in their letters' cases only are one here"
    )
    if not facts.only_cases_differ:
        return Finding(
            "warn", "downstream", name, what, "initialise the downstream with the upstream's value"
        )
    return Finding(
        "block",
        "downstream",
        name,
        f"{what}, and {facts.only_cases_differ} names upstream do so",
        "initialise the downstream with the upstream's value, or give those tables other names with [[routes]]",
    )
