"""Applies one part of a slice in one transaction on a connection of its own.

The protocol of a slice in parts, in order; ``spark_consumer.apply.applier`` has the steps before and after:

1. The driver shares the slice's rows among workers, conflicting rows together, and numbers the parts: part ``n`` of a
   slice after ledger number ``s`` has the number ``s + n``. Each attempt at a slice has its own id.
2. Each worker, on its own connection: BEGIN. It reads the channel's row with a shared lock, so that no second consumer
   can take over, and checks the fencing token and that the slice starts at the position.
3. It locks its own row in ``tailrace.worker_info``: if that has this slice's id and is ahead, an earlier attempt has
   applied the part.
4. It locks the part's tables against DDL, and runs DELETEs, INSERTs and ordered statements, and checks the affected
   rows of each.
5. It updates its own row: ahead, the slice's id, the offsets of the part's rows, and the counts. COMMIT.
6. If the connection is lost, COMMIT included, a new connection starts again at step 2: the worker's row says
   what happened.
7. When all parts are applied, one transaction of the driver moves the position, writes the audit row and marks the
   workers as caught up. Its number follows those of the parts.

After a crash before step 7 some parts may be applied. No old worker can still write: the next consumer, or this one
if it lost a Python worker, first takes a new fencing token, which waits for the lock of step 2. Then this consumer
applies the missing parts; another consumer applies the rows whose offsets no worker has, together with step 7 in one
transaction (``sinks/finish_slice.py``). Changed settings do not affect this, not even the number of workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from schemas.crashpoints import reached
from schemas.errors import DownstreamError, TailraceError
from spark_consumer.apply.executor_sessions import WorkerKey, with_session
from spark_consumer.apply.ledger import numbered_transaction
from spark_consumer.apply.prepared import WorkerPart
from spark_consumer.apply.tables import position_store
from spark_consumer.apply.tables.worker_info import partly_applied
from spark_consumer.apply.workers.pool import PartContext, PartResult
from spark_consumer.apply.write import write
from spark_consumer.epochs.slices import not_next
from spark_consumer.target.session import Session
from spark_consumer.target.tables import TOGETHER, lock_tables


def run_parts(context: PartContext, parts: Iterable[WorkerPart]) -> Iterator[PartResult]:
    """Apply parts in parallel, each as a worker of its own. Failures are returned, not raised."""
    mine = list(parts)
    if not mine:
        return
    with ThreadPoolExecutor(len(mine)) as threads:
        yield from threads.map(partial(_run, context), mine)


def _run(context: PartContext, part: WorkerPart) -> PartResult:
    key = WorkerKey(context.target, context.channel, part.number)
    try:
        with_session(
            key,
            context.retry_time,
            lambda session: _apply(session, context, part),
            lambda session: _is_applied(session, context, part),
        )
    except TailraceError as error:
        return PartResult(part.number, error)
    return PartResult(part.number)


def _apply(session: Session, context: PartContext, part: WorkerPart) -> None:
    if _is_applied(session, context, part):
        return
    number = context.before.ledger_seq + part.number
    with numbered_transaction(session, context.ledger, number):
        _check(session, context)
        if _is_applied(session, context, part, lock=True):
            session.execute("ROLLBACK")
            return
        for writes in part.writes.divided(TOGETHER):
            lock_tables(session, {name: table.definition for name, table in writes.tables.items()})
            write(session, writes, context.where)
            reached("worker.after_tables")
        _record(session, context, part, number)
        reached("worker.before_commit")
        session.execute("COMMIT")
    reached("worker.after_commit")


def _is_applied(session: Session, context: PartContext, part: WorkerPart, *, lock: bool = False) -> bool:
    """Step 3. Raises DownstreamError if the worker is ahead with another slice."""
    rows = session.rows(
        "SELECT slice, ahead FROM tailrace.worker_info WHERE prefix = %s AND Channel_name = %s AND Id = %s"
        + (" FOR UPDATE" if lock else ""),
        (*context.channel, part.number),
    )
    if not rows:
        raise _row_gone(context, part)
    [(slice_id, ahead)] = rows
    if ahead and slice_id != context.slice_id:
        raise partly_applied(context.channel)
    return bool(ahead)


def _check(session: Session, context: PartContext) -> None:
    """Step 2: no other consumer holds the channel, and the position is just before the slice."""
    found = position_store.read(session, context.channel, share=True)
    position = position_store.check_token(found, context.token, context.channel)
    if (position.epoch, position.ledger_seq) != (context.before.epoch, context.before.ledger_seq):
        raise not_next(position, context.first_epoch, context.where)


def _record(session: Session, context: PartContext, part: WorkerPart, number: int) -> None:
    before, after = context.before, context.after
    affected = session.run(
        "UPDATE tailrace.worker_info SET ahead = 1, slice = %s, first_epoch = %s, last_epoch = %s, compact = %s,"
        " Relay_log_name = %s, Relay_log_pos = %s, Master_log_name = %s, Master_log_pos = %s,"
        " Checkpoint_relay_log_name = %s, Checkpoint_relay_log_pos = %s, Checkpoint_master_log_name = %s,"
        " Checkpoint_master_log_pos = %s, Checkpoint_seqno = %s, Checkpoint_group_size = %s,"
        " Checkpoint_group_bitmap = %s, parts = parts + 1, rows_written = rows_written + %s,"
        " statements = statements + %s WHERE prefix = %s AND Channel_name = %s AND Id = %s",
        (
            context.slice_id,
            context.first_epoch,
            context.last_epoch,
            context.compact,
            after.relay_log,
            after.relay_pos,
            after.source_log,
            after.source_pos,
            before.relay_log,
            before.relay_pos,
            before.source_log,
            before.source_pos,
            number,
            context.parts,
            part.applied,
            part.writes.rows,
            part.writes.statements,
            *context.channel,
            part.number,
        ),
    )
    if affected != 1:
        raise _row_gone(context, part)


def _row_gone(context: PartContext, part: WorkerPart) -> DownstreamError:
    return DownstreamError(
        "TR661",
        f"the row of worker {part.number} of channel {context.channel} in tailrace.worker_info is gone",
        hint="restart the consumer: it creates the rows of its workers",
    )
