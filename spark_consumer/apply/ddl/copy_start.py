"""Starts a table's copy: when its rows come, the downstream has the table, and without rows.

Everything here is decided by the table as it is, so it can be repeated after any interruption: a table that was created
or emptied is empty, because the copy's rows come only after the position has moved.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from schemas.errors import NOTHING_APPLIED, DownstreamError, Where
from schemas.quote import quoted
from schemas.tables import QualifiedName
from schemas.wire.epoch import CopyStep, SchemaChanged, TableChanged
from spark_consumer.apply.ddl.intent import LeftOut
from spark_consumer.ddl.translate import DdlRules
from spark_consumer.rules.event_filter import DML
from spark_consumer.rules.rules import Rules
from spark_consumer.target.session import Session
from spark_consumer.target.tables import read_table

# A column's line in SHOW CREATE TABLE.
_COLUMN = re.compile(r"^ +`((?:[^`]|``)+)` ", re.MULTILINE)
# MySQL adds this column to tables without a primary key.
_UNSEEN = frozenset({"my_row_id"})


@dataclass(frozen=True)
class CopyStart:
    """The start of a table's copy in one channel.

    Attributes:
        ddl: the table's CREATE TABLE upstream.
        known: returns the upstream's tables that have had rows in the log.
    """

    copy: CopyStep
    ddl: SchemaChanged
    rules: Rules
    ddl_rules: DdlRules
    known: Callable[[], set[QualifiedName]]
    where: Where

    @property
    def name(self) -> QualifiedName:
        return self.copy.db, self.copy.table

    @property
    def target(self) -> QualifiedName:
        """The downstream's name of the table."""
        return self.rules.router.table(*self.name)

    def statement(self, session: Session) -> SchemaChanged | LeftOut:
        """Return the statement to run, or why none is run.

        Raises:
            DownstreamError: TR664, the downstream's table has rows that must not be deleted, or cannot be emptied;
                a code of DDL, the CREATE TABLE cannot be translated.
        """
        if self.name in self.rules.hidden:
            return LeftOut.ONLINE
        dropped = self.rules.events.dropped_dml(*self.name)
        if not self.rules.tables.allows(*self.name) or len(dropped) == len(DML):
            return LeftOut.FILTERED
        kind = self._kind(session)
        if not kind:
            # The tables to which its foreign keys refer may not be there yet.
            made = self.ddl_rules.translate(replace(self.ddl, foreign_key_checks=False), self.known)
            return made or LeftOut.FILTERED
        if kind not in ("BASE TABLE", "SYSTEM VERSIONED", "SEQUENCE"):
            raise self._refused(f"there is a {kind} in its place", "drop it")
        # A sequence always has its one row, which the copy's row replaces.
        if kind == "SEQUENCE" or not self.has_rows(session) or self._has_others_rows():
            return LeftOut.EXISTS
        if not self.copy.again:
            raise self._refused("it has rows already", "empty it if nobody needs them")
        if self._is_merged():
            raise self._refused(
                "its rows may be of other upstream tables as well, so it is not emptied",
                "delete the rows of this table by hand, or empty it and copy all tables that are merged into it",
            )
        if kind == "SYSTEM VERSIONED":
            raise self._refused(
                "it is system-versioned and cannot be truncated",
                "empty it with DELETE FROM, then DELETE HISTORY",
            )
        if own := self._own_columns(session):
            raise self._refused(
                f"only the downstream has its column {own[0]}, whose values would be lost", "empty it by hand"
            )
        return replace(
            self.ddl,
            statement=f"TRUNCATE TABLE {quoted(*self.target)}",
            default_db=self.target[0],
            kind="TRUNCATE TABLE",
            tables=(TableChanged(*self.target),),
            foreign_key_checks=False,
            settings=(),
        )

    def check_decision(self, session: Session) -> None:
        """Check that an operator's decision about the CREATE TABLE leaves no rows in the table. Raises TR664."""
        statement = self.statement(session)
        if isinstance(statement, SchemaChanged) and statement.kind == "TRUNCATE TABLE":
            raise self._refused("it has rows", "empty it")

    def has_rows(self, session: Session) -> bool:
        """Whether the downstream's table, which exists, has a row."""
        return bool(session.rows(f"SELECT 1 FROM {quoted(*self.target)} LIMIT 1"))

    def _kind(self, session: Session) -> str:
        """Return the downstream's TABLE_TYPE; "" if there is no such table."""
        sql = "SELECT TABLE_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
        return str(session.value(sql, self.target) or "")

    def _own_columns(self, session: Session) -> list[str]:
        """Return the columns that only the downstream's table has, in lower case."""
        found = read_table(session, self.target)
        upstream = {name.replace("``", "`").lower() for name in _COLUMN.findall(self.ddl.statement)}
        return sorted(found.writable - upstream - _UNSEEN) if found and upstream else []

    def _is_merged(self) -> bool:
        return self.ddl_rules.is_merged(self.name, self.known())

    def _has_others_rows(self) -> bool:
        """Whether rows are there because the first copies of several tables go into one."""
        return not self.copy.again and self._is_merged()

    def _refused(self, what: str, remedy: str) -> DownstreamError:
        there = ".".join(self.target)
        return DownstreamError(
            "TR664",
            f"a copy of {'.'.join(self.name)} starts here and needs an empty table {there} on the downstream: {what}",
            where=replace(self.where, table=".".join(self.name)),
            hint=f"{remedy}, or leave the table out with [tables] exclude, and start again",
            applied=NOTHING_APPLIED,
        )
