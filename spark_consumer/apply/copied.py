"""Writes rows of copies on the executors, before the transaction that moves the position.

A slice of rows of copies has no changes, so all its rows are as the upstream has them at its beginning and at its end.
They may be written in any order and in several transactions; written again, they are the same. After a crash some of
them are there, and the next start writes all of them again. Each task writes a run of epochs in a transaction, which
locks the channel's row with a shared lock and checks the fencing token and the position. So no consumer that was
replaced can still write, nor a task that was given up.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from schemas.access.server_url import ServerUrl
from schemas.crashpoints import reached
from spark_consumer.apply.executor_sessions import WorkerKey, with_session
from spark_consumer.apply.prepared import (
    CopiedStatement,
    PreparedCopy,
    PreparedRows,
    assemble_copy,
)
from spark_consumer.apply.tables import position_store
from spark_consumer.apply.write import write_copied
from spark_consumer.epochs.slices import Slice
from spark_consumer.plan.counters import RowCounts
from spark_consumer.plan.plan import SlicePlan
from spark_consumer.rows.render import render
from spark_consumer.rows.results import Result, Written
from spark_consumer.rules.channel import ChannelKey
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.target.session import Session, transaction
from spark_consumer.target.tables import lock_tables

#: for an error of a slice whose rows are written like this
APPLIED = "some rows of the copy may be written; the next start writes them again, with the same result"


@dataclass(frozen=True)
class CopyContext:
    """Settings for the tasks of one slice.

    Attributes:
        token: the consumer's fencing token; another one in the channel's row ends the work.
        retry_time: seconds that a task waits for a downstream that is lost or busy.
        slice_: the whole slice.
    """

    target: ServerUrl
    channel: ChannelKey
    token: int
    retry_time: float
    plan: SlicePlan
    slice_: Slice


def write_slice(config: ConsumerConfig, token: int, prepared: PreparedCopy) -> PreparedRows:
    """Write all rows of a slice; return what is left to do.

    Raises:
        DownstreamError, LogError: some of the rows may be written (``APPLIED``).
    """
    plan, slice_ = prepared.plan, prepared.slice_
    context = CopyContext(config.target, config.key, token, config.retry_time, plan, slice_)
    work, then = partial(render, plan), partial(write_run, context)
    found = prepared.rows.results_of_runs(slice_, config.worker_count, work, then)
    statements = sum(one.statements for one in found if isinstance(one, Written))
    merged = sum(one.rows for one in found if isinstance(one, Written)) - statements
    return PreparedRows(slice_, row_counts=prepared.row_counts + RowCounts(merged=merged), written=statements)


def write_run(context: CopyContext, run: Slice, results: Sequence[Result]) -> Iterator[Result]:
    """Write the rows of a run of epochs in a transaction of its own."""
    copied = assemble_copy(run, context.plan, results)
    key = WorkerKey(context.target, context.channel, -threading.get_ident())
    with_session(key, context.retry_time, partial(_write, context, copied))
    reached("copied.after_share")
    yield Written(len(copied), sum(one.insert.rows for one in copied))


def _write(context: CopyContext, copied: Iterable[CopiedStatement], session: Session) -> None:
    with transaction(session):
        found = position_store.read(session, context.channel, share=True)
        context.slice_.check_next(position_store.check_token(found, context.token, context.channel))
        lock_tables(session, {one.table.target_name: one.table.definition for one in copied})
        write_copied(session, copied, context.slice_.where)
