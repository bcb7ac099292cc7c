"""Copies as epochs: a table's begin, its rows, its end."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from producer.copy.copies import (
    Answer,
    ChunkRead,
    Copies,
    NothingFound,
    ObjectsFound,
    TableFound,
    TablesFound,
)
from producer.copy.state import Plan, Step
from producer.decode.epoch_stream import EpochStream
from producer.decode.event_decoder import CopiedRows
from producer.epochs.open_epoch import SealedEpoch
from schemas.ddl.classify import classify
from schemas.tables import QualifiedName
from schemas.wire.epoch import CopyStep, SchemaChanged


def copy_epochs(copies: Copies, stream: EpochStream) -> Iterator[SealedEpoch]:
    """What of copies goes into the log where the last epoch ended; nothing is in the open one."""
    for answer in copies.take_due(stream.binlog_position):
        for epoch in _epochs(answer, copies, stream):
            copies.written(epoch.record)
            yield epoch
    for_new = copies.is_for_new
    if (complete := copies.completed()) is not None:
        epoch = stream.insert(complete=complete[0], tracked=complete[1], for_new=for_new)
        copies.written(epoch.record)
        yield epoch


def _epochs(answer: Answer, copies: Copies, stream: EpochStream) -> Iterator[SealedEpoch]:
    match answer:
        case TablesFound():
            plan = copies.plan_with(answer)
            if plan.is_complete:
                yield stream.insert(complete=copies.begins(plan), for_new=plan.for_new)
            for statement in _needed(answer.statements, plan):
                yield stream.insert(ddl=statement, for_new=plan.for_new)
            yield stream.insert(tracked=copies.planned(answer))
        case NothingFound():
            yield stream.insert(tracked=copies.refused_plan())
        case ObjectsFound():
            assert copies.plan is not None
            for_new = copies.is_for_new
            for statement in _needed(answer.statements, copies.plan):
                yield stream.insert(ddl=statement, for_new=for_new)
            yield stream.insert(tracked=copies.finished_plan())
        case TableFound() if answer.ddl is not None:
            yield _begin(answer, copies, stream)
        case TableFound():
            yield stream.insert(tracked=copies.forgotten(answer.work.name, answer.refused))
        case ChunkRead():
            rows = _without(answer, copies)
            if rows.keys:
                yield _rows(answer, rows, copies, stream)
            if answer.is_last:
                yield _end(answer.work.name, copies, stream)


def _needed(statements: Iterable[SchemaChanged], plan: Plan) -> Iterator[SchemaChanged]:
    """Those of databases, views and programs that the log does not have.

    None where a copy for new channels turns out not to be complete, because it comes to nothing.
    """
    for ddl in statements:
        statement = classify(ddl.statement, ddl.default_db, ddl.source_flavor, sql_mode=ddl.mode)
        if plan.is_complete or (not plan.for_new and plan.leaves_out(statement)):
            yield ddl


def _begin(found: TableFound, copies: Copies, stream: EpochStream) -> SealedEpoch:
    name, old = found.work.name, copies.state(found.work.name)
    # Rows may be there downstream although nobody has asked for another copy.
    again = old.again or old.incomplete or old.step is Step.DONE
    state = replace(
        old,
        step=Step.RUNNING,
        again=again,
        is_new=False,
        is_frozen=False,
        incomplete=True,
        is_held=found.is_held,
        parents=tuple(sorted(found.cascades.parents)),
        circle=tuple(sorted(found.cascades.circle)),
        upper=(),
        rows=0,
        estimate=found.estimate,
        for_new=copies.is_for_new,
    )
    step = CopyStep(old.copy, *name, "begin", again, None, None, found.estimate)
    tracked = (*copies.froze(found), *copies.advanced(name, state))
    return stream.insert(step, tracked, found.ddl, found.definition, for_new=copies.is_for_new)


def _rows(chunk: ChunkRead, rows: CopiedRows, copies: Copies, stream: EpochStream) -> SealedEpoch:
    name, old = chunk.work.name, copies.state(chunk.work.name)
    state = replace(old, upper=chunk.upper, rows=old.rows + len(rows.keys))
    step = CopyStep(old.copy, *name, "rows", old.again, _bound(chunk.work.lower), _bound(chunk.upper), 0)
    return stream.insert(step, copies.advanced(name, state), rows=rows, for_new=copies.is_for_new)


def _end(name: QualifiedName, copies: Copies, stream: EpochStream) -> SealedEpoch:
    old = copies.state(name)
    step = CopyStep(old.copy, *name, "end", old.again, None, None, 0)
    for_new = copies.is_for_new
    # A copy for new channels ends nothing for the others.
    ended = old.ended if for_new else copies.next_epoch
    state = replace(old, step=Step.DONE, incomplete=False, ended=ended)
    return stream.insert(step, copies.advanced(name, state), for_new=for_new)


def _without(chunk: ChunkRead, copies: Copies) -> CopiedRows:
    """The chunk's rows but for those that changed since they were read."""
    keys, after = chunk.keys, chunk.after
    # Nothing changed since the rows were read if the publisher stood still.
    is_held = copies.state(chunk.work.name).is_held
    changed = set() if is_held else copies.changed_since(chunk.work.base)
    if not changed.isdisjoint(keys):
        kept = [(key, row) for key, row in zip(keys, after, strict=True) if key not in changed]
        keys, after = [key for key, _ in kept], [row for _, row in kept]
    return CopiedRows(chunk.structure, keys, partial(chunk.values, after))


def _bound(literals: tuple[str, ...]) -> str | None:
    return json.dumps(literals, ensure_ascii=False) if literals else None
