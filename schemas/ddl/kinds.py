"""The kinds of statements in QUERY events, and how each is handled.

Categories:

- TRANSACTION: BEGIN, COMMIT, ROLLBACK, savepoints, which frame row events.
- XA: the frame of an XA transaction; its rows follow PREPARE, its outcome is logged later.
- DDL: replicated: tables, indexes, databases, views, MariaDB's sequences.
- OBJECT: stored programs and accounts: published, and replicated according to a channel's ``[ddl]``.
- IGNORED: not replicated, by rule; ``reason`` has the reason, ``IGNORED_REASONS`` lists all.
- DML: data changed by the text of a statement instead of row events; the publisher must stop.
- FILES: rows imported or removed as a file, which is not in the binlog; the publisher must stop.
- UNKNOWN: anything else; the publisher must stop. ``reason`` describes what was not understood.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from schemas.ddl.cursor import Reference, TableName


class Category(Enum):
    """How the replicator handles a statement; see the module's docstring."""

    TRANSACTION = "transaction"
    XA = "xa"
    DDL = "ddl"
    OBJECT = "object"
    IGNORED = "ignored"
    DML = "dml"
    FILES = "files"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class ClassifiedStatement:
    """A classified statement.

    Attributes:
        kind: canonical words such as ``ALTER TABLE``, ``DROP DATABASE``, ``XA PREPARE``, ``GRANT``.
        tables: the tables and views concerned, in the statement's order; only for DDL and FILES.
        database: the database of CREATE, ALTER or DROP DATABASE.
        program: database and name of the routine, trigger, event or package.
        temporary: CREATE or DROP of a TEMPORARY table; its category is IGNORED.
        creates_with_select: CREATE TABLE with a query as text, without row events: the session logs in statement
            format, and the publisher must stop as for DML.
        start_transaction: MySQL's ``CREATE TABLE … START TRANSACTION``: the rows of CREATE … SELECT follow.
        xid: for XA statements, the logged text of the identifier.
        one_phase: ``XA COMMIT … ONE PHASE``.
        reason: why it is IGNORED or UNKNOWN, one sentence.
        references: the positions of the tables and the database above in the text, in the text's order.
    """

    kind: str
    category: Category
    tables: tuple[TableName, ...] = ()
    database: str | None = None
    program: tuple[str, str] | None = None
    temporary: bool = False
    creates_with_select: bool = False
    start_transaction: bool = False
    xid: str | None = None
    one_phase: bool = False
    reason: str = ""
    references: tuple[Reference, ...] = ()

    @property
    def table_names(self) -> list[tuple[str, str]]:
        """The tables that it names, before and after it."""
        names = [(t.db, t.table) for t in self.tables]
        return names + [(t.renamed_to_db or t.db, t.renamed_to) for t in self.tables if t.renamed_to]


_MAINTENANCE = "maintenance changes no rows"
_SERVER = "server objects belong to each server"
_STORAGE = "the locations of files belong to each server"
_TEMPORARY = "the rows of temporary tables are not in the binlog, so the tables are not needed"
_NOTHING = "only comments, which no server executes"

#: the object or first words of statements that are not replicated, and the reason
IGNORED_REASONS: dict[str, str] = {
    **dict.fromkeys(("ANALYZE TABLE", "OPTIMIZE TABLE", "REPAIR TABLE", "CHECK TABLE"), _MAINTENANCE),
    **dict.fromkeys(("CHECKSUM TABLE", "FLUSH", "CACHE INDEX", "LOAD INDEX"), _MAINTENANCE),
    **dict.fromkeys(("SERVER", "INSTANCE", "RESOURCE GROUP", "SPATIAL REFERENCE SYSTEM"), _SERVER),
    **dict.fromkeys(("INSTALL", "UNINSTALL", "LOADABLE FUNCTION"), _SERVER),
    **dict.fromkeys(("TABLESPACE", "UNDO TABLESPACE", "LOGFILE GROUP"), _STORAGE),
    "TEMPORARY TABLE": _TEMPORARY,
    "": _NOTHING,
}

#: the family of each kind of object, which is the name of the setting in ``[ddl]``
FAMILIES: dict[str, str] = {
    **dict.fromkeys(("PROCEDURE", "FUNCTION", "PACKAGE", "PACKAGE BODY", "LIBRARY"), "routines"),
    "TRIGGER": "triggers",
    "EVENT": "events",
    **dict.fromkeys(("GRANT", "REVOKE", "USER", "ROLE"), "accounts"),
    **dict.fromkeys(("SET PASSWORD", "SET DEFAULT ROLE", "SET ROLE"), "accounts"),
    **dict.fromkeys(("VIEW", "JSON DUALITY VIEW"), "views"),
}


def family(kind: str) -> str:
    """Return the family of a statement's kind, ``""`` for tables, indexes, databases, sequences."""
    return FAMILIES.get(kind) or FAMILIES.get(kind.partition(" ")[2], "")


def ignored(kind: str, why: str) -> ClassifiedStatement:
    """Return a statement that is not replicated. ``why``: a key of ``IGNORED_REASONS``."""
    return ClassifiedStatement(kind, Category.IGNORED, reason=IGNORED_REASONS[why])


def ddl(kind: str, tables: tuple[TableName, ...] = ()) -> ClassifiedStatement:
    """Return a replicated DDL."""
    return ClassifiedStatement(kind, Category.DDL, tables)


def account(kind: str) -> ClassifiedStatement:
    """Return a statement about accounts, which names no object."""
    return ClassifiedStatement(kind, Category.OBJECT)
