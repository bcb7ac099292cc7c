"""Where the rows of a slice come from, what is done with them, and whether they are all there."""

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
        keys: Kafka keys.
        values: Avro values, one for each key.
        offsets: in Kafka, one for each key; empty unless the work asks for them.
    """

    keys: Sequence[bytes]
    values: Sequence[bytes]
    partition: int = 0
    offsets: Sequence[int] = ()


#: what is done with the rows of a range, or with a share of them that has all rows of its keys
Work = Callable[[RangeRows], Iterable[Result]]


class SliceRows(ABC):
    """Reads the rows of slices: from Kafka on the executors, or from a recovery's memory."""

    @abstractmethod
    def results(self, slice_: Slice, work: Work, *, with_offsets: bool = False) -> list[Result]:
        """The results of ``work`` over all rows of a slice.

        Raises:
            LogError: the rows cannot be read, or one of them is none.
            DownstreamError: ``work`` cannot be done for a row.
        """


def verify(slice_: Slice, results: Iterable[Result]) -> None:
    """Raise LogError TR554 unless the results are those of all the rows that the epochs say were written."""
    tallies = [one for one in results if isinstance(one, RowTally)]
    rows = sum(one.rows for one in tallies)
    digest = sum(one.digest for one in tallies) % DIGEST_MODULUS
    if (rows, digest) != (slice_.rows, slice_.digest):
        raise LogError(
            "TR554",
            f"the rows topic does not hold what epochs {slice_.first.epoch} to {slice_.last.epoch} say:"
            f" {rows} rows of {slice_.rows}, digest {digest} for {slice_.digest}",
            where=slice_.where,
            hint="records were lost or changed",
            applied=NOTHING_APPLIED,
        )
