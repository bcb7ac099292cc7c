"""Makes epoch records for tests that use only some of their fields."""

from __future__ import annotations

from schemas.structure import TableStructure
from schemas.wire.avro_schema import row_schema
from schemas.wire.epoch import EpochCommitted, OffsetRange, SchemaChanged, StructureVersion, TableTouched

SOURCE = "00000000-0000-0000-0000-00000000cafe"


def version_record(epoch: int, structure: TableStructure) -> StructureVersion:
    """Return a structure as the epoch that first has it contains it."""
    schema = row_schema(structure)
    name = schema.fingerprint.hex()
    return StructureVersion(epoch, structure.db, structure.table, name, structure.to_json(), schema.text)


def epoch_record(
    epoch: int,
    *,
    rows: int = 0,
    ddl: SchemaChanged | None = None,
    executed: str = "",
    transactions: int = 0,
    ranges: tuple[OffsetRange, ...] = (),
    tables: tuple[TableTouched, ...] = (),
    structures: tuple[StructureVersion, ...] = (),
) -> EpochCommitted:
    """Return an epoch with the given fields and plausible others."""
    return EpochCommitted(
        epoch=epoch,
        first_gtid=None,
        last_gtid=None,
        executed_gtids=executed,
        source_id=SOURCE,
        source_file="mysql-bin.000001",
        source_pos=1000 + epoch,
        relay_dir=f"{SOURCE}.000001",
        relay_file="mysql-bin.000001",
        relay_pos=1000 + epoch,
        ranges=ranges,
        tables=tables,
        structures=structures,
        ddl=ddl,
        rows=rows,
        transactions=transactions,
        digest=0,
        first_commit_ms=0,
        last_commit_ms=0,
        published_ms=0,
    )
