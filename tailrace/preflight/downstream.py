"""Findings about the downstream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spark_consumer.apply.side_writes import SideWrite
from spark_consumer.target.programs.privileges import Privileges
from tailrace.preflight.agreement import NO_FEATURES, ServerFeatures, agreement_findings
from tailrace.preflight.encryption import UNENCRYPTED, Encryption, encryption_finding
from tailrace.preflight.finding import Finding, Level, NotChecked, Result, verdict
from tailrace.preflight.grants import Need, Reach, rights_results

_DATA = Need(
    "privileges",
    ("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "ALTER", "INDEX", "REFERENCES"),
    "rows and tables are written, schema tailrace too",
    "table",
    error="TR641",
)
_TRIGGERS = Need(
    "triggers", ("TRIGGER",), "triggers, which may write rows a second time, are invisible (TR658)", "table"
)
_EVENTS = Need(
    "events",
    ("EVENT",),
    "events, which may write rows a second time, are invisible (TR658), and the upstream's cannot be made",
    "schema",
    beyond="those of other databases, which may write to these, are invisible",
)
_PROGRAMS = Need(
    "programs",
    ("CREATE VIEW", "CREATE ROUTINE", "ALTER ROUTINE"),
    'views and routines cannot be made; or set "ignore" for them in [ddl]',
    "schema",
    "warn",
)
_VIEWS = Need(
    "views",
    ("SHOW VIEW",),
    "what a view is made of cannot be looked at, after a crash or where a trigger writes through it (TR657)",
    "schema",
    "warn",
)
_ROUTINES = Need(
    "routines",
    ("EXECUTE",),
    "views that run functions are refused, and what triggers call cannot be looked at (TR657)",
    "schema",
    "warn",
)
_TEMPORARY = Need(
    "temporary_tables",
    ("CREATE TEMPORARY TABLES",),
    "routines, and statements of `tailrace error replace`, that need a temporary table are refused",
    "schema",
    "warn",
)


def _definers(mariadb: bool, version: tuple[int, ...]) -> Need:
    if mariadb:
        rights: tuple[str, ...] = ("SET USER",) if version >= (10, 5) else ("SUPER",)
    elif version >= (8, 2):
        rights = ("SET_ANY_DEFINER", "ALLOW_NONEXISTENT_DEFINER", "SYSTEM_USER")
    else:
        rights = ("SET_USER_ID", "SYSTEM_USER") if version >= (8, 0, 16) else ("SUPER",)
    why = (
        "views, routines and events of other accounts, or of ones that are not here, stop the channel (TR620)"
    )
    return Need("definers", rights, f'{why}; or set "ignore" for them in [ddl]', "server", "warn")


def _ledger_rights(mariadb: bool, version: tuple[int, ...]) -> Need:
    if mariadb:
        rights: tuple[str, ...] = ("BINLOG ADMIN", "BINLOG REPLAY") if version >= (10, 5, 2) else ("SUPER",)
    else:
        rights = ("REPLICATION_APPLIER", "SESSION_VARIABLES_ADMIN") if version >= (8, 0, 18) else ("SUPER",)
    why = "the channel's GTIDs, which prove what was applied, cannot be set"
    return Need("ledger", rights, why, "server", "warn")


_MONITOR = Need(
    "monitor",
    ("REPLICATION CLIENT",),
    "where the downstream's own binlog and its replicas stand cannot be looked at",
    "server",
    "warn",
)


_SESSION = Need(
    "session",
    ("SESSION_VARIABLES_ADMIN",),
    "settings of the upstream's sessions that a DDL depends on are refused (TR625)",
    "server",
    "warn",
)
_IDENTITIES = Need(
    "identities",
    ("PROCESS",),
    "InnoDB's ids of tables are invisible, so after a crash within EXCHANGE PARTITION, or a RENAME of tables that look"
    " alike, you are asked whether it happened (TR621)",
    "server",
    "warn",
)
_MIN_PACKET = 16 << 20


@dataclass(frozen=True)
class Programs:
    """What triggers and events were found on a downstream.

    Attributes:
        side_writes: those that change replicated rows, or may.
        spoilt: BEFORE triggers that set replicated columns: the trigger, its table, the columns; without columns where
            the upstream's are not known.
    """

    side_writes: Sequence[SideWrite] = ()
    spoilt: Sequence[tuple[str, str, tuple[str, ...]]] = ()


@dataclass(frozen=True)
class Nontransactional:
    """A replicated table without transactions; ``keyed``: whether it has a unique key."""

    table: str
    engine: str
    keyed: bool


@dataclass(frozen=True)
class DownstreamFacts:
    """What was read from the downstream, and of the upstream what both must agree on (None if unknown)."""

    mariadb: bool
    version: str
    variables: dict[str, str]
    account: Privileges
    reach: Reach
    upstream_mariadb: bool | None
    upstream_variables: dict[str, str] | None
    only_cases_differ: int | None = None
    features: ServerFeatures = NO_FEATURES
    upstream_features: ServerFeatures = NO_FEATURES
    programs: Programs | None = None
    encryption: Encryption = UNENCRYPTED
    nontransactional: Sequence[Nontransactional] | None = None


def downstream_findings(facts: DownstreamFacts) -> list[Result]:
    """Everything that the downstream's settings say."""
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
    # MySQL's GTIDs prove it.
    needs += [_IDENTITIES] if facts.mariadb or not _has_gtids(facts) else []
    return rights_results("downstream", facts.account, needs, facts.reach)


def version_of(text: str) -> tuple[int, ...]:
    """A server's version as numbers: ``11.4.5-MariaDB-log`` is (11, 4, 5)."""
    return tuple(int(part) for part in text.split("-", 1)[0].split(".") if part.isdigit())


def _programs(facts: DownstreamFacts) -> Iterator[Result]:
    """Triggers and events that would write beside us."""
    code, fine = "side_writes", "no trigger or enabled event changes replicated rows"
    if facts.programs is None:
        yield NotChecked("downstream", code, "triggers and events could not be listed")
        return
    for one in facts.programs.side_writes:
        what = f"{one.shown} may change replicated rows, which the log brings as well: {one.why} (TR657)"
        yield Finding("block", "downstream", code, what, one.remedy)
    for trigger, table, columns in facts.programs.spoilt:
        which = f"{'columns that the upstream has' if not columns else ', '.join(columns)}"
        what = f"the trigger {trigger} on {table} may set {which} before rows are written (TR653)"
        remedy = f"DROP TRIGGER {trigger} on the downstream, or let it set only columns that the upstream does not have"
        yield Finding("block" if columns else "warn", "downstream", code, what, remedy)
    if not facts.programs.side_writes and not facts.programs.spoilt:
        yield Finding("ok", "downstream", code, fine)


def _nontransactional(facts: DownstreamFacts) -> Result:
    """Tables whose rows nothing takes back."""
    code, fine = "nontransactional", "all replicated tables have transactions"
    if facts.nontransactional is None:
        return NotChecked("downstream", code, "the tables could not be listed")
    found = sorted(facts.nontransactional, key=lambda one: (one.keyed, one.table))
    if not found:
        return Finding("ok", "downstream", code, fine)
    first = found[0]
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    remedy = f"ALTER TABLE {first.table} ENGINE=InnoDB on the downstream"
    remedy += ', and [ddl] engines = "innodb" for those that are made later'
    if not first.keyed:
        what = f"{first.table}{more} ({first.engine}) has neither transactions nor a unique key"
        return Finding("block", "downstream", code, f"{what}: its rows stop the channel (TR656)", remedy)
    what = f"{first.table}{more} ({first.engine}) has no transactions: its rows are written one by one, and readers see"
    what += " them before the others of their transaction"
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
    """Whether the server's own GTIDs can prove what was applied; otherwise the tables have to show it."""
    name = "log_bin" if facts.mariadb else "gtid_mode"
    if not _has_gtids(facts):
        what = f"{name} is not ON: after a crash within a DDL the tables alone have to show if it happened"
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
    remedy = "SET GLOBAL read_only = OFF, or give the account the right to write all the same"
    what = f"{' and '.join(on)} is on: the account may not be able to write"
    level: Level = "block" if "super_read_only" in on else "warn"
    return verdict(
        not on, "downstream", "read_only", "the server takes writes", what, remedy, level, passes=True
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
        return [NotChecked("downstream", "agreement", "the upstream's settings are not known")]
    results: list[Result] = []
    if facts.upstream_mariadb != facts.mariadb:
        what = "upstream and downstream are of different flavors: DDL that only one of them knows stops the channel"
        results.append(
            Finding("warn", "downstream", "flavor", what, "keep to statements that both understand")
        )
    results.append(_letter_cases(facts, facts.upstream_variables))
    return results + agreement_findings(
        facts.upstream_variables, facts.variables, facts.upstream_features, facts.features
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
            "warn", "downstream", name, what, "initialize the downstream with the upstream's value"
        )
    return Finding(
        "block",
        "downstream",
        name,
        f"{what}, and {facts.only_cases_differ} names upstream do so",
        "initialize the downstream with the upstream's value, or give those tables other names with [[routes]]",
    )
