"""The source of a slice's rows, the function that processes them, and the check that none is missing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat

from schemas.errors import NOTHING_APPLIED, LogError
from schemas.wire.epoch import DIGEST_MODULUS
from spark_consumer.epochs.slices import Slice, divided
from spark_consumer.rows.results import Result, RowTally

_RUN_ROWS = 50_000


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
#: processes a run of epochs by the results of other work for their rows
RunWork = Callable[[Slice, Sequence[Result]], Iterable[Result]]


class SliceRows(ABC):
    """Reads the rows of slices: from Kafka on the executors, or from a recovery's memory."""

    def expect(self, slice_: Slice) -> None:
        """Prepare for a slice that will be read, without waiting."""
        del slice_

    @abstractmethod
    def results(self, slice_: Slice, work: Work, *, with_offsets: bool = False) -> list[Result]:
        """Return the results of ``work`` for all rows of a slice.

        Raises:
            LogError: the rows cannot be read, or a record is not a row.
            DownstreamError: ``work`` is not possible for a row.
        """

    def results_of_runs(self, slice_: Slice, most: int, work: Work, then: RunWork) -> list[Result]:
        """Return the results of ``then`` for all runs of a slice's epochs (``runs_of``), at most so many side by side.

        ``then`` is given the run and the results of ``work`` for all its rows.

        Raises:
            LogError: as ``results``.
            DownstreamError: ``work`` or ``then`` is not possible.
        """
        return [result for run in runs_of(slice_) for result in then(run, self.results(run, work))]


def runs_of(slice_: Slice) -> list[Slice]:
    """Divide a slice's epochs into runs of at most ``_RUN_ROWS`` rows; a larger epoch is one by itself."""
    return divided(slice_.epochs, repeat(_RUN_ROWS))


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
