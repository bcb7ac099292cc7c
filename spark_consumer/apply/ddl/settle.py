"""Finds out whether a DDL ran when its consumer, its connection or the downstream was killed.

Evidence, in this order:

1. None while it still runs: a DDL goes on in the server when its client has gone, and holds the channel's lock.
2. MySQL's GTIDs, of tables whose DDL is atomic (InnoDB's), of views, programs and accounts: it has run, or not at all.
3. MariaDB's binlog as long as the server has not been started again: the statement's number is there, or it is not.
   CREATE and DROP have to have left what they were to leave all the same.
4. The objects themselves (``interrupted``): on downstreams without GTIDs, on MariaDB once its server was started
   again, and of MySQL's tables without atomic DDL. Crash recovery of MariaDB finishes some statements and logs them
   under a number of its own or not at all, takes others back, and may lose one that it had logged.
5. If these do not show it, a number that is used does, and else the operator. He is asked as well where the server has
   lost a table: MariaDB does the DDL of partitioned tables one partition after the other.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import structlog

from schemas.errors import Where
from schemas.wire.epoch import SchemaChanged
from spark_consumer.apply.ddl.intent import Intent
from spark_consumer.apply.ddl.interrupted import (
    Broken,
    Undecided,
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

# A table that was changed just now is that old after two seconds.
_LONGEST_WAIT = 3.0
_HINT_UNDECIDED = (
    "check the tables. If the DDL has run: `tailrace error skip`. If not: `tailrace error replace` with the statement"
    " itself. If it ran in part: complete it manually, then skip"
)
_HINT_BROKEN = (
    "restore the tables to the state after the DDL and run `tailrace error skip`, or to the state before it and run"
    " `tailrace error replace` with the statement itself"
)
_log = structlog.get_logger()


@dataclass(frozen=True)
class DdlProgress:
    """How far a DDL is.

    Attributes:
        index: the next one of its statements.
        remaining: the rest of that, if it is done in part.
        number: the last number of the ledger that is used.
    """

    index: int
    remaining: SchemaChanged | None
    number: int


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
    """The DDL's objects as they are now."""
    return take_snapshot(own, ddl, database_of(ddl), identities=needs_identities(ddl))


def snapshot_before(own: Session, ddl: SchemaChanged) -> Snapshot:
    """The DDL's objects as they are before it runs."""
    deadline = time.monotonic() + _LONGEST_WAIT
    while changed_too_recently(ddl, found := snapshot_now(own, ddl)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def progress_of_interrupted(
    own: Session, ledger: Ledger, intent: Intent, ddl: SchemaChanged, position: Position, where: Where
) -> DdlProgress:
    """How far the DDL of an intent that has begun is, once a predecessor's statement has ended.

    Args:
        own: a connection for this alone.
        ddl: the statement in hand, with its text.

    Raises:
        DownstreamError: TR621, it cannot be determined.
    """
    assert intent.before is not None
    await_predecessor(own, position)
    used = ledger.is_executed(own, intent.number)
    number = intent.number if used else intent.number - 1
    try:
        left = _left(own, ledger, intent.before, ddl, used)
    except Undecided as why:
        if used and not isinstance(why, Broken):
            left = None
        else:
            raise DdlInDoubt(
                "TR621",
                f"this DDL was interrupted and it is unknown whether it ran: {why}; {ddl.shown[:200]}",
                where=where,
                hint=_HINT_BROKEN if isinstance(why, Broken) else _HINT_UNDECIDED,
            ) from None
    _log.info(
        "ddl_interrupted", statement=ddl.shown[:200], happened=left is None, left=left and left.shown[:200]
    )
    if left is None:
        return DdlProgress(intent.index + 1, None, number)
    return DdlProgress(intent.index, None if left is ddl else left, number)


def _left(
    own: Session, ledger: Ledger, before: Snapshot, ddl: SchemaChanged, used: bool
) -> SchemaChanged | None:
    mariadb = own.flavor == "mariadb"
    if used and not mariadb:
        return None
    if not ddl.statement:
        raise Undecided("its text was not stored because it may contain passwords")
    now = snapshot_now(own, ddl)
    same_start = before.binlog == now.binlog != ""
    if used and same_start and not lacks_expected_result(ddl, now):
        return None
    if ledger.is_proof and not mariadb and _is_atomic(before) and _is_atomic(now):
        return ddl
    try:
        return remaining_statement(ddl, before, now, mariadb=mariadb)
    except Undecided as why:
        if ledger.is_proof and same_start and not used and not isinstance(why, Broken):
            return ddl
        raise


def _is_atomic(snapshot: Snapshot) -> bool:
    """Whether MySQL does the DDL of these objects whole or not at all, and with their GTID."""
    return all(
        shown.engine in ("", "innodb") and shown.kind != "DATABASE" for shown in snapshot.objects.values()
    )
