"""Replaces the epoch log in Kafka: epochs that the publisher commits are applied to the downstream at once."""

from __future__ import annotations

from dataclasses import replace

from producer.epochs.open_epoch import EpochWith, Records
from relay_store.layout.directory import RelayPosition
from schemas.errors import DownstreamError
from schemas.structure import TableStructure
from schemas.tables import QualifiedName
from schemas.wire.epoch import DIGEST_MODULUS, EpochCommitted, digest_of
from spark_consumer.epochs.position import Position
from spark_consumer.epochs.slices import LoggedEpoch, RelaySlice, Slice
from spark_consumer.plan.refusal import EventRefused
from spark_consumer.rows.results import Result
from spark_consumer.rows.slice_rows import RangeRows, SliceRows, Work
from spark_consumer.sinks.server import ServerSink


def as_epoch(position: Position) -> EpochCommitted | None:
    """Return an epoch that ends at a position; None if nothing is applied yet."""
    if position.epoch < 0 and position.relay_log is None and not position.executed_gtids:
        return None
    subdir, _, file = (position.relay_log or "").rpartition("/")
    source = position.source_log, position.source_pos
    if position.source_log is None and file:
        # Nothing is applied yet: the position in the relay log is that of the epoch after which the channel starts.
        source = RelayPosition(subdir, file, position.relay_pos or 0).upstream
    return EpochCommitted(
        epoch=position.epoch,
        first_gtid=None,
        last_gtid=None,
        executed_gtids=position.executed_gtids,
        source_id=subdir.rpartition(".")[0],
        source_file=source[0] or "",
        source_pos=source[1] or 0,
        relay_dir=subdir,
        relay_file=file,
        relay_pos=position.relay_pos or 0,
        ranges=(),
        tables=(),
        structures=(),
        ddl=None,
        rows=0,
        transactions=0,
        digest=0,
        first_commit_ms=0,
        last_commit_ms=0,
        published_ms=0,
        prepared=position.prepared,
    )


class RecordRows(SliceRows):
    """The rows of the present epoch, as the publisher made them."""

    def __init__(self) -> None:
        self.records = Records()

    def results(self, slice_: Slice, work: Work, *, with_offsets: bool = False) -> list[Result]:
        return list(work(RangeRows(self.records.keys, self.records.values)))


class AppliedLog:
    """The publisher's log of one recovery; each epoch becomes one downstream transaction.

    Args:
        sink: the channel's sink, which reads its rows from ``rows``.
        seen: the names of tables that have rows; the log adds to it.
    """

    def __init__(self, sink: ServerSink, rows: RecordRows, seen: set[QualifiedName]) -> None:
        self._sink, self._rows, self._seen = sink, rows, seen
        self._structures: dict[str, TableStructure] = {}
        self._digest = 0

    def begin(self) -> None:
        """Start an epoch."""
        self._rows.records, self._digest = Records(), 0

    def write(self, records: Records) -> None:
        """Keep an epoch's rows until it is committed."""
        self._digest = (self._digest + digest_of(records.values)) % DIGEST_MODULUS
        self._rows.records.extend(records)

    def commit(
        self,
        epoch_with: EpochWith,
        tracked: tuple[tuple[bytes, bytes | None], ...] = (),
    ) -> EpochCommitted:
        """Apply the epoch, or nothing of it if DownstreamError or LogError is raised."""
        # The epoch belongs to no log, so the channel keeps its log_id.
        epoch = replace(epoch_with((), self._digest, ()), log_id="")
        self._structures |= {v.fingerprint: TableStructure.from_json(v.structure) for v in epoch.structures}
        self._seen.update((v.db, v.table) for v in epoch.structures)
        if epoch.transactions or epoch.rows or epoch.ddl:
            self._apply(epoch)
        self._rows.records = Records()
        return epoch

    def abort(self) -> None:
        """Drop the epoch, of which nothing is applied yet."""
        self._rows.records = Records()

    def _apply(self, epoch: EpochCommitted) -> None:
        position = self._sink.position
        start = (position.relay_log, position.relay_pos)
        slice_ = RelaySlice((LoggedEpoch(epoch, position.epochs_offset),), start)
        try:
            self._sink.apply(self._sink.plan(slice_, self._structures)())
        except DownstreamError as error:
            if error.where.event is None:
                raise
            raise _without_event(error) from error


def _without_event(error: DownstreamError) -> DownstreamError:
    """Return the error without the event's number, since `tailrace error` knows only events of the epoch log."""
    return DownstreamError(
        error.code,
        error.message,
        where=replace(error.where, epoch=None, event=None),
        hint=error.refusal.hint if isinstance(error, EventRefused) else error.hint,
        applied=error.applied,
        statement=error.statement,
    )
