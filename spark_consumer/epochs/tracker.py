"""The schema tracker: every structure of the log, in Spark's state (``spark_tracker``) or in memory.

For each batch the tracker outputs the epochs and every structure that their rows were written with. The
executors' renderers are made from this output, never from the epoch records, so a table whose structure is not in the
state cannot be written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from schemas.access.topic import Record
from schemas.errors import NOTHING_APPLIED, LogError, Where
from schemas.structure import TableStructure
from schemas.wire.epoch import EpochCommitted
from schemas.wire.log_records import FOREIGN, At, parsed_structure, read_epoch, structure_of
from spark_consumer.epochs.slices import LoggedEpoch

# The kinds of rows: an epoch; a structure that is in use; one that the tracker does not have; an invalid record.
EPOCH, STRUCTURE, UNKNOWN, BROKEN = range(4)
#: the version of the state's format and meaning; a state of another version is rebuilt from the schemas topic
STATE_VERSION = 4


class TrackerRow(NamedTuple):
    """One output of the tracker.

    Attributes:
        epoch: the epoch's number, -1 for BROKEN if it is not known; for STRUCTURE the one that introduced it.
        table_name: ``database.table``; set for STRUCTURE and UNKNOWN, as is ``fingerprint``.
        text: the structure's JSON, or the reason why the record is invalid.
        hint: what to do about an invalid record.
        record: the record's bytes, for EPOCH.
    """

    kind: int
    epoch: int
    log_offset: int
    table_name: str | None = None
    fingerprint: str | None = None
    text: str | None = None
    hint: str | None = None
    record: bytes | None = None


class Versions(Protocol):
    """The structures by table and fingerprint, each with the epoch that introduced it; ``MapState`` is one."""

    def getValue(self, key: Any) -> Any:
        """Return epoch and structure; None if there is none."""

    def updateValue(self, key: Any, value: Any) -> None:
        """Set epoch and structure."""


class MemoryVersions(dict[tuple[str, str], tuple[int, str]]):
    """Structures in this process's memory."""

    getValue = dict.get
    updateValue = dict.__setitem__


def learn(versions: Versions, table: str, fingerprint: str, epoch: int, structure: str) -> bool:
    """Add a structure. Returns False if the fingerprint already names another one (possible only with registry ids)."""
    found = versions.getValue((table, fingerprint))
    if found is not None and found[1] != structure:
        return False
    versions.updateValue((table, fingerprint), (epoch, structure))
    return True


def tracked(versions: Versions, records: Iterable[Record], topic: str) -> Iterator[TrackerRow]:
    """Yield the tracker's output for records of the epochs topic, which are in the log's order."""
    answered: set[tuple[str, str]] = set()
    for offset, key, value in records:
        at = At(topic, offset)
        try:
            epoch = read_epoch(
                None if value is None else bytes(value), at, None if key is None else bytes(key)
            )
            for version in epoch.structures:
                structure_of(version, at)
        except LogError as error:
            number = -1 if error.where.epoch is None else error.where.epoch
            yield TrackerRow(BROKEN, number, offset, text=error.message, hint=error.hint)
            continue
        yield TrackerRow(EPOCH, epoch.epoch, offset, record=value)
        for version in epoch.structures:
            table = f"{version.db}.{version.table}"
            if not learn(versions, table, version.fingerprint, epoch.epoch, version.structure):
                what = f"two structures of {table} have the fingerprint {version.fingerprint}"
                yield TrackerRow(BROKEN, epoch.epoch, offset, table, text=what, hint=FOREIGN)
        for touched in epoch.tables:
            named = f"{touched.db}.{touched.table}", touched.fingerprint
            if named in answered:
                continue
            found = versions.getValue(named)
            if found is not None and found[0] <= epoch.epoch:
                answered.add(named)
                yield TrackerRow(STRUCTURE, found[0], offset, *named, found[1])
            else:
                yield TrackerRow(UNKNOWN, epoch.epoch, offset, *named)


@dataclass(frozen=True)
class TrackerOutput:
    """The tracker's output for one micro-batch, in any order.

    Attributes:
        structures: the structures by their fingerprints.
        unknown, broken: the rows of these kinds.
    """

    epochs: list[LoggedEpoch]
    structures: dict[str, TableStructure]
    unknown: list[Any]
    broken: list[Any]

    @staticmethod
    def of(rows: Sequence[Any]) -> TrackerOutput:
        """Build the values from the output's rows."""
        by_kind: dict[int, list[Any]] = {kind: [] for kind in (EPOCH, STRUCTURE, UNKNOWN, BROKEN)}
        for row in rows:
            by_kind[row.kind].append(row)
        return TrackerOutput(
            [LoggedEpoch(EpochCommitted.decode(bytes(row.record)), row.log_offset) for row in by_kind[EPOCH]],
            {row.fingerprint: parsed_structure(row.text) for row in by_kind[STRUCTURE]},
            by_kind[UNKNOWN],
            by_kind[BROKEN],
        )

    def refuse_unknown(self, position: int) -> None:
        """Raise LogError TR552 if an epoch after ``position`` has rows of a structure that is not known."""
        for row in self.unknown:
            if row.epoch > position:
                raise LogError(
                    "TR552",
                    f"the schema tracker has no structure {row.fingerprint} of {row.table_name}",
                    where=Where(table=row.table_name, epoch=row.epoch),
                    hint="the epoch that introduced it, or the schemas topic, is damaged",
                    applied=NOTHING_APPLIED,
                )

    def refuse_broken(self, offset: int) -> None:
        """Raise LogError TR568 if a record after ``offset`` is invalid."""
        broken = [row for row in self.broken if row.log_offset > offset]
        if broken:
            first = min(broken, key=lambda row: int(row.log_offset))
            where = Where(epoch=first.epoch if first.epoch >= 0 else None)
            raise LogError("TR568", str(first.text), where=where, hint=str(first.hint))
