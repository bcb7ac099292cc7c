"""The source of a slice's rows, the function that processes them, and the check that none is missing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from schemas.errors import NOTHING_APPLIED, LogError
from schemas.wire.epoch import DIGEST_MODULUS
from spark_consumer.epochs.slices import Slice
from spark_consumer.rows.results import Result, RowTally


@dataclass(frozen=True)
class RangeRows:
    """Rows of one partition, in log order.

    Attributes:
        keys: the Kafka keys.
        values: the Avro values, one for each key.
        offsets: the Kafka offsets, one for each key; empty if the work does not need them.
    """

    keys: Sequence[bytes]
    values: Sequence[bytes]
    partition: int = 0
    offsets: Sequence[int] = ()


#: processes the rows of a range, or a share of them that has all rows of its keys
Work = Callable[[RangeRows], Iterable[Result]]
#: processes an epoch by the results of other work for its rows
EpochWork = Callable[[Slice, Sequence[Result]], Iterable[Result]]


class SliceRows(ABC):
    """Reads the rows of slices: from Kafka on the executors, or from a recovery's memory."""

    @abstractmethod
    def results(self, slice_: Slice, work: Work, *, with_offsets: bool = False) -> list[Result]:
        """Return the results of ``work`` for all rows of a slice.

        Raises:
            LogError: the rows cannot be read, or a record is not a row.
            DownstreamError: ``work`` is not possible for a row.
        """

    def results_of_epochs(self, slice_: Slice, tasks: int, work: Work, then: EpochWork) -> list[Result]:
        """Return the results of ``then`` for each epoch of a slice that has rows, in at most so many tasks.

        ``then`` is given the epoch and the results of ``work`` for all its rows.

        Raises:
            LogError: as ``results``.
            DownstreamError: ``work`` or ``then`` is not possible.
        """
        every = (epoch for epoch in slice_.each_epoch if epoch.rows)
        return [result for epoch in every for result in then(epoch, self.results(epoch, work))]


def verify(slice_: Slice, results: Iterable[Result]) -> None:
    """Raise LogError TR554 if the rows that were read do not match the counts and digests of the epochs."""
    tallies = [one for one in results if isinstance(one, RowTally)]
    rows = sum(one.rows for one in tallies)
    digest = sum(one.digest for one in tallies) % DIGEST_MODULUS
    if (rows, digest) != (slice_.rows, slice_.digest):
        raise LogError(
            "TR554",
            f"the rows topic does not match the records of epochs {slice_.first.epoch} to {slice_.last.epoch}:"
            f" {rows} rows of {slice_.rows}, digest {digest} instead of {slice_.digest}",
            where=slice_.where,
            hint="records were lost or changed",
            applied=NOTHING_APPLIED,
        )
