"""Findings about the downstream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spark_consumer.apply.side_writes import SideWrite
from spark_consumer.target.programs.privileges import Privileges
from tailrace.preflight.agreement import NO_FEATURES, ServerFeatures, agreement_findings
from tailrace.preflight.encryption import UNENCRYPTED, Encryption, encryption_finding
from tailrace.preflight.finding import Finding, Level, NotChecked, Result, verdict
from tailrace.preflight.grants import ReplicatedObjects, RequiredRights, rights_results

_DATA = RequiredRights(
    "privileges",
    ("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "ALTER", "INDEX", "REFERENCES"),
    "the channel writes rows and tables, also in schema tailrace",
    "table",
    error="TR641",
)
_TRIGGERS = RequiredRights(
    "triggers", ("TRIGGER",), "triggers that write rows a second time cannot be seen (TR658)", "table"
)
_EVENTS = RequiredRights(
    "events",
    ("EVENT",),
    "events that write rows a second time cannot be seen (TR658), and the upstream's cannot be created",
    "schema",
    beyond="events of other databases that write to these cannot be seen",
)
_PROGRAMS = RequiredRights(
    "programs",
    ("CREATE VIEW", "CREATE ROUTINE", "ALTER ROUTINE"),
    'views and routines cannot be created; "ignore" for them in [ddl] leaves them out',
    "schema",
    "warn",
)
_VIEWS = RequiredRights(
    "views",
    ("SHOW VIEW",),
    "views cannot be read after a crash, or if a trigger writes through them (TR657)",
    "schema",
    "warn",
)
_ROUTINES = RequiredRights(
    "routines",
    ("EXECUTE",),
    "views that call functions are refused, and routines that triggers call cannot be read (TR657)",
    "schema",
    "warn",
)
_TEMPORARY = RequiredRights(
    "temporary_tables",
    ("CREATE TEMPORARY TABLES",),
    "routines and statements of `tailrace error replace` that use a temporary table are refused",
    "schema",
    "warn",
)


def _definers(mariadb: bool, version: tuple[int, ...]) -> RequiredRights:
    if mariadb:
        rights: tuple[str, ...] = ("SET USER",) if version >= (10, 5) else ("SUPER",)
    elif version >= (8, 2):
        rights = ("SET_ANY_DEFINER", "ALLOW_NONEXISTENT_DEFINER", "SYSTEM_USER")
    else:
        rights = ("SET_USER_ID", "SYSTEM_USER") if version >= (8, 0, 16) else ("SUPER",)
    why = "views, routines and events of other or missing accounts stop the channel (TR620)"
    return RequiredRights(
        "definers", rights, f'{why}; "ignore" for them in [ddl] leaves them out', "server", "warn"
    )


def _ledger_rights(mariadb: bool, version: tuple[int, ...]) -> RequiredRights:
    if mariadb:
        rights: tuple[str, ...] = ("BINLOG ADMIN", "BINLOG REPLAY") if version >= (10, 5, 2) else ("SUPER",)
    else:
        rights = ("REPLICATION_APPLIER", "SESSION_VARIABLES_ADMIN") if version >= (8, 0, 18) else ("SUPER",)
    why = "the channel's GTIDs, which prove what was applied, cannot be set"
    return RequiredRights("ledger", rights, why, "server", "warn")


_MONITOR = RequiredRights(
    "monitor",
    ("REPLICATION CLIENT",),
    "the positions of the downstream's own binlog and its replicas cannot be read",
    "server",
    "warn",
)


_SESSION = RequiredRights(
    "session",
    ("SESSION_VARIABLES_ADMIN",),
    "session settings of the upstream that a DDL depends on are refused (TR625)",
    "server",
    "warn",
)
_IDENTITIES = RequiredRights(
    "identities",
    ("PROCESS",),
    "InnoDB's table ids cannot be read, so after a crash during EXCHANGE PARTITION, or RENAME of identical tables, an"
    " operator must decide whether it was executed (TR621)",
    "server",
    "warn",
)
_MIN_PACKET = 16 << 20


@dataclass(frozen=True)
class Programs:
    """Triggers and events of a downstream that interfere with replication.

    Attributes:
        side_writes: triggers and events that change replicated rows, or may change them.
        overwriting_triggers: BEFORE triggers that set replicated columns: trigger, table and columns. There are no
            columns if the upstream's are unknown.
    """

    side_writes: Sequence[SideWrite] = ()
    overwriting_triggers: Sequence[tuple[str, str, tuple[str, ...]]] = ()


@dataclass(frozen=True)
class Nontransactional:
    """A replicated table without transactions; ``keyed``: whether it has a unique key."""

    table: str
    engine: str
    keyed: bool


@dataclass(frozen=True)
class DownstreamFacts:
    """Facts about the downstream, and the upstream's settings that both must share (None if unknown)."""

    mariadb: bool
    version: str
    variables: dict[str, str]
    account: Privileges
    reach: ReplicatedObjects
    upstream_mariadb: bool | None
    upstream_variables: dict[str, str] | None
    only_cases_differ: int | None = None
    features: ServerFeatures = NO_FEATURES
    upstream_features: ServerFeatures = NO_FEATURES
    programs: Programs | None = None
    encryption: Encryption = UNENCRYPTED
    nontransactional: Sequence[Nontransactional] | None = None


def downstream_findings(facts: DownstreamFacts) -> list[Result]:
    """Return all findings about the downstream."""
    variables = facts.variables
    return [
        Finding(
            "ok", "downstream", "reachable", f"{'MariaDB' if facts.mariadb else 'MySQL'} {facts.version}"
        ),
        encryption_finding("downstream", facts.encryption),
        *_rights(facts),
        *_programs(facts),
        _nontransactional(facts),
        *_functions(facts),
        *_ledger(facts),
        _read_only(variables),
        _packet(variables),
        *_agreement(facts),
    ]


def _rights(facts: DownstreamFacts) -> list[Result]:
    version = version_of(facts.version)
    needs = [_DATA, _TRIGGERS, _EVENTS, _PROGRAMS, _VIEWS, _ROUTINES, _TEMPORARY]
    needs.append(_definers(facts.mariadb, version))
    needs += [] if facts.mariadb else [_MONITOR, *([_SESSION] if version >= (8, 0, 14) else [])]
    # With MySQL's GTIDs the ids are not needed.
    needs += [_IDENTITIES] if facts.mariadb or not _has_gtids(facts) else []
    return rights_results("downstream", facts.account, needs, facts.reach)


def version_of(text: str) -> tuple[int, ...]:
    """Return a server's version as numbers: (11, 4, 5) for ``11.4.5-MariaDB-log``."""
    return tuple(int(part) for part in text.split("-", 1)[0].split(".") if part.isdigit())


def _programs(facts: DownstreamFacts) -> Iterator[Result]:
    """Yield findings about triggers and events that write to replicated tables."""
    code, fine = "side_writes", "no trigger or enabled event changes replicated rows"
    if facts.programs is None:
        yield NotChecked("downstream", code, "triggers and events could not be listed")
        return
    for one in facts.programs.side_writes:
        what = f"{one.shown} may change replicated rows, and the log has these changes too: {one.why} (TR657)"
        yield Finding("block", "downstream", code, what, one.remedy)
    for trigger, table, columns in facts.programs.overwriting_triggers:
        which = ", ".join(columns) or "columns that the upstream has"
        what = f"the BEFORE trigger {trigger} on {table} may set {which} (TR653)"
        remedy = f"DROP TRIGGER {trigger} on the downstream, or change it to set only columns that the upstream lacks"
        yield Finding("block" if columns else "warn", "downstream", code, what, remedy)
    if not facts.programs.side_writes and not facts.programs.overwriting_triggers:
        yield Finding("ok", "downstream", code, fine)


def _nontransactional(facts: DownstreamFacts) -> Result:
    """Return a finding about tables whose rows cannot be rolled back."""
    code, fine = "nontransactional", "all replicated tables have transactions"
    if facts.nontransactional is None:
        return NotChecked("downstream", code, "the tables could not be listed")
    found = sorted(facts.nontransactional, key=lambda one: (one.keyed, one.table))
    if not found:
        return Finding("ok", "downstream", code, fine)
    first = found[0]
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    remedy = f"ALTER TABLE {first.table} ENGINE=InnoDB on the downstream"
    remedy += ', and [ddl] engines = "innodb" for later tables'
    if not first.keyed:
        what = f"{first.table}{more} ({first.engine}) has neither transactions nor a unique key"
        return Finding("block", "downstream", code, f"{what}: its rows stop the channel (TR656)", remedy)
    what = f"{first.table}{more} ({first.engine}) has no transactions: its rows are written one by one, and readers see"
    what += " them before the transaction's other rows"
    if any(one.engine.upper() == "MEMORY" for one in found):
        what += "; MEMORY is empty after a restart of the downstream"
    return Finding("warn", "downstream", code, what, remedy)


def _functions(facts: DownstreamFacts) -> list[Result]:
    trusted = facts.variables.get("log_bin_trust_function_creators", "ON").upper() in ("ON", "1")
    if trusted or facts.variables.get("log_bin", "").upper() != "ON":
        return []
    what = "log_bin_trust_function_creators is OFF: CREATE FUNCTION may be refused"
    remedy = 'SET GLOBAL log_bin_trust_function_creators = ON, or [ddl] routines = "ignore"'
    return [Finding("warn", "downstream", "functions", what, remedy)]


def _ledger(facts: DownstreamFacts) -> list[Result]:
    """Return findings on whether the server's GTIDs can prove what was applied."""
    name = "log_bin" if facts.mariadb else "gtid_mode"
    if not _has_gtids(facts):
        what = (
            f"{name} is not ON: after a crash during a DDL only the tables can show whether it was executed"
        )
        return [Finding("warn", "downstream", "ledger", what, f"set {name} = ON in the server's option file")]
    need = _ledger_rights(facts.mariadb, version_of(facts.version))
    return rights_results("downstream", facts.account, [need], facts.reach)


def _has_gtids(facts: DownstreamFacts) -> bool:
    variables = facts.variables
    on = variables.get("log_bin", "").upper() == "ON"
    return on and (facts.mariadb or variables.get("gtid_mode", "").upper() == "ON")


def _read_only(variables: dict[str, str]) -> Result:
    on = [
        name
        for name in ("read_only", "super_read_only")
        if variables.get(name, "OFF").upper() not in {"OFF", "0"}
    ]
    remedy = "SET GLOBAL read_only = OFF, or grant the account CONNECTION_ADMIN (MySQL) or READ ONLY ADMIN (MariaDB)"
    what = f"{' and '.join(on)} is on: the account may not be able to write"
    level: Level = "block" if "super_read_only" in on else "warn"
    return verdict(
        not on, "downstream", "read_only", "the server accepts writes", what, remedy, level, passes=True
    )


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
        return [NotChecked("downstream", "agreement", "the upstream's settings are unknown")]
    results: list[Result] = []
    if facts.upstream_mariadb != facts.mariadb:
        what = "upstream and downstream have different flavors: DDL that only one of them supports stops the channel"
        results.append(Finding("warn", "downstream", "flavor", what, "use only statements that both support"))
    results.append(_letter_cases(facts, facts.upstream_variables))
    return results + agreement_findings(
        facts.upstream_variables, facts.variables, facts.upstream_features, facts.features
    )


def _letter_cases(facts: DownstreamFacts, upstream: dict[str, str]) -> Result:
    name = "lower_case_table_names"
    ours, theirs = (v.get(name, "0") for v in (facts.variables, upstream))
    if ours == theirs or theirs != "0":
        fine = (
            "both servers treat letter case in names alike"
            if ours == theirs
            else "the downstream has all names in lower case"
        )
        return Finding("ok", "downstream", name, fine)
    what = f"{name} is 0 upstream and {ours} downstream: there names that differ only in letter case are the same"
    if not facts.only_cases_differ:
        return Finding(
            "warn", "downstream", name, what, "initialize the downstream with the upstream's value"
        )
    return Finding(
        "block",
        "downstream",
        name,
        f"{what}, and the upstream has {facts.only_cases_differ} such names",
        "initialize the downstream with the upstream's value, or rename these tables with [[routes]]",
    )
