"""Where a channel's changes go: the contract of every kind of target.

A sink holds the channel's position together with what it has written, and changes both atomically. Everything else
follows: a slice may be offered any number of times, and takes effect once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from schemas.errors import TailraceError
from schemas.structure import TableStructure
from spark_consumer.epochs.position import Position
from spark_consumer.epochs.slices import Slice
from spark_consumer.plan.counters import Applied
from spark_consumer.rows.slice_rows import SliceRows

#: a slice whose rows a sink has read and prepared; only the sink knows its fields
P = TypeVar("P")


class Sink(Protocol[P]):
    """The channel's only writer. One thread uses it. It raises TailraceErrors; ``applied`` says what is applied."""

    @property
    def position(self) -> Position:
        """Where the channel stands, as of the last commit."""

    def resume(self, rows: SliceRows) -> None:
        """Set where rows are read from, and finish a partly applied slice of an earlier run."""

    def plan(self, slice_: Slice, structures: Mapping[str, TableStructure]) -> Callable[[], P]:
        """Plan a slice against the target as it is.

        Args:
            structures: those of its rows, by fingerprint.

        Returns:
            What reads and renders its rows; it may run in any thread, beside ``apply`` of the slice before.
        """

    def apply(self, prepared: P) -> Applied:
        """Apply a slice and move the position. If it fails, the position stays, and offering the slice again is safe.

        One that is applied already changes nothing. One that does not begin at the position is an error, and so is
        being no longer the channel's writer.
        """

    def paused_since(self) -> str | None:
        """Return since when an operator has paused the channel, in UTC; None if it is not paused."""

    def move_to(self, position: Position) -> None:
        """Move the position where that changes no row."""

    def abort(self) -> None:
        """Abort the current slice, from another thread; it is applied completely or not at all."""

    def record_end(self, error: TailraceError | None = None) -> None:
        """Record that the run ended, normally or with this error."""

    def close(self) -> None:
        """Release the target."""
