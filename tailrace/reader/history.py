"""Finds a table's structures over the epochs of the log, with pure functions over the records of the topics.

A DDL is published without the new structure; the table's next rows name it. It is then valid from the DDL's epoch on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from schemas.errors import LogError, Where
from schemas.gtid.sets import GtidSet, flavor_of, parse_gtid_set
from schemas.quote import quoted
from schemas.structure import Column, TableStructure
from schemas.tables import QualifiedName
from schemas.wire.epoch import EpochCommitted, SchemaChanged, StructureVersion
from schemas.wire.log_records import structure_of
from spark_consumer.ddl.translate import database_of


@dataclass(frozen=True)
class StructurePeriod:
    """The state of a table from one epoch up to the next period.

    Attributes:
        epoch: the first epoch.
        version: the structure; None if no rows have named it yet.
        ddl: the statement that starts the period; None if rows start it.
        gone: whether the table does not exist under this name, because it was dropped or renamed.
    """

    epoch: int
    version: StructureVersion | None = None
    ddl: str | None = None
    gone: bool = False


@dataclass(frozen=True)
class StructureLookup:
    """A table's structure at one epoch.

    Attributes:
        epoch: the requested epoch.
        gtids: the GTIDs that are executed at its end.
        version: the last structure that rows have named up to this epoch.
        first, last: the epochs that it is valid for, as far as the log shows; ``last`` is None up to the log's end.
        changed: a DDL after it, up to ``epoch``, that no rows followed.
        periods: the table's history up to the log's end.
    """

    name: QualifiedName
    epoch: int
    gtids: str
    version: StructureVersion
    first: int
    last: int | None
    changed: StructurePeriod | None
    periods: tuple[StructurePeriod, ...]

    @property
    def structure(self) -> TableStructure:
        """The structure of ``version``."""
        return structure_of(self.version)


@dataclass(frozen=True)
class LookupPoint:
    """The requested point: an epoch, the first epoch whose executed set contains a GTID set, or the log's end."""

    epoch: int | None = None
    gtids: str | None = None


def find_structure(
    name: QualifiedName,
    point: LookupPoint,
    epochs: Iterable[EpochCommitted],
    versions: Iterable[StructureVersion],
) -> StructureLookup:
    """Return a table's structure at a point of the log.

    Args:
        epochs: all epochs of the log, in order.
        versions: all structures of the schemas topic.

    Raises:
        LogError: TR560, invalid GTID set; TR580, the point is not in the log; TR581, up to there no rows have named
            the table's structure, or the table does not exist.
    """
    of_table = sorted((v for v in versions if (v.db, v.table) == name), key=lambda v: v.epoch)
    periods: list[StructurePeriod] | None = None
    first: EpochCommitted | None = None
    last: EpochCommitted | None = None
    found: EpochCommitted | None = None
    wanted = _wanted(point)
    for epoch in epochs:
        first, last = first or epoch, epoch
        if periods is None:
            periods = [StructurePeriod(v.epoch, v) for v in of_table if v.epoch < epoch.epoch][-1:]
        _follow(periods, name, epoch, of_table)
        if found is None and _is_at(epoch, point, wanted):
            found = epoch
    if first is None or last is None or periods is None:
        raise LogError("TR580", "the log has no epochs yet", hint="start the producer first")
    return _answer(name, _checked(point, wanted, first, last, found), periods)


def _wanted(point: LookupPoint) -> GtidSet | None:
    if point.gtids is None:
        return None
    try:
        return parse_gtid_set(point.gtids, flavor_of(point.gtids))
    except ValueError as error:
        raise LogError("TR560", f"--at-gtid: {error}") from error


def _is_at(epoch: EpochCommitted, point: LookupPoint, wanted: GtidSet | None) -> bool:
    if wanted is not None:
        executed = epoch.executed_gtids
        return flavor_of(executed) == flavor_of(point.gtids or "") and _set(epoch).contains(wanted)
    return epoch.epoch == point.epoch


def _set(epoch: EpochCommitted) -> GtidSet:
    return parse_gtid_set(epoch.executed_gtids, flavor_of(epoch.executed_gtids))


def _checked(
    point: LookupPoint,
    wanted: GtidSet | None,
    first: EpochCommitted,
    last: EpochCommitted,
    found: EpochCommitted | None,
) -> EpochCommitted:
    """Return the epoch at the point. Raises LogError if it is not in the log."""
    kept = f"the log has epochs {first.epoch} to {last.epoch}"
    if point.epoch is None and wanted is None:
        return last
    if found is None:
        early = point.epoch is not None and point.epoch < first.epoch
        raise LogError(
            "TR580",
            f"{'epoch ' + str(point.epoch) if wanted is None else 'the GTID set'} is"
            f" {'no longer in the log' if early else 'not in the log yet'}: {kept}",
            where=Where(epoch=point.epoch),
            hint=f"name an epoch from {first.epoch} to {last.epoch}"
            + (f", or GTIDs within {last.executed_gtids}" if wanted is not None else ""),
        )
    if wanted is not None and found is first and first.epoch > 0 and not wanted.contains(_set(first)):
        raise LogError(
            "TR580",
            f"the GTID set ends before the oldest epoch of the log: {kept}",
            hint=f"name GTIDs from {first.executed_gtids} to {last.executed_gtids}",
        )
    return found


def _follow(
    periods: list[StructurePeriod],
    name: QualifiedName,
    epoch: EpochCommitted,
    versions: list[StructureVersion],
) -> None:
    """Extend the periods by one epoch: by its DDL first, then by its rows."""
    # The start of a copy has the structure that the table has already.
    ddl = epoch.ddl if epoch.copy is None else None
    if ddl is not None and (effect := _effect(ddl, name)) is not None:
        periods.append(StructurePeriod(epoch.epoch, None, ddl.statement, effect))
    for touched in epoch.tables:
        if (touched.db, touched.table) != name:
            continue
        now = periods[-1] if periods else None
        if now is not None and now.version is not None and now.version.fingerprint == touched.fingerprint:
            continue
        version = next(
            (
                v
                for v in reversed(versions)
                if v.fingerprint == touched.fingerprint and v.epoch <= epoch.epoch
            ),
            None,
        )
        if now is not None and now.version is None and not now.gone:
            periods[-1] = replace(now, version=version)
        else:
            periods.append(StructurePeriod(epoch.epoch, version))


def _effect(ddl: SchemaChanged, name: QualifiedName) -> bool | None:
    """Return whether a DDL drops or renames the table away, or None if it does not affect the table."""
    if ddl.kind == "DROP DATABASE":
        return True if database_of(ddl) == name[0] else None
    effect = None
    for table in ddl.tables:
        if table.renamed_to is not None and (table.renamed_to_db or table.db, table.renamed_to) == name:
            effect = False
        elif (table.db, table.table) == name:
            effect = ddl.kind.startswith("DROP TABLE") or table.renamed_to is not None
    return effect


def _answer(name: QualifiedName, at: EpochCommitted, periods: list[StructurePeriod]) -> StructureLookup:
    known = [period for period in periods if period.epoch <= at.epoch]
    where = Where(table=".".join(name), epoch=at.epoch)
    if not known:
        raise LogError(
            "TR581",
            f"the log has no rows and no DDL of this table up to epoch {at.epoch}",
            where=where,
            hint="`tailrace topic cat --table PATTERN` shows the tables of the log; names are case-sensitive",
        )
    now = known[-1]
    shown = next((number for number in range(len(known) - 1, -1, -1) if known[number].version), None)
    if now.gone or shown is None or any(period.gone for period in known[shown + 1 :]):
        what = "has not existed" if now.gone else "has had no rows"
        raise LogError(
            "TR581",
            f"the table {what} since epoch {now.epoch}: {(now.ddl or '')[:200]}",
            where=where,
            hint="ask for an earlier epoch" if now.gone else "its next rows will show its structure",
        )
    version = known[shown].version
    assert version is not None
    start = shown
    while start and _same(periods[start - 1], version):
        start -= 1
    end = shown
    while end + 1 < len(periods) and _same(periods[end + 1], version):
        end += 1
    last = periods[end + 1].epoch - 1 if end + 1 < len(periods) else None
    changed = known[shown + 1] if shown + 1 < len(known) else None
    return StructureLookup(
        name, at.epoch, at.executed_gtids, version, periods[start].epoch, last, changed, tuple(periods)
    )


def _same(period: StructurePeriod, version: StructureVersion) -> bool:
    return period.version is not None and period.version.fingerprint == version.fingerprint


def answer_text(answer: StructureLookup, *, history: bool) -> str:
    """Return the structure as CREATE TABLE, with its epochs and history in comments."""
    lines = [
        f"-- fingerprint {answer.version.fingerprint}",
        f"-- epochs {_range(answer.first, answer.last)}, requested epoch {answer.epoch}"
        + (f" ({answer.gtids})" if answer.gtids else ""),
    ]
    if answer.changed is not None:
        lines.append(f"-- changed since, no rows yet: {_period(answer.changed)}")
    lines.append(_create(answer.structure))
    if history:
        lines += ["-- history:", *(f"-- {_period(period)}" for period in answer.periods)]
    return "\n".join(lines)


def answer_dict(answer: StructureLookup, *, history: bool) -> dict[str, Any]:
    """Return the structure for ``--json``; see docs/PIPELINE.md."""
    structure = answer.structure
    found: dict[str, Any] = {
        "db": structure.db,
        "table": structure.table,
        "epoch": answer.epoch,
        "gtids": answer.gtids,
        "fingerprint": answer.version.fingerprint,
        "first_epoch": answer.first,
        "last_epoch": answer.last,
        "columns": [_column_dict(column) for column in structure.columns],
        "key": list(structure.key),
        "changed": None if answer.changed is None else _period_dict(answer.changed),
    }
    if history:
        found["history"] = [_period_dict(period) for period in answer.periods]
    return found


def _range(first: int, last: int | None) -> str:
    return f"from {first}" if last is None else f"{first} to {last}"


def _create(structure: TableStructure) -> str:
    lines = [f"  {_column(column)}" for column in structure.columns]
    if structure.key:
        lines.append(f"  PRIMARY KEY ({', '.join(map(quoted, structure.key))})")
    name = quoted(structure.db, structure.table)
    return f"CREATE TABLE {name} (\n" + ",\n".join(lines) + "\n);"


def _column(column: Column) -> str:
    charset = f" CHARACTER SET {column.charset}" if column.charset not in ("", "binary") else ""
    return f"{quoted(column.name)} {column.sql_type}{charset} {'NULL' if column.nullable else 'NOT NULL'}"


def _period(period: StructurePeriod) -> str:
    state = (
        "does not exist" if period.gone else period.version.fingerprint if period.version else "no rows yet"
    )
    return f"epoch {period.epoch}: {state}" + (f"; {' '.join(period.ddl.split())}" if period.ddl else "")


def _period_dict(period: StructurePeriod) -> dict[str, Any]:
    return {
        "epoch": period.epoch,
        "fingerprint": period.version.fingerprint if period.version else None,
        "ddl": period.ddl,
        "gone": period.gone,
    }


def _column_dict(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": column.sql_type,
        "nullable": column.nullable,
        "charset": column.charset,
        "members": list(column.members),
    }
