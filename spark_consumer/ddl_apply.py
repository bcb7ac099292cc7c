"""Running an upstream's DDL on the downstream, once."""

from __future__ import annotations

import re
from typing import cast

import pymysql
import structlog

from schemas.crashpoints import reached
from schemas.ddl import classify, without_start_transaction
from schemas.ddl_lexer import Flavor
from schemas.epoch import SchemaChanged, TableChanged
from schemas.errors import DownstreamError, Where
from schemas.tables import TableFilter
from spark_consumer import ddl_intent, ddl_session
from spark_consumer import position as positions
from spark_consumer.config import ConsumerConfig
from spark_consumer.ledger import Ledger
from spark_consumer.position import Position
from spark_consumer.session import Session, closing, connect, is_lost, message_of
from spark_consumer.slices import Slice

_CARRIED = re.compile(
    r"(CREATE|ALTER|DROP|RENAME|TRUNCATE|CREATE OR REPLACE) (TABLE|INDEX|DATABASE|SCHEMA|VIEW|SEQUENCE)"
)
_log = structlog.get_logger()


class DdlApplier:
    """Runs the DDL of DDL epochs on connections of their own, under the ledger's numbers."""

    def __init__(self, config: ConsumerConfig, ledger: Ledger) -> None:
        self._config = config
        self._ledger = ledger
        self._filter = TableFilter(config.include, config.exclude)

    def concerns(self, ddl: SchemaChanged) -> bool:
        """Whether this channel carries the DDL. Raises where it would have to carry half of it."""
        if not _CARRIED.fullmatch(ddl.kind):
            _log.info("ddl_ignored", kind=ddl.kind, statement=ddl.statement[:200])
            return False
        if "DATABASE" in ddl.kind or "SCHEMA" in ddl.kind:
            return self._filter.allows_database(database_of(ddl))
        wanted = [self._wants(table) for table in ddl.tables]
        if any(wanted) and not all(wanted):
            raise DownstreamError(
                "TR622",
                f"a DDL names tables of which only some are carried: {ddl.statement[:200]}",
                hint="include or exclude all of them",
            )
        return bool(wanted) and all(wanted)

    def _wants(self, table: TableChanged) -> bool:
        wanted = self._filter.allows(table.db, table.table)
        if table.renamed_to is not None:
            renamed = self._filter.allows(table.renamed_to_db or table.db, table.renamed_to)
            if renamed != wanted:
                raise DownstreamError(
                    "TR622",
                    f"a table is renamed across the channel's filter: {table.db}.{table.table}",
                    hint="include or exclude both names",
                )
        return wanted

    def declare(self, session: Session, token: int, position: Position, piece: Slice) -> Position:
        """Without a proving ledger: write down what is about to happen, unless that was done before."""
        assert piece.ddl is not None
        if position.ddl_intent is not None:
            return position
        session.execute("BEGIN")
        found = positions.check_token(
            positions.read(session, self._config.channel, lock=True), token, self._config.channel
        )
        intent = ddl_intent.declare(session, piece.first, piece.ddl, database_of(piece.ddl))
        session.run(
            "UPDATE tailrace.relay_log_info SET ddl_intent = %s WHERE Channel_name = %s",
            (intent.to_json(), self._config.channel),
        )
        session.execute("COMMIT")
        return found

    def run(self, session: Session, piece: Slice, before: Position, number: int) -> None:
        """Run the slice's DDL under ``number`` unless an earlier attempt did.

        ``session`` holds the channel's row; ``before`` carries the intent of an earlier attempt, if any.
        """
        ddl = piece.ddl
        assert ddl is not None
        if self._happened(session, piece, before, number):
            _log.info("ddl_already_applied", epoch=piece.first.epoch, statement=ddl.statement[:200])
            return
        with closing(connect(self._config.target)) as own:
            ddl_session.prepare(own, ddl)
            self._ledger.begin(own, number)
            reached("ddl.before")
            self._execute(own, ddl, piece.where)
            reached("ddl.after")

    def _happened(self, session: Session, piece: Slice, before: Position, number: int) -> bool:
        if self._ledger.proves:
            return self._ledger.happened(session, number)
        if before.ddl_intent is None:
            return False
        assert piece.ddl is not None
        return ddl_intent.happened(session, before.ddl_intent, piece.first, piece.ddl, database_of(piece.ddl))

    def _execute(self, own: Session, ddl: SchemaChanged, where: Where) -> None:
        statement = without_start_transaction(ddl.statement, sql_mode=ddl.sql_mode or 0)
        try:
            own.execute(statement)
        except pymysql.MySQLError as error:
            if is_lost(error):
                raise
            raise DownstreamError(
                "TR620",
                f"the downstream refused a DDL: {message_of(error)}; {statement[:300]}",
                where=where,
                hint="make the statement possible there, then start again; everything before it is applied",
            ) from error


def database_of(ddl: SchemaChanged) -> str:
    """The database that a CREATE, ALTER or DROP DATABASE names."""
    flavor = cast(Flavor, ddl.source_flavor)
    found = classify(ddl.statement, ddl.default_db, flavor, sql_mode=ddl.sql_mode or 0)
    return found.database or ddl.default_db
