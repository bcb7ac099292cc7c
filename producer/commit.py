"""Commits epochs to the log, one transaction each. While one is being committed, the next one is decoded."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol

from producer.decode.nested_events import needed_from
from producer.epochs.open_epoch import EpochWith, Records, SealedEpoch, TrackedRecord
from producer.epochs.progress import PublishProgress
from producer.upstream.origins import Origins
from relay_store.layout.directory import RelayPosition
from relay_store.layout.readers import Mark
from relay_store.read.tail import RelayTail
from schemas.wire.epoch import EpochCommitted


class EpochDestination(Protocol):
    """Where epochs are committed: ``EpochLog`` in Kafka, or a downstream in a recovery."""

    def begin(self) -> None:
        """Begin an epoch's transaction."""
        ...

    def write(self, records: Records) -> None:
        """Take the epoch's next rows."""
        ...

    def commit(self, epoch_with: EpochWith, tracked: tuple[TrackedRecord, ...] = ()) -> EpochCommitted:
        """Commit the epoch, and return its record.

        Args:
            epoch_with: makes the record of the rows' offset ranges, digest and runs.
            tracked: the records of tracked structures that the epoch changed.
        """
        ...

    def abort(self) -> None:
        """Abort the open transaction, if that is still possible."""
        ...


class Committer:
    """Writes and commits the epochs of one run.

    Args:
        log_id: of the log that they go to.
        origins: ids of the servers and logs that the rows originate from, for each epoch's record.
        progress: gets the counts.
        tail: of the relay log; no epoch is committed past what is on disk. None if no mirror is running.
        mark: what keeps purges away from files that are not published yet; None where nothing is purged.
    """

    def __init__(
        self,
        log: EpochDestination,
        log_id: str,
        origins: Origins,
        progress: PublishProgress,
        tail: RelayTail | None,
        mark: Mark | None,
    ) -> None:
        self._log, self._log_id, self._origins = log, log_id, origins
        self._progress, self._tail, self._mark = progress, tail, mark
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="commit")
        self._under_way: Future[None] | None = None
        self._in_transaction = False
        self._needed: RelayPosition | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a commit was started and not yet finished."""
        return self._under_way is not None

    @property
    def is_waiting(self) -> bool:
        """Whether the last commit is still unacknowledged."""
        return self._under_way is not None and not self._under_way.done()

    def write(self, records: Records) -> None:
        """Write records of the open epoch inside its transaction, behind the commit of the epoch before."""
        self.finish()
        if not self._in_transaction:
            self._log.begin()
            self._in_transaction = True
        self._log.write(records)

    def commit(self, epoch: SealedEpoch) -> None:
        """Begin to commit an epoch; ``finish`` waits for it.

        Raises:
            UpstreamError: the epoch holds rows that this pipeline wrote itself (a replication loop).
        """
        if epoch.saw_channel_table:
            self._origins.note_other_pipeline()
        self._origins.refresh_if_due()
        self._progress.sealed(epoch.record.first_commit_ms)
        self.write(epoch.records)
        self._under_way = self._thread.submit(self._commit, epoch)

    def finish(self) -> None:
        """Wait until Kafka has the epoch that is under way."""
        if self._under_way is not None:
            self._under_way.result()
            self._under_way, self._in_transaction = None, False
            if self._mark is not None and self._needed is not None:
                self._mark.advance(self._needed)

    def close(self) -> None:
        """Wait for a commit that is under way, and abort an open transaction."""
        self._thread.shutdown(wait=True)
        committed = self._under_way is not None and self._under_way.exception() is None
        if self._in_transaction and not committed:
            self._log.abort()

    def _commit(self, epoch: SealedEpoch) -> None:
        if self._tail is not None:
            self._tail.wait_until_durable(epoch.end)
        self._progress.begins_commit(time.monotonic())
        committed = self._log.commit(
            lambda ranges, digest, runs: replace(
                epoch.record,
                ranges=ranges,
                digest=digest,
                runs=runs,
                published_ms=time.time_ns() // 1_000_000,
                log_id=self._log_id,
                origins=self._origins.ids,
            ),
            epoch.tracked,
        )
        self._progress.ends_commit(time.monotonic())
        self._progress.committed(committed)
        self._needed = needed_from(committed)
