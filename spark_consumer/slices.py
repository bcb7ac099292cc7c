"""Slices: runs of whole epochs that become one downstream transaction each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from schemas.epoch import DIGEST_MODULUS, EpochCommitted, OffsetRange, SchemaChanged
from schemas.errors import LogError, Where


@dataclass(frozen=True)
class LoggedEpoch:
    """An epoch and its offset in the epochs topic."""

    record: EpochCommitted
    offset: int


@dataclass(frozen=True)
class Slice:
    """Consecutive epochs; with a DDL it is the DDL's epoch alone, and the DDL comes before its rows."""

    epochs: tuple[LoggedEpoch, ...]

    @property
    def first(self) -> EpochCommitted:
        return self.epochs[0].record

    @property
    def last(self) -> EpochCommitted:
        return self.epochs[-1].record

    @property
    def ddl(self) -> SchemaChanged | None:
        return self.first.ddl

    @property
    def rows(self) -> int:
        return sum(logged.record.rows for logged in self.epochs)

    @property
    def digest(self) -> int:
        return sum(logged.record.digest for logged in self.epochs) % DIGEST_MODULUS

    @property
    def where(self) -> Where:
        return Where(gtid=self.last.last_gtid, epoch=self.first.epoch)

    @cached_property
    def fingerprints(self) -> frozenset[str]:
        """Fingerprints of the structures that the rows were written with."""
        return frozenset(table.fingerprint for logged in self.epochs for table in logged.record.tables)

    @cached_property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """Per partition one range from the first epoch's start to the last one's end.

        What lies in between and belongs to no epoch is transaction markers and aborted records, which a
        read_committed reader does not see.
        """
        bounds: dict[int, tuple[int, int]] = {}
        for logged in self.epochs:
            for part in logged.record.ranges:
                if part.end > part.start:
                    start = bounds.get(part.partition, (part.start, 0))[0]
                    bounds[part.partition] = (start, part.end)
        return tuple(OffsetRange(partition, *bounds[partition]) for partition in sorted(bounds))


def follow(position: int, found: Iterable[LoggedEpoch]) -> list[LoggedEpoch]:
    """The epochs behind ``position`` in order, without repetitions. Raises LogError at a gap."""
    fresh: list[LoggedEpoch] = []
    for logged in sorted(found, key=lambda logged: logged.record.epoch):
        expected = position + 1 + len(fresh)
        if logged.record.epoch < expected:
            continue
        if logged.record.epoch > expected:
            raise LogError(
                "TR551",
                f"epoch {expected} is missing: the log goes on with epoch {logged.record.epoch}",
                where=Where(epoch=expected),
                hint="the log was cut or belongs to another producer; restore it, or load the tables anew",
            )
        fresh.append(logged)
    return fresh


def cut(epochs: Sequence[LoggedEpoch], max_rows: int) -> Iterator[Slice]:
    """Slices of at most ``max_rows`` rows (a larger epoch is one by itself); a DDL epoch is always alone."""
    taken: list[LoggedEpoch] = []
    rows = 0
    for logged in epochs:
        alone = logged.record.ddl is not None
        if taken and (alone or rows + logged.record.rows > max_rows):
            yield Slice(tuple(taken))
            taken, rows = [], 0
        if alone:
            yield Slice((logged,))
            continue
        taken.append(logged)
        rows += logged.record.rows
    if taken:
        yield Slice(tuple(taken))
