"""Findings about the copy with which a new log begins: rights, what is locked, and what would stop it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from schemas.counted import counted
from schemas.errors import UpstreamError
from schemas.tables import QualifiedName
from spark_consumer.rules.event_filter import DML
from spark_consumer.rules.rules import Rules
from spark_consumer.target.programs.privileges import Privileges
from tailrace.preflight.finding import Finding, NotChecked, Result
from tailrace.preflight.grants import ReplicatedObjects, RequiredRights, rights_results

_NAMED = 5
_TABLES = ("BASE TABLE", "SYSTEM VERSIONED", "SEQUENCE")


@dataclass(frozen=True)
class SourceTable:
    """A table of the upstream.

    Attributes:
        engine: empty for one that has none, such as a view.
        has_key: whether it has a primary key, or a unique key of whole columns that are NOT NULL.
        hidden_parent: a table that is not replicated, and with whose rows the server changes this one's, without a
            trace in the binlog.
        is_circular: whether its own changes change rows of it in this way, or such changes are hard to recognize.
    """

    name: QualifiedName
    engine: str
    has_key: bool
    is_sequence: bool = False
    hidden_parent: QualifiedName | None = None
    is_circular: bool = False


@dataclass(frozen=True)
class SourceFacts:
    """What the copy reads.

    Attributes:
        refusal: why nothing can be copied from the server.
        tables: the replicated ones; None if they could not be listed.
    """

    mariadb: bool
    version: tuple[int, ...]
    account: Privileges
    reach: ReplicatedObjects
    refusal: UpstreamError | None
    tables: Sequence[SourceTable] | None


def source_findings(facts: SourceFacts) -> list[Result]:
    """Return findings about what the copy reads."""
    results = _rights(facts)
    if facts.refusal is not None:
        remedy = (
            f'{facts.refusal.hint}; or set [source] start = "earliest" or "current", docs/COPIES.md says when'
        )
        results.append(_blocks("copy", facts.refusal.message, remedy))
    if facts.tables is None:
        return [*results, NotChecked("upstream", "copy_tables", "the tables could not be listed")]
    return [*results, *_impossible(facts.tables), *_held(facts.tables)]


def _rights(facts: SourceFacts) -> list[Result]:
    """Return a finding for each right that only a copy needs."""
    needs = [
        RequiredRights("copy_views", ("SHOW VIEW",), "views cannot be copied", "schema", error="TR202"),
        RequiredRights("copy_events", ("EVENT",), "events cannot be seen, and are not copied", "schema"),
    ]
    why = "the copy leaves out tables that it cannot see"
    needs.append(RequiredRights("copy_select", ("SELECT",), why, "table"))
    if not facts.account.everywhere("SELECT"):
        old = facts.version < ((11, 3) if facts.mariadb else (8, 0, 20))
        right = "SELECT" if old else "SHOW CREATE ROUTINE" if facts.mariadb else "SHOW_ROUTINE"
        why = "functions and procedures of other accounts cannot be copied"
        needs.append(RequiredRights("copy_routines", (right,), why, "server", error="TR202"))
    if any(map(_reason, facts.tables or ())):
        why = "tables without a key or without transactions cannot be copied"
        needs.append(RequiredRights("copy_locks", ("LOCK TABLES",), why, "schema", error="TR202"))
    found = rights_results("upstream", facts.account, needs, facts.reach)
    # The findings about the upstream have SELECT too. Without it a copy is impossible.
    return [one for one in found if not (one.code == "copy_select" and _is_known(one))]


def _is_known(result: Result) -> bool:
    return isinstance(result, Finding) and result.level != "block"


def _impossible(tables: Sequence[SourceTable]) -> list[Result]:
    """Return findings about the tables that cannot be copied."""
    results: list[Result] = []
    if found := [table.name for table in tables if table.is_sequence]:
        what = f"{_names(found)}: sequences cannot be copied (TR212)"
        results.append(_blocks("copy_sequences", what, "leave them out with [tables] exclude"))
    hidden = {table.name: table.hidden_parent for table in tables if table.hidden_parent is not None}
    if hidden:
        parents = _names(sorted(set(hidden.values())))
        what = f"{_names(list(hidden))}: foreign keys change rows together with those of {parents}, and the server does"
        what += " not log that, so these tables cannot be copied without those (TR212)"
        remedy = "replicate all of them, or leave all of them out with [tables] exclude"
        results.append(_blocks("copy_cascades", what, remedy))
    return results


def _held(tables: Sequence[SourceTable]) -> list[Result]:
    """Return a finding about the tables that are locked, and hold up the log while they are read."""
    held = [
        (f"{'.'.join(one.name)} ({_reason(one)})", one.engine == "InnoDB") for one in tables if _reason(one)
    ]
    momentary = [name for name, has_snapshots in held if has_snapshots]
    long = [name for name, has_snapshots in held if not has_snapshots]
    if not momentary and not long:
        return [Finding("ok", "upstream", "copy_locked", "no table is locked while it is copied")]
    parts = []
    if momentary:
        parts.append(f"{_list(momentary)}: locked for milliseconds")
    if long:
        parts.append(f"{_list(long)}: locked until all rows are read")
    what = f"{'; '.join(parts)}. While these {counted(len(momentary) + len(long), 'table')} are read, the log waits"
    return [Finding("warn", "upstream", "copy_locked", what, "give them a primary key, and ENGINE=InnoDB")]


def _reason(table: SourceTable) -> str:
    """Return why a table is read under a lock; "" if it is not."""
    if table.is_sequence:
        return ""
    if table.engine != "InnoDB":
        return table.engine
    if not table.has_key:
        return "no key"
    return "foreign keys" if table.is_circular else ""


def _names(found: Sequence[QualifiedName]) -> str:
    return _list([".".join(name) for name in found])


def _list(found: Sequence[str]) -> str:
    more = len(found) - _NAMED
    return ", ".join(found[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _blocks(code: str, what: str, remedy: str) -> Finding:
    return Finding("block", "upstream", code, what, remedy, error="TR212")


@dataclass(frozen=True)
class TargetTable:
    """What is on the downstream in the place of a table of the upstream.

    Attributes:
        kind: its TABLE_TYPE, such as ``VIEW``.
        has_rows: whether it is a table with rows.
    """

    name: QualifiedName
    source: QualifiedName
    kind: str
    has_rows: bool


def targets_of_copy(rules: Rules, tables: Iterable[QualifiedName]) -> dict[QualifiedName, QualifiedName]:
    """Return the upstream's table of each downstream table that the copy fills alone."""
    sources: dict[QualifiedName, list[QualifiedName]] = {}
    for name in tables:
        if rules.tables.allows(*name) and len(rules.events.dropped_dml(*name)) < len(DML):
            sources.setdefault(rules.router.table(*name), []).append(name)
    return {target: names[0] for target, names in sources.items() if len(names) == 1}


def target_findings(found: Sequence[TargetTable] | None) -> list[Result]:
    """Return whether the downstream has something where the copy creates or fills a table."""
    if found is None:
        return [NotChecked("downstream", "copy_target", "the account may not read the tables")]
    in_the_way = [
        one for one in found if one.kind not in _TABLES or (one.has_rows and one.kind != "SEQUENCE")
    ]
    if not in_the_way:
        return [Finding("ok", "downstream", "copy_target", "nothing is in the way of the copy")]
    first = in_the_way[0]
    there = "has rows" if first.has_rows else f"is a {first.kind}"
    what = f"{'.'.join(first.name)} {there}, and the copy of {'.'.join(first.source)} needs an empty table (TR664)"
    if len(in_the_way) > 1:
        what += f"; so do {len(in_the_way) - 1} more"
    remedy = "empty it if nobody needs the rows; docs/COPIES.md says how to begin with a copy that was made otherwise"
    return [Finding("block", "downstream", "copy_target", what, remedy, error="TR664")]
