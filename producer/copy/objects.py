"""Reads the upstream's databases, sequences, stored programs, views, events and triggers as statements for the log.

Each statement has the form of a DDL that the decoder read from the binlog, with the session's settings with which the
object was created, so a consumer applies it as any other DDL. Statements can be repeated: an object that exists
downstream is replaced. Definers are those of the upstream.

The statements of a first copy come in this order: databases, tables and sequences, routines, views, events, triggers.
Tables are created by their own copies; see ``producer.copy.order`` for their order.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pymysql
import structlog
from pymysql.connections import Connection

from producer.copy.order import in_order
from producer.copy.row_encoder import session_setup
from producer.events.query_event import (
    EXPLICIT_DEFAULTS_FOR_TIMESTAMP,
    QueryEvent,
    epoch_ddl,
    in_lower_case,
)
from producer.upstream.connect import query
from schemas.ddl.classify import classify
from schemas.ddl.cursor import TokenList
from schemas.ddl.kinds import Category
from schemas.ddl.lexer import Flavor, LexError, dialect_of
from schemas.ddl.view_query import UnreadableQuery, read_query
from schemas.errors import UpstreamError
from schemas.letter_case import lowered
from schemas.quote import quoted
from schemas.sql.modes import sql_mode_bits
from schemas.tables import QualifiedName, TableFilter, never_replicated
from schemas.wire.epoch import SchemaChanged

log = structlog.get_logger()

_TO_SHOW = (
    # SHOW CREATE converts an object's text from the character set of its creator.
    "SET NAMES utf8mb4",
    "SET SESSION sql_mode = '', sql_quote_show_create = 1, time_zone = '+00:00'",
)
# No such database, table, routine, trigger, event.
_MISSING = frozenset({1049, 1146, 1305, 1360, 1539})
# No access to the database, the table, the column, the routine; no privilege for the command.
_DENIED = frozenset({1044, 1142, 1143, 1370, 1227})
_INVALID_VIEW = 1356
_RIGHTS: dict[Flavor, str] = {
    "mysql": "GRANT SELECT, SHOW VIEW, SHOW_ROUTINE, EVENT, TRIGGER ON *.*",
    "mariadb": "GRANT SELECT, SHOW VIEW, SHOW CREATE ROUTINE, EVENT, TRIGGER ON *.*",
}
_COLLATIONS: dict[Flavor, str] = {
    "mysql": "SELECT COLLATION_NAME, ID, CHARACTER_SET_NAME, IS_DEFAULT FROM information_schema.COLLATIONS",
    "mariadb": "SELECT FULL_COLLATION_NAME, ID, CHARACTER_SET_NAME, IS_DEFAULT"
    " FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY",
}
_DATABASES: dict[Flavor, str] = {
    "mysql": "SELECT SCHEMA_NAME, DEFAULT_CHARACTER_SET_NAME, DEFAULT_COLLATION_NAME, DEFAULT_ENCRYPTION"
    " FROM information_schema.SCHEMATA",
    "mariadb": "SELECT SCHEMA_NAME, DEFAULT_CHARACTER_SET_NAME, DEFAULT_COLLATION_NAME, SCHEMA_COMMENT"
    " FROM information_schema.SCHEMATA",
}
_TABLES = "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE IN %s"
_FOREIGN_KEYS = (
    "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, UNIQUE_CONSTRAINT_SCHEMA, REFERENCED_TABLE_NAME"
    " FROM information_schema.REFERENTIAL_CONSTRAINTS"
)
_ROUTINES = "SELECT ROUTINE_TYPE, ROUTINE_SCHEMA, ROUTINE_NAME FROM information_schema.ROUTINES"
_LIBRARIES = "SELECT LIBRARY_SCHEMA, LIBRARY_NAME FROM information_schema.LIBRARIES"
# A library before the routines that use it, a package before its body.
_ROUTINE_KINDS = ("LIBRARY", "PACKAGE", "PACKAGE BODY", "FUNCTION", "PROCEDURE")
_EVENTS = "SELECT EVENT_SCHEMA, EVENT_NAME, UNIX_TIMESTAMP(LAST_ALTERED) FROM information_schema.EVENTS"
_TRIGGERS = (
    "SELECT TRIGGER_SCHEMA, TRIGGER_NAME FROM information_schema.TRIGGERS ORDER BY EVENT_OBJECT_SCHEMA,"
    " EVENT_OBJECT_TABLE, ACTION_TIMING, EVENT_MANIPULATION, ACTION_ORDER"
)
_VIEWS = "SELECT TABLE_SCHEMA, TABLE_NAME, VIEW_DEFINITION FROM information_schema.VIEWS"
# VIEW_ROUTINE_USAGE has only the functions of the view's own schema.
_VIEW_USAGE = (
    "SELECT VIEW_SCHEMA, VIEW_NAME, TABLE_SCHEMA, TABLE_NAME FROM information_schema.VIEW_TABLE_USAGE"
)


@dataclass(frozen=True)
class LeftOut:
    """An object that cannot be created downstream, and the reason."""

    kind: str
    name: QualifiedName
    reason: str


@dataclass(frozen=True)
class Collations:
    """What the upstream calls collations.

    Attributes:
        ids: by name.
        clients: for each character set the id of its default collation, as the binlog has it for the client.
        server: the id of the server's collation.
        utf8mb4: the id of MySQL's ``default_collation_for_utf8mb4``; None where there is none.
    """

    ids: dict[str, int]
    clients: dict[str, int]
    server: int
    utf8mb4: int | None = None


@contextmanager
def object_reader(connection: Connection[Any], flavor: Flavor, tables: TableFilter) -> Iterator[ObjectReader]:
    """Yield a reader on a connection with ``session_setup``, to which the session returns afterwards.

    After an error the session is as it was left, and the connection should be closed.

    Raises:
        UpstreamError: TR202, a privilege is missing; TR212, an object has a definition that is not understood.
    """
    for statement in _TO_SHOW:
        query(connection, statement)
    yield ObjectReader(connection, flavor, tables, _collations(connection, flavor))
    for statement in session_setup(flavor):
        query(connection, statement)


def _collations(connection: Connection[Any], flavor: Flavor) -> Collations:
    ids, clients = dict[str, int](), dict[str, int]()
    for name, number, charset, default in sorted(
        query(connection, _COLLATIONS[flavor]), key=lambda row: row[1]
    ):
        ids[str(name)] = int(number)
        if default == "Yes" or charset not in clients:
            clients[str(charset)] = int(number)
    server = str(query(connection, "SELECT @@GLOBAL.collation_server")[0][0])
    if flavor == "mariadb":
        return Collations(ids, clients, ids[server])
    utf8mb4 = str(query(connection, "SELECT @@SESSION.default_collation_for_utf8mb4")[0][0])
    return Collations(ids, clients, ids[server], ids[utf8mb4])


class ObjectReader:
    """Reads objects on one connection; see ``object_reader``.

    Attributes:
        left_out: the views that were read so far and cannot be created downstream.
    """

    def __init__(
        self, connection: Connection[Any], flavor: Flavor, tables: TableFilter, collations: Collations
    ) -> None:
        self._connection, self._flavor, self._tables = connection, flavor, tables
        self._collations = collations
        self.left_out: list[LeftOut] = []

    def databases(self) -> list[SchemaChanged]:
        """Return the databases of which a table may be replicated.

        They get the upstream's character set, collation, comment and default encryption. READ ONLY is left out: the
        binlog does not have it either.
        """
        rows = sorted(query(self._connection, _DATABASES[self._flavor]))
        return [
            self._statement(_create_database(self._flavor, *map(str, row)), "")
            for row in rows
            if self._tables.allows_database(self._folded(row[0]))
        ]

    def tables(self) -> list[QualifiedName]:
        """Return the tables without sequences, parents before the children of their foreign keys."""
        parents: dict[QualifiedName, set[QualifiedName]] = {}
        for row in query(self._connection, _FOREIGN_KEYS):
            db, table, parent_db, parent = map(self._folded, row)
            parents.setdefault((db, table), set()).add((parent_db, parent))
        return in_order(self._listed(("BASE TABLE", "SYSTEM VERSIONED")), parents)

    def sequences(self) -> list[QualifiedName]:
        """Return MariaDB's sequences, which tables may use as defaults."""
        return sorted(self._listed(("SEQUENCE",)))

    def sequence(self, name: QualifiedName) -> list[SchemaChanged]:
        """Return a sequence, and the value that it continues with; nothing if the sequence does not exist.

        The value is that of the moment of reading, so the log must not have later changes of the sequence before these
        statements.
        """
        found = self._shown(f"SHOW CREATE SEQUENCE {quoted(*name)}", "SEQUENCE", name)
        if found is None:
            return []
        state = query(self._connection, f"SELECT next_not_cached_value FROM {quoted(*name)}")
        # A sequence that has run out continues after its end, which RESTART accepts.
        restart = f"ALTER SEQUENCE {quoted(*name)} RESTART {int(state[0][0])}"
        return [self._statement(_replacing(found.text), name[0]), self._statement(restart, name[0])]

    def routines(self) -> list[SchemaChanged]:
        """Return libraries, packages, functions and procedures. Each one is dropped before it is created."""
        rows = [tuple(map(str, row)) for row in query(self._connection, _ROUTINES)]
        if self._flavor == "mysql" and self._has_libraries():
            rows += [("LIBRARY", str(db), str(name)) for db, name in query(self._connection, _LIBRARIES)]
        rows.sort(key=lambda row: (_ROUTINE_KINDS.index(row[0]), *row[1:]))
        return [
            statement
            for kind, *name in rows
            if self._allows(name[0], name[1])
            for statement in self._program(kind, (name[0], name[1]))
        ]

    def events(self) -> list[SchemaChanged]:
        """Return events as the upstream has them. A consumer disables them, as it does those of the binlog."""
        return [
            statement
            for db, name, altered in sorted(query(self._connection, _EVENTS))
            if self._allows(db, name)
            # With a later time the server would not create an event whose only time has passed.
            for statement in self._program("EVENT", (str(db), str(name)), int(altered))
        ]

    def triggers(self) -> list[SchemaChanged]:
        """Return triggers; those of one table and kind in the order in which they run."""
        return [
            statement
            for db, name in query(self._connection, _TRIGGERS)
            if self._allows(db, name)
            for statement in self._program("TRIGGER", (str(db), str(name)))
        ]

    def views(self) -> list[SchemaChanged]:
        """Return views, each one after those that it reads.

        A view is left out if its query is invalid, or if it uses a table, view or function that is not replicated.
        """
        definitions = {
            (str(db), str(name)): str(text or "")
            for db, name, text in query(self._connection, _VIEWS)
            if self._allows(db, name)
        }
        uses = self._uses(definitions)
        statements, lacking = list[SchemaChanged](), set[QualifiedName]()
        for name in in_order(definitions, uses):
            found = self._shown(f"SHOW CREATE VIEW {quoted(*name)}", "VIEW", name)
            if found is None:
                lacking.add(name)
            elif reason := self._why_not(uses[name], lacking, found.is_valid):
                lacking.add(name)
                self._leave_out(LeftOut("VIEW", name, reason))
            else:
                statements.append(
                    self._statement(
                        _replacing(found.text),
                        name[0],
                        client=found.settings["character_set_client"],
                        collation=found.settings["collation_connection"],
                    )
                )
        return statements

    def _why_not(self, uses: set[QualifiedName], lacking: set[QualifiedName], is_valid: bool) -> str:
        """Return why a view cannot be created downstream; "" if it can."""
        if not is_valid:
            return "its query is invalid"
        missing = [
            name for name in uses if name in lacking or not (_is_servers(name[0]) or self._allows(*name))
        ]
        return f"it uses {'.'.join(min(missing))}, which is not replicated" if missing else ""

    def _leave_out(self, one: LeftOut) -> None:
        self.left_out.append(one)
        log.warning("object_not_copied", kind=one.kind, name=".".join(one.name), reason=one.reason)

    def _uses(self, definitions: dict[QualifiedName, str]) -> dict[QualifiedName, set[QualifiedName]]:
        """Return the tables, views and functions that each view uses."""
        uses = {
            name: names_in_query(text, name[0], self._flavor, definitions)
            for name, text in definitions.items()
        }
        if self._flavor == "mysql":
            for db, view, used_db, used in query(self._connection, _VIEW_USAGE):
                uses.get((str(db), str(view)), set()).add((str(used_db), str(used)))
        return uses

    def _program(self, kind: str, name: QualifiedName, timestamp: int | None = None) -> list[SchemaChanged]:
        """Return the statements that create a program; none if it does not exist any more."""
        found = self._shown(f"SHOW CREATE {kind} {quoted(*name)}", kind, name)
        if found is None:
            return []
        db, settings = name[0], found.settings
        drop = self._statement(f"DROP {kind} IF EXISTS {quoted(*name)}", db)
        create = self._statement(
            found.text,
            db,
            sql_mode=settings.get("sql_mode", ""),
            client=settings.get("character_set_client"),
            collation=settings.get("collation_connection"),
            time_zone=settings.get("time_zone"),
            timestamp=timestamp,
        )
        return [drop, *self._in_collation(create, settings.get("Database Collation"))]

    def _in_collation(self, create: SchemaChanged, wanted: str | None) -> list[SchemaChanged]:
        """Give the database the collation that it had when the program was created, which the program keeps."""
        db, current = create.default_db, self._database_collations.get(create.default_db)
        if wanted is None or current is None or wanted == current:
            return [create]
        before, after = (
            self._statement(f"ALTER DATABASE {quoted(db)} COLLATE {collation}", "")
            for collation in (wanted, current)
        )
        return [before, create, after]

    @cached_property
    def _database_collations(self) -> dict[str, str]:
        rows = query(
            self._connection, "SELECT SCHEMA_NAME, DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA"
        )
        return {str(db): str(collation) for db, collation in rows}

    def _shown(self, sql: str, kind: str, name: QualifiedName) -> _Shown | None:
        """Return what SHOW CREATE shows; None if the object does not exist any more."""
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(sql)
                row = dict(zip((column[0] for column in cursor.description), cursor.fetchone(), strict=True))
            warnings = query(self._connection, "SHOW WARNINGS") if kind == "VIEW" else ()
        except pymysql.err.MySQLError as error:
            if error.args[0] in _MISSING:
                return None
            if error.args[0] in _DENIED:
                raise self._denied(kind, name, str(error.args[-1])) from error
            raise
        text = next(
            (
                value
                for column, value in row.items()
                if column == "SQL Original Statement" or column.startswith("Create ")
            ),
            None,
        )
        if not text:
            raise self._denied(kind, name, "its definition is hidden from this account")
        settings = {column: str(value) for column, value in row.items() if value is not None}
        return _Shown(str(text), settings, all(int(warning[1]) != _INVALID_VIEW for warning in warnings))

    def _denied(self, kind: str, name: QualifiedName, why: str) -> UpstreamError:
        return UpstreamError(
            "TR202",
            f"the definition of the {kind.lower()} {'.'.join(name)} cannot be read: {why}",
            hint=f"{_RIGHTS[self._flavor]} to the upstream's account, or leave it out with [tables] exclude",
        )

    def _statement(
        self,
        text: str,
        default_db: str,
        *,
        sql_mode: str = "",
        client: str | None = None,
        collation: str | None = None,
        time_zone: str | None = None,
        timestamp: int | None = None,
    ) -> SchemaChanged:
        """Return the statement as a session with these settings would have logged it."""
        collations, is_mysql = self._collations, self._flavor == "mysql"
        client_id = collations.clients[client or "utf8mb4"]
        event = QueryEvent(
            statement=text,
            default_db=default_db,
            thread_id=0,
            exec_time=0,
            error_code=0,
            flags2=0 if is_mysql else EXPLICIT_DEFAULTS_FOR_TIMESTAMP,
            sql_mode=sql_mode_bits(sql_mode, self._flavor),
            charset=(client_id, collations.ids[collation] if collation else client_id, collations.server),
            time_zone=time_zone,
            explicit_defaults_for_timestamp=True if is_mysql else None,
            default_collation_for_utf8mb4=collations.utf8mb4,
        )
        if self._tables.folds:
            event = in_lower_case(event, self._flavor)
        found = classify(event.statement, event.default_db, self._flavor, sql_mode=event.sql_mode or 0)
        if found.category not in (Category.DDL, Category.OBJECT):
            raise UpstreamError(
                "TR212",
                f"the definition of an object in {default_db} is not understood: {found.reason}: {text[:200]}",
                hint="leave it out with [tables] exclude, and create it on the downstream by hand",
            )
        return epoch_ddl(event, found, self._flavor, int(time.time()) if timestamp is None else timestamp)

    def _listed(self, types: tuple[str, ...]) -> list[QualifiedName]:
        rows = query(self._connection, _TABLES, (types,))
        return [(self._folded(db), self._folded(name)) for db, name in rows if self._allows(db, name)]

    def _allows(self, db: object, name: object) -> bool:
        return self._tables.allows(self._folded(db), self._folded(name))

    def _folded(self, name: object) -> str:
        return lowered(str(name)) if self._tables.folds else str(name)

    def _has_libraries(self) -> bool:
        sql = "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'information_schema' AND TABLE_NAME = %s"
        return bool(query(self._connection, sql, ("LIBRARIES",)))


@dataclass(frozen=True)
class _Shown:
    """What SHOW CREATE shows.

    Attributes:
        settings: the other columns, by name.
        is_valid: of a view: whether its query is valid.
    """

    text: str
    settings: dict[str, str]
    is_valid: bool


def names_in_query(
    text: str, db: str, flavor: Flavor, views: Collection[QualifiedName]
) -> set[QualifiedName]:
    """Return the tables, views, sequences and functions in the query of a view, as information_schema shows it.

    It has all names with their databases. If the query is not understood, the views that it may use are returned.

    Args:
        db: the view's database.
        views: all of them.
    """
    try:
        tokens = TokenList(text, dialect_of(flavor))
    except LexError:
        return set()
    try:
        found = read_query(tokens, 0, db, flavor)
    except UnreadableQuery:
        dots = (i for i in range(len(tokens)) if tokens.key(i) == ".")
        pairs = {(tokens[i - 1].text, tokens[i + 1].text) for i in dots if 0 < i < len(tokens) - 1}
        return pairs.intersection(views)
    reads = {(one.reference.db, one.reference.table or "") for one in found.reads}
    places = {token.start: place for place, token in enumerate(tokens)}
    return reads | {
        (one.db, tokens[places[one.start] + 2].text) for one in found.qualified if one.name is None
    }


def _create_database(flavor: Flavor, name: str, charset: str, collation: str, option: str) -> str:
    """Return CREATE DATABASE, with the option that the other kind of server does not have in an executable comment."""
    text = f"CREATE DATABASE IF NOT EXISTS {quoted(name)} CHARACTER SET {charset} COLLATE {collation}"
    if flavor == "mariadb":
        return f"{text} /*M! COMMENT {_literal(option)} */" if option else text
    return f"{text} /*!80016 ENCRYPTION='Y' */" if option == "YES" else text


def _literal(text: str) -> str:
    """Return a string literal for a session without NO_BACKSLASH_ESCAPES."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _replacing(text: str) -> str:
    """Return CREATE as CREATE OR REPLACE."""
    return text if text.startswith("CREATE OR REPLACE ") else text.replace("CREATE ", "CREATE OR REPLACE ", 1)


def _is_servers(db: str) -> bool:
    """Whether a schema is there on every server."""
    return never_replicated(db) and db != "tailrace"
