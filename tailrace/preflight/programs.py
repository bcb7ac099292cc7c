"""Finds triggers and events of a downstream that would change replicated rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from schemas.tables import QualifiedName
from spark_consumer.apply.side_writes import events_beside, scopes, triggers_beside, written_by
from spark_consumer.rules.rules import Rules
from spark_consumer.target.compatibility import assigned, may_set
from spark_consumer.target.programs.privileges import Privileges
from spark_consumer.target.session import Session
from spark_consumer.target.tables import triggers_of
from tailrace import servers
from tailrace.preflight.downstream import Programs

_WITH_TRIGGERS = "SELECT DISTINCT EVENT_OBJECT_SCHEMA, EVENT_OBJECT_TABLE FROM information_schema.TRIGGERS"
_PARENTS = (
    "SELECT DISTINCT UNIQUE_CONSTRAINT_SCHEMA, REFERENCED_TABLE_NAME"
    " FROM information_schema.REFERENTIAL_CONSTRAINTS"
)


def read_programs(
    session: Session,
    account: Privileges,
    rules: Sequence[Rules],
    upstream: Mapping[QualifiedName, frozenset[str]] | None,
) -> Programs:
    """Read the present triggers and events that the account may see. Raises pymysql.MySQLError.

    Args:
        rules: the rules of the channels that write to the server.
        upstream: the columns of the upstream's tables; None if they are unknown.
    """

    def filled(query: str) -> list[QualifiedName]:
        names = [(str(db), str(table)) for db, table in session.rows(query)]
        return [name for name in names if any(one.may_write_to(*name) for one in rules)]

    with_triggers = filled(_WITH_TRIGGERS)
    # Without schema tailrace there are no other channels.
    others = servers.attempt(lambda: scopes(session, rules[0].router)) or []

    def replicated(db: str, table: str) -> str | None:
        return written_by(db, table, rules, others)

    found = [
        *events_beside(session, account, replicated),
        *triggers_beside(session, account, replicated, with_triggers, filled(_PARENTS)),
    ]
    return Programs(found, list(_overwriting_triggers(session, with_triggers, rules, upstream)))


def _overwriting_triggers(
    session: Session,
    tables: Sequence[QualifiedName],
    rules: Sequence[Rules],
    upstream: Mapping[QualifiedName, frozenset[str]] | None,
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield BEFORE triggers that set replicated columns, in the form of ``Programs.overwriting_triggers``."""
    columns: dict[QualifiedName, set[str]] = {}
    for name, names in (upstream or {}).items():
        for one in rules:
            if one.tables.allows(*name):
                columns.setdefault(one.router.table(*name), set()).update(names)
    for table in tables:
        for trigger in triggers_of(session, table):
            known = columns.get(table)
            hit = tuple(sorted(column for column in known or () if may_set(trigger, column)))
            if hit or (known is None and upstream is None and assigned(trigger) != frozenset()):
                yield f"{table[0]}.{trigger.name}", ".".join(table), hit
