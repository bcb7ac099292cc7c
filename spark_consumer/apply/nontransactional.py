"""Writes rows of tables without transactions (MyISAM, Aria, MEMORY …) once, although they cannot be rolled back.

They cannot be in the transaction that moves the position: the rows of a failed attempt stay, and MySQL with GTIDs
refuses such a mixture (1785). So a second connection writes them outside of it, in the upstream's order with one
statement for each change, and ``tailrace.nontransactional_info`` has the progress of each table:

1. The slice's transaction locks the channel's row, so no other consumer writes. The second connection takes the
   channel's lock, as for a DDL, which waits for a predecessor's statement that the server still runs. Then the first
   connection must still be open, and with it the lock of the channel's row.
2. Before some changes are written, the table's mark is written: the upstream position of the first change, and the
   number of rows in them. All rows before that position are applied, those after them are not, and these are in doubt.
3. The changes are written. Each must change exactly the rows in the log. If one is refused, the mark is set to it:
   everything before it is applied, and nothing is in doubt.
4. The slice's transaction removes the marks when it moves the position.

After a crash the next attempt, even with other slices, skips the applied rows, repeats the rows in doubt with
statements whose result is the same in both cases, and continues after them. Several changes may be in doubt together
only if a repetition from the first one on cannot conflict with a later one: with one unique key that none of them
changes. ``tailrace recover`` and consumers can continue each other, because a row is identified by its position
upstream.

A statement on one row is applied completely or not at all. After a server's crash the confirmed statements are applied,
except in MEMORY tables, which are empty then. If rows are in doubt and the crash has damaged the table's files, the
channel stops (``crashed_tables``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pymysql

from schemas.crashpoints import reached
from schemas.errors import DownstreamError, LogError, Where
from schemas.tables import QualifiedName
from spark_consumer.apply.prepared import Step, TableSteps
from spark_consumer.apply.tables import nontransactional_info
from spark_consumer.apply.tables.nontransactional_info import RowPosition, TableMark
from spark_consumer.apply.write import write_ordered
from spark_consumer.epochs.position import Position, parse_like
from spark_consumer.rules.channel import ChannelKey
from spark_consumer.target.crashed_tables import check_order, crashed
from spark_consumer.target.server_errors import error_number, is_crashed
from spark_consumer.target.session import Session

_MOST = 500  # changes in doubt together
_APPLIED = (
    "only earlier rows in non-transactional tables of this batch were applied; they are not applied again"
)
# Table storage engine doesn't have this option.
_NOT_SUPPORTED = 1031


def advance_marks(
    session: Session, channel: ChannelKey, each: Iterable[TableSteps], after: Position
) -> frozenset[QualifiedName]:
    """Move the marks to the position after these steps, which are all applied, in the position's transaction.

    Returns:
        The tables that are still ahead.
    """
    there, made = nontransactional_info.read(session, channel), {one.name: one for one in each}
    left: dict[QualifiedName, TableMark] = {}
    for name, mark in there.items():
        found = made[name].doubtful(mark) if name in made else None
        if found is not None:
            rest = found[1] - len(made[name].places)
            left |= {name: TableMark(None, rest)} if rest > 0 else {}
        elif mark.place is None or is_ahead(mark.place, after):
            left[name] = mark
    if left != there:
        nontransactional_info.delete(session, channel)
        for name, mark in left.items():
            nontransactional_info.write(session, channel, name, mark)
    return frozenset(left)


def is_ahead(place: RowPosition, position: Position) -> bool:
    """Whether a row is after a position."""
    if place.gtid:
        executed = parse_like(position.executed_gtids, place.gtid)
        return not executed.contains(parse_like(place.gtid, position.executed_gtids))
    there = position.source_log or "", position.source_pos or 0
    return (_number(place.file), place.pos) >= (_number(there[0]), there[1])


def _number(file: str) -> int:
    serial = file.rpartition(".")[2]
    return int(serial) if serial.isdecimal() else 0


def write_steps(
    session: Session,
    channel: ChannelKey,
    each: Iterable[TableSteps],
    after: Position,
    where: Where,
) -> None:
    """Write the missing steps of a slice, and repeat those in doubt.

    Args:
        session: the second connection, in autocommit mode, that has the channel's lock.
        after: the position at the slice's end.

    Raises:
        DownstreamError: a statement was refused, or changed other rows than the log implies; TR663, a crashed table.
        LogError: TR659, the log does not have the row of a mark.
    """
    there = nontransactional_info.read(session, channel)
    for one in each:
        mark = there.get(one.name)
        if mark is not None and mark.rows:
            check_order(session, one.name, where)
        for steps, again in _due(one, mark, after, where):
            _write(session, channel, one, steps, again, where)


def _due(
    one: TableSteps, mark: TableMark | None, after: Position, where: Where
) -> Iterator[tuple[Sequence[Step], bool]]:
    """Yield the steps to write in groups that may be in doubt together, and whether the group is in doubt now."""
    found = one.doubtful(mark)
    if found is None:
        assert mark is not None
        assert mark.place is not None
        if is_ahead(mark.place, after):
            return
        raise LogError(
            "TR659",
            f"rows were written to {'.'.join(one.name)} up to {mark.place.file}:{mark.place.pos} before the position"
            " was moved, but the log has no row there",
            where=where,
            hint="this is a different log: reload the table and delete its row from tailrace.nontransactional_info",
        )
    begin, end = found
    if doubtful := [step for step in one.steps if begin <= step.first < end]:
        yield doubtful, True
    chunk: list[Step] = []
    for step in one.steps:
        if step.first < end:
            continue
        if chunk and (step.alone or len(chunk) == _MOST):
            yield chunk, False
            chunk = []
        chunk.append(step)
        if step.alone:
            yield chunk, False
            chunk = []
    if chunk:
        yield chunk, False


def _write(
    session: Session, channel: ChannelKey, one: TableSteps, steps: Sequence[Step], again: bool, where: Where
) -> None:
    if not again:
        first, last = steps[0].first, steps[-1]
        rows = last.first + last.statement.changes - first
        nontransactional_info.write(session, channel, one.name, TableMark(one.places[first], rows))
        reached("nontransactional.after_mark")
    for step in steps:
        try:
            if again:
                _repeat(session, step, where)
            else:
                write_ordered(session, step.statement, where)
        except DownstreamError as error:
            if isinstance(error.__cause__, pymysql.MySQLError) and is_crashed(error.__cause__):
                # Its effect is unknown.
                raise crashed(one.name, error.__cause__, error.where) from error
            if not again:
                # The server has refused this change, so exactly those before it are applied.
                nontransactional_info.write(session, channel, one.name, TableMark(one.places[step.first], 0))
            raise error.but(applied=_APPLIED) from error.__cause__
        reached("nontransactional.after_row")


def _repeat(session: Session, step: Step, where: Where) -> None:
    try:
        write_ordered(session, step.idempotent, where)
    except DownstreamError as error:
        # ARCHIVE supports only INSERT.
        if error_number(error.__cause__ or error) != _NOT_SUPPORTED or not step.idempotent.fallbacks:
            raise
        if not session.rows(
            f"SELECT 1 FROM {step.statement.table.target.decode()} WHERE {step.match.decode()}"
        ):
            write_ordered(session, step.statement, where)
