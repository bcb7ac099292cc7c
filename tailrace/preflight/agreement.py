"""Findings about settings that upstream and downstream must share, so that rows and DDL have the same effect.

``block``: replication would be wrong or stop with the upstream's present tables and settings. ``warn``: later
statements could have this effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tailrace.preflight.finding import Finding, Level, NotChecked, Result, verdict

Variables = Mapping[str, str]
_UTC = frozenset({"UTC", "ETC/UTC", "GMT", "UCT", "ZULU", "UNIVERSAL", "+00:00"})
_OFF = frozenset({"", "OFF", "0"})
_TRANSACTIONAL = frozenset({"INNODB", "ROCKSDB", "NDBCLUSTER", "TOKUDB"})


@dataclass(frozen=True)
class ServerFeatures:
    """A server's collations, engines and time zones; None if the account may not read them.

    Attributes:
        zones: whether the server knows time zones by name.
        collations, engines: the ones that the server has.
        used_collations, used_engines: the ones of its replicated tables, each with one of these tables.
    """

    zones: bool | None = None
    collations: frozenset[str] | None = None
    engines: frozenset[str] | None = None
    used_collations: Mapping[str, str] | None = None
    used_engines: Mapping[str, str] | None = None


#: the kit of a server that was not read
NO_FEATURES = ServerFeatures()


def agreement_findings(
    theirs: Variables, ours: Variables, upstream: ServerFeatures, downstream: ServerFeatures
) -> list[Result]:
    """Compare an upstream's variables and features with a downstream's."""
    results: list[Result] = [check(theirs, ours) for check in _CHECKS]
    results.append(_zones(theirs, upstream, downstream))
    results.append(
        _has("collations", "collation", upstream.used_collations, downstream.collations, "block", "TR620")
    )
    results.append(_has("engines", "storage engine", upstream.used_engines, downstream.engines, "warn", ""))
    return results


def _engine(theirs: Variables, ours: Variables) -> Result:
    forced = ours.get("enforce_storage_engine", "").upper()
    wanted, value = (v.get("default_storage_engine", "") for v in (theirs, ours))
    code, fine = "storage_engine", "tables have the same engine on both servers"
    if forced not in ("", "NULL", "NONE", "INNODB"):
        what = (
            f"enforce_storage_engine is {forced}: tables without transactions cannot be applied exactly once"
        )
        return Finding("block", "downstream", code, what, "SET GLOBAL enforce_storage_engine = NULL")
    if "INNODB" in ours.get("disabled_storage_engines", "").upper():
        what = "disabled_storage_engines contains InnoDB, the only engine with transactions"
        return Finding("block", "downstream", code, what, "remove it there in the server's option file")
    if wanted and wanted.upper() not in _TRANSACTIONAL:
        what = (
            f"default_storage_engine is {wanted} upstream: tables created without ENGINE have no transactions"
        )
        return Finding(
            "warn",
            "downstream",
            code,
            what,
            'set [ddl] engines = "innodb" to create them in InnoDB downstream',
        )
    what = f"default_storage_engine is {value} downstream: CREATE TABLE uses it if the upstream's engine is unknown"
    remedy = "SET GLOBAL default_storage_engine = InnoDB, and the same in the server's option file"
    return verdict(value.upper() in _TRANSACTIONAL, "downstream", code, fine, what, remedy, "warn")


def _alike(name: str, why: str) -> Callable[[Variables, Variables], Result]:
    """Return a check that a variable has the same value on both servers."""

    def check(theirs: Variables, ours: Variables) -> Result:
        wanted, value = theirs.get(name), ours.get(name)
        if wanted is None or value is None:
            return NotChecked("downstream", name, "one of the servers has no such variable")
        what = f"{name} is {wanted} upstream and {value} downstream: {why}"
        remedy = f"SET GLOBAL {name} = {wanted} on the downstream, and the same in its option file"
        return verdict(wanted == value, "downstream", name, f"{name} is {value}", what, remedy, "warn")

    return check


def _system_zone(theirs: Variables, ours: Variables) -> Result:
    wanted, value = (_zone(v) for v in (theirs, ours))
    code, fine = (
        "system_time_zone",
        f"the system time zone is {value}, or the upstream's sessions do not use the system time zone",
    )
    if theirs.get("time_zone", "").upper() != "SYSTEM" or wanted == value:
        return Finding("ok", "downstream", code, fine)
    what = (
        f"the upstream's sessions use its system time zone ({wanted}), and the downstream's is {value}: ALTER TABLE"
        " that turns TIMESTAMP into DATETIME, and defaults of TIMESTAMP, may result in other values"
    )
    return Finding(
        "warn", "downstream", code, what, "run both servers in the same time zone, or set time_zone upstream"
    )


def _zone(variables: Variables) -> str:
    zone = variables.get("system_time_zone", "")
    return "UTC" if zone.upper() in _UTC else zone


def _zones(theirs: Variables, upstream: ServerFeatures, downstream: ServerFeatures) -> Result:
    if downstream.zones is None:
        return NotChecked(
            "downstream", "time_zones", "it could not be read whether the server knows named time zones"
        )
    zone = theirs.get("time_zone", "SYSTEM")
    named = zone.upper() != "SYSTEM" and zone[:1] not in "+-"
    what = "the downstream's time zone tables are empty: DDL of a session with "
    what += (
        f"the time zone {zone} stops the channel (TR625)"
        if named
        else "a named time zone stops the channel (TR625)"
    )
    remedy = "load them: mysql_tzinfo_to_sql /usr/share/zoneinfo | mysql mysql"
    good = downstream.zones or not (named or upstream.zones)
    fine = "named time zones are known, or not needed"
    return verdict(good, "downstream", "time_zones", fine, what, remedy, "block" if named else "warn")


def _init_connect(theirs: Variables, ours: Variables) -> Result:
    del theirs
    text = ours.get("init_connect", "").strip()
    level: Level = "block" if "sql_log_bin" in text.lower() else "warn"
    what = f"init_connect runs in each session of the consumer: {text[:100]}"
    remedy = "SET GLOBAL init_connect = '', or grant the account CONNECTION_ADMIN, for which it does not run"
    return verdict(not text, "downstream", "init_connect", "init_connect is empty", what, remedy, level)


def _packet(theirs: Variables, ours: Variables) -> Result:
    wanted, value = (int(v.get("max_allowed_packet", "0")) for v in (theirs, ours))
    if not wanted or not value:
        return NotChecked("downstream", "packet_of_both", "one of the servers has no max_allowed_packet")
    # A statement is longer than its row, so the largest rows need more than this; such rows are very rare.
    mib = (
        f"max_allowed_packet is {wanted / (1 << 20):g} MiB upstream and {value / (1 << 20):g} MiB downstream"
    )
    what = f"{mib}: larger rows stop the channel (TR608)"
    remedy = f"SET GLOBAL max_allowed_packet = {wanted}, and the same in the server's option file"
    return verdict(value >= wanted, "downstream", "packet_of_both", mib, what, remedy, "warn")


def _binlog_format(theirs: Variables, ours: Variables) -> Result:
    del theirs
    value = ours.get("binlog_format", "ROW")
    good = ours.get("log_bin", "").upper() in _OFF or value.upper() != "STATEMENT"
    what = "binlog_format is STATEMENT: InnoDB refuses our READ COMMITTED transactions"
    remedy = "SET GLOBAL binlog_format = ROW, and the same in the server's option file"
    return verdict(good, "downstream", "binlog_format", f"binlog_format is {value}", what, remedy)


def _page(theirs: Variables, ours: Variables) -> Result:
    wanted, value = (int(v.get("innodb_page_size", "0")) for v in (theirs, ours))
    if not wanted or not value:
        return NotChecked("downstream", "innodb_page_size", "one of the servers has no such variable")
    what = (
        f"innodb_page_size is {wanted} upstream and {value} downstream: long index keys and rows may not fit"
    )
    fine = f"innodb_page_size is {value}"
    remedy = "initialize the downstream with the upstream's page size"
    return verdict(value >= wanted, "downstream", "innodb_page_size", fine, what, remedy, "warn")


def _has(
    code: str,
    noun: str,
    used: Mapping[str, str] | None,
    available: frozenset[str] | None,
    level: Level,
    stops: str,
) -> Result:
    """Return whether the downstream has the collations or engines of the upstream's tables."""
    if used is None or available is None:
        return NotChecked("downstream", code, "the tables' definitions could not be listed")
    lacking = sorted(name for name in used if _plain(name) not in {_plain(one) for one in available})
    if not lacking:
        return Finding("ok", "downstream", code, f"the downstream has every {noun} of the upstream's tables")
    first = lacking[0]
    more = f", and {len(lacking) - 1} more" if len(lacking) > 1 else ""
    what = f"the downstream does not have the {noun} {first} of {used[first]}{more}: "
    what += (
        f"DDL with it stops the channel ({stops})"
        if stops
        else "CREATE TABLE uses another one, or stops the channel"
    )
    return Finding(
        level, "downstream", code, what, f"use a {noun} that both servers have for the upstream's tables"
    )


def _plain(name: str) -> str:
    """Return a name in the form that is the same in both flavors and all versions."""
    name = name.lower()
    return "utf8mb3_" + name[len("utf8_") :] if name.startswith("utf8_") else name


_CHECKS: tuple[Callable[[Variables, Variables], Result], ...] = (
    _engine,
    _alike("explicit_defaults_for_timestamp", "TIMESTAMP columns without a default differ"),
    _alike("innodb_strict_mode", "only one of them refuses CREATE TABLE with invalid options"),
    _alike("innodb_default_row_format", "tables without ROW_FORMAT differ, also in how large a row may be"),
    _system_zone,
    _init_connect,
    _packet,
    _binlog_format,
    _page,
)
