"""Runs a transaction's statements and checks their affected-row counts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import NamedTuple, TypeVar

import pymysql

from schemas.counted import counted
from schemas.errors import NOTHING_APPLIED, NOWHERE, DownstreamError, Where
from schemas.tables import QualifiedName
from spark_consumer.apply.prepared import CopiedStatement, Writes
from spark_consumer.plan.plan import TablePlan
from spark_consumer.plan.refusal import RowRefused, cut_values
from spark_consumer.plan.statements import Statement
from spark_consumer.rows.ordered import OrderedStatement
from spark_consumer.target import cascades
from spark_consumer.target.cascades import Cascades
from spark_consumer.target.enum_zero import TRUNCATED, write_zeros
from spark_consumer.target.server_errors import error_number, is_denied, is_lost, is_passing, message_of
from spark_consumer.target.session import Session

_DUPLICATE = 1062
# Statements that are sent together: alone a small one costs both sides up to half as much again as its work.
_FEWEST, _MOST, _MOST_BYTES = 8, 500, 1 << 20
_SAVEPOINT = b"SAVEPOINT tailrace"


class _Merged(NamedTuple):
    """A statement of compacted rows, and how it is run."""

    table: TablePlan
    statement: Statement
    may_miss: bool = False
    may_exceed: bool = False
    in_place: bool = False

    @property
    def sql(self) -> bytes:
        return self.statement.sql

    @property
    def rows(self) -> int:
        return self.statement.rows

    @property
    def foreign_key_checks(self) -> bool:
        return False

    @property
    def is_plain(self) -> bool:
        """Whether it changes exactly its rows, and is a text alone."""
        special = self.may_miss or self.may_exceed or self.statement.different is not None
        return self.statement.values is None and not special

    def run(self, session: Session, where: Where) -> None:
        """Run it alone."""
        table, statement, may_miss, may_exceed, in_place = self
        _run(session, table, where, statement, may_miss=may_miss, may_exceed=may_exceed, in_place=in_place)


_Sent = TypeVar("_Sent", _Merged, OrderedStatement)


def write(session: Session, writes: Writes, where: Where) -> None:
    """Run statements in the open transaction.

    Raises:
        DownstreamError: a statement was refused, or changed other rows than the log implies.
    """
    deletes = (_Merged(table, one, may_miss=table.safe) for table, one in writes.deletes)
    inserts = (_Merged(table, one, may_exceed=table.gives_way) for table, one in writes.inserts)
    # A server does not say of a single row whether it was there, so it is changed with an UPDATE.
    updates = (_Merged(table, one, in_place=one.rows > 1) for table, one in writes.updates)
    for run in _sent_together(_by_table(chain(deletes, inserts, updates)), session.max_allowed_packet):
        if len(run) < _FEWEST or not _all_run(session, run):
            for each in run:
                each.run(session, where)
    checks = False
    hanging: Cascades | None = None
    try:
        for together in _sent_together(writes.ordered, session.max_allowed_packet):
            first = together[0]
            if first.foreign_key_checks != checks:
                session.execute(f"SET SESSION foreign_key_checks = {int(first.foreign_key_checks)}")
                checks = first.foreign_key_checks
            if len(together) >= _FEWEST and _all_run(session, together):
                continue
            for one in together:
                if one.cascade_from is not None:
                    hanging = hanging or cascades.load(session)
                    _run_cascade(session, hanging, one, where)
                write_ordered(session, one, where)
    finally:
        # Reset it also after a refused statement, because the session is used again.
        if checks:
            with contextlib.suppress(pymysql.MySQLError, OSError):
                session.execute("SET SESSION foreign_key_checks = 0")


def _by_table(statements: Iterable[_Merged]) -> Iterator[_Merged]:
    """Yield each table's statements one after the other: a server keeps few tables open for a connection."""
    found: dict[QualifiedName, list[_Merged]] = {}
    for one in statements:
        found.setdefault(one.table.target_name, []).append(one)
    return chain.from_iterable(found.values())


def _sent_together(statements: Iterable[_Sent], max_packet: int) -> Iterator[list[_Sent]]:
    """Yield runs of plain statements with the same checks, and each other one by itself."""
    run: list[_Sent] = []
    size, most = 0, min(_MOST_BYTES, max_packet // 2)
    for one in statements:
        joins = bool(run) and one.is_plain and one.foreign_key_checks == run[0].foreign_key_checks
        if run and (not joins or not run[0].is_plain or len(run) == _MOST or size + len(one.sql) > most):
            yield run
            run, size = [], 0
        run.append(one)
        size += len(one.sql) + 1
    if run:
        yield run


def _all_run(session: Session, together: Sequence[_Sent]) -> bool:
    """Run plain statements that are sent together; whether each changed exactly its rows. If not, none is done."""
    try:
        _, *done = session.execute_together([_SAVEPOINT, *(one.sql for one in together)])
        if all(
            one.rows == (duplicates if _in_place(one) else affected)
            for one, (affected, duplicates) in zip(together, done, strict=True)
        ):
            return True
    except pymysql.MySQLError as error:
        if is_passing(error):
            raise
    session.execute(b"ROLLBACK TO " + _SAVEPOINT)
    return False


def _in_place(one: _Merged | OrderedStatement) -> bool:
    return isinstance(one, _Merged) and one.in_place


def write_copied(session: Session, copied: Iterable[CopiedStatement], where: Where) -> None:
    """Insert rows of copies in the open transaction. Those that are there already are replaced by the same ones.

    Raises:
        DownstreamError: a statement was refused, also because another row has a unique value.
    """
    found: set[QualifiedName] = set()  # tables in which the last rows were there, so the next ones may be too
    for one in copied:
        name = one.table.target_name
        if name in found and not _remove(session, one, where):
            found.discard(name)
        try:
            _run(session, one.table, where, one.insert)
        except RowRefused as refused:
            if refused.__cause__ is None or error_number(refused.__cause__) != _DUPLICATE or name in found:
                raise
            found.add(name)
            _remove(session, one, where)
            _run(session, one.table, where, one.insert)


def _remove(session: Session, one: CopiedStatement, where: Where) -> int:
    """Delete rows of a copy, and return how many were there."""
    return sum(_run(session, one.table, where, delete, may_miss=True) for delete in one.deletes)


def privilege_error(error: BaseException, where: Where) -> DownstreamError:
    """Return the error for an account that lacks a privilege."""
    return DownstreamError(
        "TR641",
        f"the downstream's account lacks a privilege: {message_of(error)}",
        where=where,
        hint="grant it (`tailrace check` lists the missing privileges), then start again",
        applied=NOTHING_APPLIED,
    )


def _run_cascade(session: Session, hanging: Cascades, one: OrderedStatement, where: Where) -> None:
    """Delete descendants that the row's own DELETE would not delete."""
    assert one.cascade_from is not None
    if not hanging.has_effect(one.table.target_name):
        return
    try:
        hanging.run(session, one.table.target_name, one.cascade_from.decode())
    except pymysql.MySQLError as error:
        if is_passing(error):
            raise
        raise _refusal_error(error, replace(where, epoch=one.epoch, table=one.table.name), one.sql) from error


def write_ordered(session: Session, one: OrderedStatement, where: Where) -> None:
    """Run one statement of a table in the upstream's order; the caller sets ``foreign_key_checks``.

    Raises:
        DownstreamError: it was refused, or changed other rows than the log implies.
    """
    where = where if where.epoch is None else replace(where, epoch=one.epoch)
    run = partial(_run, session, one.table, replace(where, event=one.event) if one.rows == 1 else where)
    if one.is_operators:
        run(Statement(one.sql, 0), free=True)
        return
    if one.clear_first is not None:
        run(Statement(one.clear_first, 2), may_miss=True)
    *attempts, last = one.sql, *one.fallbacks
    for sql in attempts:
        if run(Statement(sql, one.rows), may_miss=True):
            return
    exceed = one.table.gives_way
    run(Statement(last, one.rows), may_miss=one.may_find_no_row, may_exceed=exceed)


def _execute(session: Session, table: TablePlan, statement: Statement, *, in_place: bool) -> int:
    """Run a statement; return the number of affected rows, of changes in place that of rows that were there."""

    def run() -> int:
        if statement.values is None:
            affected = session.execute(statement.sql)
        else:
            affected = session.execute_prepared(statement.sql, statement.values)
        return session.duplicates if in_place else affected

    try:
        return run()
    except pymysql.MySQLError as error:
        if error_number(error) != TRUNCATED:
            raise
        if (affected := write_zeros(session, run, table.structure)) is None:
            raise
        return affected


def _refusal_error(error: pymysql.MySQLError, place: Where, sql: bytes) -> DownstreamError:
    if is_denied(error):
        return privilege_error(error, place)
    return RowRefused(
        "TR604",
        f"the downstream refused a statement: {message_of(error)}; {_shown(sql)}",
        where=place,
        hint="fix the cause given in the message and restart",
        applied=NOTHING_APPLIED,
        statement=_shown(sql, 2000),
    )


def _run(
    session: Session,
    table: TablePlan,
    where: Where,
    statement: Statement,
    *,
    may_miss: bool = False,
    may_exceed: bool = False,
    free: bool = False,
    in_place: bool = False,
) -> int:
    """Run one statement; return the number of changed rows, which may differ from the log's only if allowed."""
    place = replace(where, table=table.name)
    # The server would close the connection without an error message.
    if statement.size >= session.max_allowed_packet:
        raise _too_large(statement.size, session.max_allowed_packet, place)
    try:
        if statement.different is not None:
            found = int(session.value(statement.different.decode(errors="surrogateescape")))
            if found != statement.rows:
                raise _other_rows(counted(found, "different row"), statement, place)
        affected = _execute(session, table, statement, in_place=in_place)
    except pymysql.MySQLError as error:
        if is_passing(error):
            raise
        raise _refusal_error(error, place, statement.sql) from error
    exceeds = affected > statement.rows and not may_exceed
    if not free and table.incomplete and affected < statement.rows and not may_miss:
        raise RowRefused(
            "TR666",
            "a copy of the table runs and has not written a row yet that this change needs, because the row images lack"
            f" columns: {_shown(statement.sql)}",
            where=place,
            hint="leave the change out with `tailrace error skip`, and copy the table again afterwards",
            applied=NOTHING_APPLIED,
            statement=_shown(statement.sql, 2000),
        )
    if not free and ((affected < statement.rows and not may_miss) or exceeds):
        raise _other_rows(counted(affected, "row"), statement, place)
    return affected


def _other_rows(changed: str, statement: Statement, place: Where) -> RowRefused:
    return RowRefused(
        "TR603",
        f"a statement changed {changed} where the log implies {statement.rows}: {_shown(statement.sql)}",
        where=place,
        hint="the downstream's rows differ from the upstream's; `tailrace compare` lists them",
        applied=NOTHING_APPLIED,
        statement=_shown(statement.sql, 2000),
    )


def run_operators_statement(session: Session, sql: str, where: Where) -> None:
    """Run an operator's own statement in the open transaction."""
    try:
        session.execute(sql)
    except pymysql.MySQLError as error:
        if is_passing(error):
            raise
        raise DownstreamError(
            "TR604",
            f"the downstream refused the replacement of a DDL: {message_of(error)}; {cut_values(sql, 400)}",
            where=where,
            hint="run `tailrace error replace` again with statements that it accepts",
        ) from error


def _shown(sql: bytes, most: int = 400) -> str:
    return cut_values(sql[: 1 << 20].decode(errors="replace"), most)


def _too_large(size: int, limit: int, where: Where) -> DownstreamError:
    needed = (size // 1024 + 1) * 1024
    remedy = f"SET GLOBAL max_allowed_packet = {needed} there"
    return RowRefused(
        "TR608",
        f"a row needs a statement of {size} bytes, and the downstream accepts {limit} (max_allowed_packet)",
        where=where,
        hint=remedy if needed <= 1 << 30 else "no server accepts that size: exclude the table",
        applied=NOTHING_APPLIED,
    )


def refused_error(error: BaseException) -> DownstreamError:
    """Return the error for a refusal of the downstream that is not about a statement."""
    if is_denied(error):
        return privilege_error(error, NOWHERE)
    return DownstreamError("TR604", f"the downstream refused: {message_of(error)}")


def retry_time_exceeded(error: BaseException) -> DownstreamError:
    """Return the error for a temporary state that lasted longer than ``retry_time``."""
    if not is_lost(error):
        return DownstreamError(
            "TR640",
            f"the downstream was not writable for longer than consumer.retry-time: {message_of(error)}",
            hint="fix the cause given in the message (a lock, read_only, a full disk, max_connections) and restart",
            applied=NOTHING_APPLIED,
            retryable=True,
        )
    return DownstreamError(
        "TR607",
        "the connection to the downstream was lost, and did not come back within consumer.retry-time:"
        f" {message_of(error)}",
        hint="check the server and restart the consumer; nothing is lost",
        retryable=True,
    )
