"""Findings about rights that an account lacks, each with the GRANT statement that gives them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from schemas.quote import quoted
from schemas.tables import QualifiedName, TableFilter
from spark_consumer.rules.rules import Rules
from spark_consumer.target.programs.privileges import Privileges
from tailrace.preflight.finding import Finding, Level, Part, Result

_WILD = frozenset("*?")


@dataclass(frozen=True)
class RequiredRights:
    """Rights that one purpose needs.

    Attributes:
        code: the code of the finding.
        why: the consequence if they are missing.
        scope: the lowest level that they can be granted on.
        beyond: what the account cannot do if they are granted only on the replicated databases or tables.
        error: the error code of the finding.
    """

    code: str
    rights: tuple[str, ...]
    why: str
    scope: Literal["table", "schema", "server"] = "server"
    level: Level = "block"
    beyond: str = ""
    error: str = "TR003"


@dataclass(frozen=True)
class ReplicatedObjects:
    """The databases and tables that rights are needed on.

    Attributes:
        schemas: whole databases.
        tables: single tables.
        open: whether further ones may be added later.
    """

    schemas: tuple[str, ...]
    tables: tuple[QualifiedName, ...] = ()
    open: bool = True


def upstream_reach(tables: TableFilter, found: Iterable[QualifiedName]) -> ReplicatedObjects:
    """Return the replicated databases and tables of an upstream, from the patterns and its present tables."""
    schemas: dict[str, None] = {}
    single: dict[QualifiedName, None] = {}
    unknown = not tables.include
    for pattern in tables.include:
        db, _, table = pattern.partition(".")
        if _WILD & set(db):
            unknown = True
        elif table.strip("*") and not _WILD & set(table):
            single[db, table] = None
        else:
            schemas[db] = None
    single |= {name: None for name in found if tables.allows(*name)}
    others = tuple(name for name in single if name[0] not in schemas)
    return ReplicatedObjects(tuple(schemas), others, unknown)


def downstream_reach(each: Iterable[Rules], found: Iterable[QualifiedName]) -> ReplicatedObjects:
    """Return the databases and tables that channels write to on a downstream, with schema tailrace."""
    schemas: dict[str, None] = {"tailrace": None}
    tables: dict[QualifiedName, None] = {}
    unknown = False
    found = list(found)
    for rules in each:
        reach = upstream_reach(rules.tables, found)
        schemas |= {rules.router.database(db): None for db in reach.schemas}
        tables |= {rules.router.table(*name): None for name in reach.tables}
        # Routes of tables also apply to the present tables of a whole database.
        whole = [name for name in found if name[0] in reach.schemas and rules.tables.allows(*name)]
        tables |= {rules.router.table(*name): None for name in whole}
        unknown |= reach.open
    others = tuple(name for name in tables if name[0] not in schemas)
    return ReplicatedObjects(tuple(schemas), others, unknown)


def rights_results(
    part: Part, account: Privileges, needs: Iterable[RequiredRights], reach: ReplicatedObjects
) -> list[Result]:
    """Return a finding for each need."""
    return [_result(part, account, need, reach) for need in needs]


def _result(part: Part, account: Privileges, need: RequiredRights, reach: ReplicatedObjects) -> Result:
    lacking = {right: _lacking(account, need, right, reach) for right in need.rights}
    missing = [right for right, objects in lacking.items() if objects]
    if missing:
        what = f"the account lacks {', '.join(missing)}{_where(account, lacking, missing)}: {need.why}"
        remedy = _remedy(account, need, lacking, missing)
        return Finding(need.level, part, need.code, what, remedy, need.error)
    fine = f"the account has {', '.join(need.rights)}"
    some = [right for right in need.rights if need.scope != "server" and not account.everywhere(right)]
    beyond = need.beyond or (
        "databases and tables that are created later are not covered" if reach.open else ""
    )
    if some and beyond:
        what = f"{fine}, but not on *.* for {', '.join(some)}: {beyond}"
        return Finding("warn", part, need.code, what, f"GRANT {', '.join(some)} ON *.* TO {account.account}")
    return Finding("ok", part, need.code, fine)


def _lacking(account: Privileges, need: RequiredRights, right: str, reach: ReplicatedObjects) -> list[str]:
    """Return where a right is missing, as GRANT names it."""
    if account.everywhere(right):
        return []
    if need.scope == "server" or not (account.scoped or account.given(right)):
        return ["*.*"]
    schemas = [f"{quoted(db)}.*" for db in reach.schemas if not account.on_schema(right, db)]
    if need.scope == "schema":
        others = dict.fromkeys(db for db, _ in reach.tables if not account.on_schema(right, db))
        return schemas + [f"{quoted(db)}.*" for db in others]
    tables = [quoted(db, table) for db, table in reach.tables if not account.on_table(right, db, table)]
    return schemas + tables


def _where(account: Privileges, lacking: dict[str, list[str]], missing: Sequence[str]) -> str:
    objects = list(dict.fromkeys(granted_on for right in missing for granted_on in lacking[right]))
    if objects == ["*.*"]:
        return ""
    return f" on {', '.join(objects[:3])}{f' and {len(objects) - 3} more' if len(objects) > 3 else ''}"


def _remedy(
    account: Privileges, need: RequiredRights, lacking: dict[str, list[str]], missing: Sequence[str]
) -> str:
    by_object: dict[str, list[str]] = {}
    for right in missing:
        for granted_on in lacking[right]:
            by_object.setdefault(granted_on, []).append(right)
    grants = [
        f"GRANT {', '.join(rights)} ON {granted_on} TO {account.account}"
        for granted_on, rights in by_object.items()
    ]
    if account.idle_roles:
        role = account.idle_roles[0]
        # MySQL's roles have a host, MariaDB's do not.
        to = "TO" if "@" in role else "FOR"
        grants.append(f"or SET DEFAULT ROLE {role} {to} {account.account}, if the role has it")
    return "; ".join(grants)
