"""The plan of a slice: for each table structure, how the executors turn its rows into statements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from schemas.errors import DownstreamError, LogError, Where
from schemas.structure import TableStructure
from schemas.tables import TableFilter
from spark_consumer.merge import Limits, qualified
from spark_consumer.slices import Slice
from spark_consumer.target import TargetTable

_MARKER = b"\xc3\x01"


class Mode(Enum):
    """How a table's rows are applied."""

    #: net effect by key, DELETEs and INSERTs of many rows
    COMPACT = "compact"
    #: one statement a row in the upstream's order
    ORDERED = "ordered"
    #: another channel's or nobody's table: counted, not applied
    SKIP = "skip"


@dataclass(frozen=True)
class TablePlan:
    """One table structure of a slice.

    Attributes:
        header: the ten bytes that every row value of this structure starts with.
        writable: the columns to write, in the log's order.
        cascades: whether foreign keys of the downstream act on this table's family.
    """

    header: bytes
    structure: TableStructure
    mode: Mode
    writable: tuple[str, ...] = ()
    cascades: bool = False

    @property
    def name(self) -> str:
        return self.structure.name

    @property
    def target(self) -> bytes:
        """The downstream table in backticks."""
        return qualified(self.structure.db, self.structure.table)


@dataclass(frozen=True)
class SlicePlan:
    """All that an executor needs to know."""

    tables: tuple[TablePlan, ...]
    limits: Limits


def structures_of(piece: Slice, known: Mapping[str, TableStructure]) -> dict[str, TableStructure]:
    """The structures of a slice's rows by fingerprint, as the tracker knows them."""
    if unknown := sorted(piece.fingerprints - set(known)):
        raise LogError(
            "TR552",
            f"the schema tracker does not know the structure with fingerprint {unknown[0]}",
            where=piece.where,
            hint="the schemas topic or the epoch that brought it is damaged; nothing was applied",
        )
    return {fingerprint: known[fingerprint] for fingerprint in piece.fingerprints}


def plan_slice(
    structures: Mapping[str, TableStructure],
    targets: Mapping[tuple[str, str], TargetTable | None],
    wanted: TableFilter,
    limits: Limits,
    where: Where,
) -> SlicePlan:
    """Plan each structure against the downstream's table. Raises DownstreamError if it does not fit."""
    tables = []
    for fingerprint, structure in sorted(structures.items()):
        header = _MARKER + bytes.fromhex(fingerprint)
        if wanted.allows(structure.db, structure.table):
            target = targets[structure.db, structure.table]
            tables.append(_plan_table(header, structure, target, where))
        else:
            tables.append(TablePlan(header, structure, Mode.SKIP))
    return SlicePlan(tuple(tables), limits)


def _plan_table(
    header: bytes, structure: TableStructure, target: TargetTable | None, where: Where
) -> TablePlan:
    place = Where(gtid=where.gtid, epoch=where.epoch, table=structure.name)
    if target is None:
        raise DownstreamError(
            "TR605", "the downstream has no such table", where=place, hint="create it as the upstream has it"
        )
    names = [column.name for column in structure.columns if column.name.lower() not in target.generated]
    lacking = [name for name in names if name.lower() not in target.writable]
    if lacking:
        raise DownstreamError(
            "TR606",
            f"the downstream's table lacks the column {lacking[0]}",
            where=place,
            hint="add it as the upstream has it; nothing of this batch was applied",
        )
    # Values of columns that only the downstream has would not survive DELETE and INSERT.
    extra = target.writable - {name.lower() for name in names}
    ordered = bool(extra) or not structure.key or target.in_family
    mode = Mode.ORDERED if ordered else Mode.COMPACT
    return TablePlan(header, structure, mode, tuple(names), target.in_family)
