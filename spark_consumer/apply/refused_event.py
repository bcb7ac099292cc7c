"""Finds the event that the downstream has refused."""

from __future__ import annotations

from contextlib import nullcontext

from schemas.errors import DownstreamError
from spark_consumer.apply.connection import Connection
from spark_consumer.apply.prepared import PreparedRows, PreparedRuns, SingleSlice, Writes
from spark_consumer.apply.write import write
from spark_consumer.plan.refusal import DdlRefused, EventRefused, RowRefused, cut_values, ddl_event


def named(error: DownstreamError, prepared: SingleSlice) -> EventRefused | None:
    """Return the error with its event; None if the event is not known."""
    if isinstance(error, EventRefused):
        return error
    ddl = prepared.slice_.ddl
    if ddl is not None and isinstance(error, DdlRefused):
        return EventRefused(error, ddl_event(prepared.slice_), None, cut_values(ddl.statement))
    if not (isinstance(error, RowRefused) and isinstance(prepared, PreparedRows) and error.where.event):
        return None
    event = prepared.events.get(error.where.event)
    if event is None:
        return None
    return EventRefused(error, event, error.where.table, error.statement or "")


def first_refused(connection: Connection, prepared: PreparedRows | PreparedRuns) -> EventRefused | None:
    """Write a slice that is prepared row by row, and roll it back. Returns the first refused row; None without one."""

    def work() -> EventRefused | None:
        session = connection.session
        session.execute("BEGIN")
        try:
            with (
                prepared.reading() if isinstance(prepared, PreparedRuns) else nullcontext([prepared]) as runs
            ):
                for run in runs:
                    try:
                        write(session, Writes(ordered=run.writes.ordered), run.slice_.where)
                    except DownstreamError as error:
                        return named(error, run)
        finally:
            session.execute("ROLLBACK")
        return None

    return connection.with_retries(work)
