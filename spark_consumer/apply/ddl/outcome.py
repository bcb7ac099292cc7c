"""Finds out whether a DDL ran when its consumer, its connection or the downstream was killed.

The steps, in this order:

1. Wait while the statement still runs: the server continues a DDL without its client, with the channel's lock.
2. MySQL's GTIDs decide for tables with atomic DDL (InnoDB's), views, programs and accounts.
3. MariaDB's binlog decides if the server was not restarted: it has the statement's number or not. In addition, CREATE
   and DROP must have had their result.
4. Otherwise the objects decide (``interrupted``): on downstreams without GTIDs, on MariaDB after a restart, and for
   MySQL's tables without atomic DDL. MariaDB's crash recovery finishes some statements and logs them under its own
   number or not at all, rolls others back, and may lose one that was logged.
5. If the objects do not show it, a used number means that the statement ran; without one the operator decides. The
   operator also decides if the server has lost a table: MariaDB runs the DDL of partitioned tables one partition after
   the other.
"""

from __future__ import annotations

import time

import structlog

from schemas.errors import Where
from schemas.wire.epoch import SchemaChanged
from spark_consumer.apply.ddl.intent import Intent, PendingDdl
from spark_consumer.apply.ddl.interrupted import (
    InconsistentObjects,
    UnknownOutcome,
    changed_too_recently,
    lacks_expected_result,
    needs_identities,
    remaining_statement,
)
from spark_consumer.apply.ddl.snapshot import Snapshot, take_snapshot
from spark_consumer.apply.ledger import Ledger
from spark_consumer.ddl.translate import database_of
from spark_consumer.epochs.position import Position
from spark_consumer.plan.refusal import DdlInDoubt
from spark_consumer.target.session import Session

# The time of a change has seconds only, so after two seconds it is in the past.
_LONGEST_WAIT = 3.0
_HINT_UNKNOWN = (
    "check the tables. If the DDL has run: `tailrace error skip`. If not: `tailrace error replace` with the statement"
    " itself. If it ran in part: complete it manually, then skip"
)
_HINT_INCONSISTENT = (
    "restore the tables to the state after the DDL and run `tailrace error skip`, or to the state before it and run"
    " `tailrace error replace` with the statement itself"
)
_log = structlog.get_logger()


def await_predecessor(own: Session, position: Position) -> None:
    """Wait for a DDL or a non-transactional write that a terminated consumer left running: the server still
    completes it.

    Such a statement holds the channel's lock, which the server releases with the connection.
    """
    lock = f"tailrace.{position.ledger_uuid}"
    while own.value("SELECT GET_LOCK(%s, 2)", (lock,)) != 1:
        _log.warning(
            "statement_of_predecessor_runs", hint="an earlier consumer started it; waiting for it to finish"
        )


def snapshot_now(own: Session, ddl: SchemaChanged) -> Snapshot:
    """Return a snapshot of the DDL's objects now."""
    return take_snapshot(own, ddl, database_of(ddl), identities=needs_identities(ddl))


def snapshot_before(own: Session, ddl: SchemaChanged) -> Snapshot:
    """Return a snapshot of the DDL's objects before it runs."""
    deadline = time.monotonic() + _LONGEST_WAIT
    while changed_too_recently(ddl, found := snapshot_now(own, ddl)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def progress_of_interrupted(
    own: Session, ledger: Ledger, intent: Intent, ddl: SchemaChanged, position: Position, where: Where
) -> PendingDdl:
    """Return what is left of a DDL that was started, after waiting for a predecessor's statement.

    Args:
        own: a connection of its own.
        ddl: the current statement, with its text.

    Raises:
        DownstreamError: TR621, it cannot be determined.
    """
    assert intent.before is not None
    await_predecessor(own, position)
    used = ledger.is_executed(own, intent.number)
    number = intent.number if used else intent.number - 1
    try:
        left = _left(own, ledger, intent.before, ddl, used)
    except UnknownOutcome as why:
        if used and not isinstance(why, InconsistentObjects):
            left = None
        else:
            raise DdlInDoubt(
                "TR621",
                f"this DDL was interrupted and it is unknown whether it ran: {why}; {ddl.shown[:200]}",
                where=where,
                hint=_HINT_INCONSISTENT if isinstance(why, InconsistentObjects) else _HINT_UNKNOWN,
            ) from None
    _log.info(
        "ddl_interrupted", statement=ddl.shown[:200], happened=left is None, left=left and left.shown[:200]
    )
    if left is None:
        return PendingDdl(intent.translated, number, intent.index + 1)
    remaining = None if left is ddl else left
    return PendingDdl(intent.translated, number, intent.index, remaining, intent.before)


def _left(
    own: Session, ledger: Ledger, before: Snapshot, ddl: SchemaChanged, used: bool
) -> SchemaChanged | None:
    mariadb = own.flavor == "mariadb"
    if used and not mariadb:
        return None
    if not ddl.statement:
        raise UnknownOutcome("its text was not stored because it may contain passwords")
    now = snapshot_now(own, ddl)
    same_start = before.binlog == now.binlog != ""
    if used and same_start and not lacks_expected_result(ddl, now):
        return None
    if ledger.is_proof and not mariadb and _is_atomic(before) and _is_atomic(now):
        return ddl
    try:
        return remaining_statement(ddl, before, now, mariadb=mariadb)
    except UnknownOutcome as why:
        if ledger.is_proof and same_start and not used and not isinstance(why, InconsistentObjects):
            return ddl
        raise


def _is_atomic(snapshot: Snapshot) -> bool:
    """Whether MySQL runs DDL on these objects atomically, together with its GTID."""
    return all(
        shown.engine in ("", "innodb") and shown.kind != "DATABASE" for shown in snapshot.objects.values()
    )
