"""DDL on views, stored programs and accounts: the channel applies it, ignores it or stops, according to ``[ddl]``.

A routine's or event's body may name tables in any way, so it is not rewritten: if routes concern its schema, the DDL is
left out. DROP gets IF EXISTS, because a copy of the upstream's tables often has no programs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import structlog

from schemas.ddl.classify import ClassifiedStatement, family
from schemas.ddl.lexer import Flavor
from schemas.tables import TableFilter
from schemas.wire.epoch import SchemaChanged
from spark_consumer.ddl.edit import Uneditable, event_at_rest, with_definer, with_if_exists
from spark_consumer.plan.refusal import DdlRefused
from spark_consumer.rules.ddl_options import DdlOptions
from spark_consumer.rules.event_filter import EventFilter
from spark_consumer.rules.route import Router

_log = structlog.get_logger()


def is_object(kind: str) -> bool:
    """Whether DDL of this kind concerns a stored program or an account."""
    return family(kind) not in ("", "views")


def allowed(ddl: SchemaChanged, options: DdlOptions) -> bool:
    """Whether the channel applies DDL of this family. Raises DownstreamError TR628 if the channel has to stop."""
    kind = family(ddl.kind)
    chosen = options.of(kind)
    if chosen == "stop":
        raise DdlRefused(
            "TR628",
            f'the channel stops at DDL on {kind} ([ddl] {kind} = "stop"): {ddl.shown[:200]}',
            hint=f'make the same change on the downstream by hand, set [ddl] {kind} = "ignore", and start again',
        )
    if chosen == "ignore":
        _log.info("ddl_ignored", kind=ddl.kind, statement=ddl.shown[:200], setting=f"ddl.{kind}")
    return chosen == "apply"


def translate_object(
    ddl: SchemaChanged, found: ClassifiedStatement, tables: TableFilter, events: EventFilter, router: Router
) -> SchemaChanged | None:
    """Translate DDL on a program or an account; None if filters or routes leave it out.

    Raises:
        DownstreamError: TR624, the statement cannot be changed safely.
    """
    if found.program is None:
        return ddl
    db, name = found.program
    if not tables.allows(db, name) or events.drops(db, name, ddl.kind.lower(), ddl.statement):
        _log.info("ddl_filtered", kind=ddl.kind, statement=ddl.statement[:200])
        return None
    if router.concerns(db):
        _log.warning(
            "ddl_ignored", kind=ddl.kind, statement=ddl.statement[:200], reason="a route concerns its schema"
        )
        return None
    flavor, mode = cast(Flavor, ddl.source_flavor), ddl.sql_mode or 0
    try:
        if ddl.kind.startswith("DROP"):
            return replace(ddl, statement=with_if_exists(ddl.statement, flavor, sql_mode=mode))
        if ddl.kind.endswith("EVENT"):
            return replace(ddl, statement=event_at_rest(_owned(ddl, flavor), flavor, sql_mode=mode))
    except Uneditable as error:
        raise DdlRefused(
            "TR624",
            f"a statement cannot be changed safely for the downstream: {error}: {ddl.statement[:200]}",
            hint="run it by hand on the downstream, and ignore it with a filter rule that has its text as sql-pattern",
        ) from error
    return ddl


def _owned(ddl: SchemaChanged, flavor: Flavor) -> str:
    """Add the upstream session's account as the definer to ALTER EVENT, which makes its invoker the definer."""
    settings = dict(ddl.settings)
    user, host = settings.get("invoker_user"), settings.get("invoker_host")
    if ddl.kind != "ALTER EVENT" or not user or host is None:
        return ddl.statement
    return with_definer(ddl.statement, flavor, user, host, sql_mode=ddl.sql_mode or 0)
