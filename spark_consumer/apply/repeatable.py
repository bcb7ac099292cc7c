"""Checks whether changes can be applied again to tables that already have them.

That works for rows that have a key and that the log has completely, and for an operator's statements that set rows and
do not add to values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from schemas.ddl.dml import read_dml
from schemas.ddl.lexer import NO_BACKSLASH_ESCAPES
from schemas.errors import DownstreamError, Where
from schemas.tables import QualifiedName
from spark_consumer.apply.tables.error_log import Directive
from spark_consumer.plan.plan import ApplyMode, SlicePlan, TablePlan
from spark_consumer.plan.replacement import RepeatableStatement, read_repeatable
from spark_consumer.rules.rules import Rules
from spark_consumer.target.row_locator import RowMatch
from spark_consumer.target.session import Flavor, Session
from spark_consumer.target.table import TargetTable
from spark_consumer.target.tables import read_table

REPLAY_HINT = "to see any position, replay into an empty schema with another channel: docs/REPLAY.md"


def check_tables(plan: SlicePlan, targets: Mapping[QualifiedName, TargetTable | None], rules: Rules) -> None:
    """Raise DownstreamError TR577 for a table whose changes cannot be repeated in the way in which they are planned."""
    for table in plan.tables:
        whole = table.structure.is_full or table.mode is ApplyMode.SKIP
        if table.mode is ApplyMode.ORDERED or not whole:
            raise DownstreamError(
                "TR577",
                f"its changes cannot be repeated: {_reason(table, targets[table.target_name], rules)}",
                where=Where(table=table.name),
                hint=REPLAY_HINT,
            )


def _reason(table: TablePlan, target: TargetTable | None, rules: Rules) -> str:
    if not table.structure.is_full:
        return "its row images lack columns"
    if table.locator.find is RowMatch.WHOLE or not table.locator.sure:
        return "no key identifies existing rows"
    if target is not None and target.triggers:
        return "the downstream's table has triggers"
    if not table.transactional:
        return "the downstream's table has no transactions"
    if table.cascades:
        return "foreign keys connect it with a table that cascades"
    if table.partial:
        return "the channel's filters leave some of its changes out"
    if not rules.compact:
        return "the channel has compact = false"
    if target is not None and target.writable - {column.lower() for column in table.writable}:
        return "the downstream's table has columns that the upstream's does not have"
    return "its downstream table is shared with a table whose changes cannot be repeated"


def repeatable_statement(decision: Directive, statement: str, flavor: Flavor) -> RepeatableStatement:
    """Return a statement of a decision in the form for a repetition. Raises DownstreamError TR578."""
    if (found := read_repeatable(statement, flavor)) is None:
        known = "UPDATE … SET column = constant WHERE …, DELETE … WHERE …, INSERT or REPLACE of constants"
        raise _not_repeatable(decision, statement, f"only these can: {known}")
    return found


def check_decisions(session: Session, decisions: Iterable[Directive]) -> None:
    """Raise DownstreamError TR578 for a row's replacement whose result could differ when it runs again."""
    for one in decisions:
        for statement in one.statements if one.used else ():
            found = repeatable_statement(one, statement, session.flavor)
            if reason := _difference_when_repeated(
                found, read_table(session, (found.table.db, found.table.table))
            ):
                raise _not_repeatable(one, statement, reason)


def tables_with_decisions(decisions: Iterable[Directive], flavor: Flavor) -> Callable[[TablePlan], bool]:
    """Return a function that tells whether a table may differ from the log because of an operator's decisions.

    In such a table, a row with another row's unique value may not be changed later in the log.
    """
    names: set[QualifiedName] = set()
    upstream: set[str] = set()
    for one in decisions:
        changed = [read_dml(sql, "", flavor, sql_mode=NO_BACKSLASH_ESCAPES) for sql in one.statements]
        if one.table is None or None in changed:
            return lambda table: True
        upstream.add(one.table)
        names |= {(name.db.lower(), name.table.lower()) for dml in changed if dml for name in dml.tables}

    def deviates(table: TablePlan) -> bool:
        db, name = table.target_name
        return table.name in upstream or (db.lower(), name.lower()) in names

    return deviates


def _not_repeatable(decision: Directive, statement: str, reason: str) -> DownstreamError:
    return DownstreamError(
        "TR578",
        f"the replacement of event {decision.event} cannot be repeated: {reason}: {statement[:200]}",
        where=Where(epoch=decision.epoch, gtid=decision.gtid, event=decision.event),
        hint=f"the earliest possible position is epoch:{decision.epoch + 1}; {REPLAY_HINT}",
    )


def _difference_when_repeated(found: RepeatableStatement, target: TargetTable | None) -> str:
    """Return why a statement's result could differ when it runs again in its table; "" if it cannot."""
    if target is None:
        return "its table does not exist"
    if target.triggers:
        return "its table has triggers"
    given = found.given([column.name for column in target.columns])
    if found.rows is None or any(key.plain and given.issuperset(key.columns) for key in target.keys):
        return ""
    return "its rows have no value in a unique key"
