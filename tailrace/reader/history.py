"""A table's structures over the epochs of the log: pure functions over what the topics hold.

A DDL does not bring the new structure; the table's next rows do. What they were written with then holds from the
DDL's epoch on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from schemas.errors import LogError, Where
from schemas.gtid.sets import GtidSet, flavor_of, parse_gtid_set
from schemas.structure import TableStructure
from schemas.tables import QualifiedName
from schemas.wire.epoch import EpochCommitted, SchemaChanged, StructureVersion
from schemas.wire.log_records import structure_of
from spark_consumer.ddl.translate import database_of


@dataclass(frozen=True)
class Span:
    """What is known of a table from one epoch up to the next span's.

    Attributes:
        epoch: the first one.
        version: the structure, None while no rows have shown it.
        ddl: the statement that the span begins with, if one does.
        gone: whether the table is not there under this name: dropped or renamed.
    """

    epoch: int
    version: StructureVersion | None = None
    ddl: str | None = None
    gone: bool = False


@dataclass(frozen=True)
class Answer:
    """A table at one epoch.

    Attributes:
        epoch: the epoch asked for.
        gtids: what is executed at its end.
        version: the last structure that rows have shown up to then.
        first, last: the epochs that it holds for, as far as the log tells; ``last`` None: up to its end.
        changed: a DDL since then, up to ``epoch``, behind which no rows came.
        spans: everything up to the log's end.
    """

    name: QualifiedName
    epoch: int
    gtids: str
    version: StructureVersion
    first: int
    last: int | None
    changed: Span | None
    spans: tuple[Span, ...]

    @property
    def structure(self) -> TableStructure:
        """The structure itself."""
        return structure_of(self.version)


@dataclass(frozen=True)
class LookupPoint:
    """Where to look: at an epoch, at the first one whose executed set holds a GTID set, or at the log's end."""

    epoch: int | None = None
    gtids: str | None = None


def look_up(
    name: QualifiedName,
    place: LookupPoint,
    epochs: Iterable[EpochCommitted],
    versions: Iterable[StructureVersion],
) -> Answer:
    """The table's structure at a position.

    Args:
        epochs: all that the log holds, in order.
        versions: all of the schemas topic.

    Raises:
        ConfigError, LogError: TR560 no GTID set; TR580, the position is not in the log; TR581, no rows have shown the
            table's structure up to there, or it is gone.
    """
    of_table = sorted((v for v in versions if (v.db, v.table) == name), key=lambda v: v.epoch)
    spans: list[Span] | None = None
    first: EpochCommitted | None = None
    last: EpochCommitted | None = None
    found: EpochCommitted | None = None
    wanted = _wanted(place)
    for epoch in epochs:
        first, last = first or epoch, epoch
        if spans is None:
            spans = [Span(v.epoch, v) for v in of_table if v.epoch < epoch.epoch][-1:]
        _follow(spans, name, epoch, of_table)
        if found is None and _is_at(epoch, place, wanted):
            found = epoch
    if first is None or last is None or spans is None:
        raise LogError("TR580", "the log holds no epoch yet", hint="start the producer first")
    return _answer(name, _checked(place, wanted, first, last, found), spans)


def _wanted(place: LookupPoint) -> GtidSet | None:
    if place.gtids is None:
        return None
    try:
        return parse_gtid_set(place.gtids, flavor_of(place.gtids))
    except ValueError as error:
        raise LogError("TR560", f"--at-gtid: {error}") from error


def _is_at(epoch: EpochCommitted, place: LookupPoint, wanted: GtidSet | None) -> bool:
    if wanted is not None:
        executed = epoch.executed_gtids
        return flavor_of(executed) == flavor_of(place.gtids or "") and _set(epoch).contains(wanted)
    return epoch.epoch == place.epoch


def _set(epoch: EpochCommitted) -> GtidSet:
    return parse_gtid_set(epoch.executed_gtids, flavor_of(epoch.executed_gtids))


def _checked(
    place: LookupPoint,
    wanted: GtidSet | None,
    first: EpochCommitted,
    last: EpochCommitted,
    found: EpochCommitted | None,
) -> EpochCommitted:
    """The epoch at the position. Raises LogError if it is not in the log."""
    holds = f"the log holds epochs {first.epoch} to {last.epoch}"
    if place.epoch is None and wanted is None:
        return last
    if found is None:
        early = place.epoch is not None and place.epoch < first.epoch
        raise LogError(
            "TR580",
            f"{'epoch ' + str(place.epoch) if wanted is None else 'the GTID set'} is"
            f" {'not kept any more' if early else 'not in the log yet'}: {holds}",
            where=Where(epoch=place.epoch),
            hint=f"name an epoch from {first.epoch} to {last.epoch}"
            + (f", or GTIDs within {last.executed_gtids}" if wanted is not None else ""),
        )
    if wanted is not None and found is first and first.epoch > 0 and not wanted.contains(_set(first)):
        raise LogError(
            "TR580",
            f"the GTID set ends before what is kept: {holds}",
            hint=f"name GTIDs from {first.executed_gtids} to {last.executed_gtids}",
        )
    return found


def _follow(
    spans: list[Span], name: QualifiedName, epoch: EpochCommitted, versions: list[StructureVersion]
) -> None:
    """Take one epoch: its DDL first, then its rows."""
    if epoch.ddl is not None and (effect := _effect(epoch.ddl, name)) is not None:
        spans.append(Span(epoch.epoch, None, epoch.ddl.statement, effect))
    for touched in epoch.tables:
        if (touched.db, touched.table) != name:
            continue
        now = spans[-1] if spans else None
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
            spans[-1] = replace(now, version=version)
        else:
            spans.append(Span(epoch.epoch, version))


def _effect(ddl: SchemaChanged, name: QualifiedName) -> bool | None:
    """Whether a DDL leaves no table of the name; None if it is about others."""
    if ddl.kind == "DROP DATABASE":
        return True if database_of(ddl) == name[0] else None
    effect = None
    for table in ddl.tables:
        if table.renamed_to is not None and (table.renamed_to_db or table.db, table.renamed_to) == name:
            effect = False
        elif (table.db, table.table) == name:
            effect = ddl.kind.startswith("DROP TABLE") or table.renamed_to is not None
    return effect


def _answer(name: QualifiedName, at: EpochCommitted, spans: list[Span]) -> Answer:
    known = [span for span in spans if span.epoch <= at.epoch]
    place = Where(table=".".join(name), epoch=at.epoch)
    if not known:
        raise LogError(
            "TR581",
            f"the log has seen no rows and no DDL of this table up to epoch {at.epoch}",
            where=place,
            hint="`tailrace topic cat --table PATTERN` shows what there is; letters' case counts",
        )
    now = known[-1]
    shown = next((number for number in range(len(known) - 1, -1, -1) if known[number].version), None)
    if now.gone or shown is None or any(span.gone for span in known[shown + 1 :]):
        what = "is not there" if now.gone else "has had no rows"
        raise LogError(
            "TR581",
            f"the table {what} since epoch {now.epoch}: {(now.ddl or '')[:200]}",
            where=place,
            hint="ask for an epoch before it" if now.gone else "its first rows bring its structure",
        )
    version = known[shown].version
    assert version is not None
    begin = shown
    while begin and _same(spans[begin - 1], version):
        begin -= 1
    end = shown
    while end + 1 < len(spans) and _same(spans[end + 1], version):
        end += 1
    last = spans[end + 1].epoch - 1 if end + 1 < len(spans) else None
    changed = known[shown + 1] if shown + 1 < len(known) else None
    return Answer(name, at.epoch, at.executed_gtids, version, spans[begin].epoch, last, changed, tuple(spans))


def _same(span: Span, version: StructureVersion) -> bool:
    return span.version is not None and span.version.fingerprint == version.fingerprint
