"""Where a channel's changes go: the contract of every kind of target.

A sink holds the channel's position together with what it has written, and moves both in one step that either happens
or does not. Everything else follows: a slice may be offered any number of times, and takes effect once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from schemas.errors import TailraceError
from schemas.structure import TableStructure
from spark_consumer.apply.workers.reader import PartsReader
from spark_consumer.epochs.position import Position
from spark_consumer.epochs.slices import Slice
from spark_consumer.plan.counters import Stages

#: a slice as a sink has prepared it, which nobody else looks into
Prepared = TypeVar("Prepared")


class Sink(Protocol[Prepared]):
    """The channel's only writer. One thread uses it; what it raises is a TailraceError, with nothing half applied."""

    @property
    def position(self) -> Position:
        """Where the channel stands, as of the last commit."""

    def begin(self, reader: PartsReader) -> None:
        """Read rows with this, and first of all finish what an earlier run has left in part, if it did."""

    def prepare(self, slice_: Slice, structures: Mapping[str, TableStructure]) -> Callable[[], Prepared]:
        """Plan a slice against the target as it is.

        Args:
            structures: those of its rows, by fingerprint.

        Returns:
            What reads and renders its rows; it may run in any thread, beside ``apply`` of the slice before.
        """

    def apply(self, prepared: Prepared) -> tuple[int, Stages]:
        """Apply a slice and move the position, both or nothing; statements or files, and what the stages did.

        One that is applied already changes nothing. One that does not begin at the position is an error, and so is
        being no longer the channel's writer.
        """

    def move_to(self, position: Position) -> None:
        """Move the position where that changes no row."""

    def give_up(self) -> None:
        """From another thread: leave what is in hand, of which nothing or all is applied."""

    def end(self, error: TailraceError | None = None) -> None:
        """Write down for whoever asks later that the run has ended: by itself, or by this error."""

    def close(self) -> None:
        """Let go of the target."""
