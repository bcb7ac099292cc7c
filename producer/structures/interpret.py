"""Applies a DDL to the tracked tables: definitions and a statement in, definitions out.

As both servers do it (``sql/sql_table.cc``: mysql_prepare_create_table, mysql_prepare_alter_table). Nothing is
guessed: what is not understood makes the table ``Unresolved``, until something states its structure anew.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from producer.structures.alter import alter_table
from producer.structures.keys import with_keys
from schemas.ddl.column_clauses import (
    TableElement,
    at_column,
    column_element,
    key_columns,
    key_element,
    key_options,
)
from schemas.ddl.column_types import (
    DdlContext,
    charset_named,
    charset_of_collation,
    keeps_history,
    look_ahead,
    skip_group,
    word_or_string,
)
from schemas.ddl.cursor import Cursor, TableName, Unparsable
from schemas.ddl.kinds import ClassifiedStatement
from schemas.ddl.lexer import LexError, TokenKind, dialect_of
from schemas.ddl.table_definition import (
    MAX_COLUMNS,
    MAX_KEYS,
    ColumnDefinition,
    KeyDefinition,
    TableDefinition,
    same_name,
)
from schemas.quote import quoted
from schemas.tables import QualifiedName

_UNTOUCHED = frozenset({"TRUNCATE TABLE", "CREATE VIEW", "ALTER VIEW", "DROP VIEW", "ALTER SEQUENCE"})
# ANSI, NO_TABLE_OPTIONS, NO_FIELD_OPTIONS, and the modes that stand for other servers and for old MySQL.
_LEAVES_CHARSETS_OUT = 0x7DF00
_VIEWS = frozenset({"CREATE JSON DUALITY VIEW", "ALTER JSON DUALITY VIEW"})


@dataclass(frozen=True)
class Unresolved:
    """A table whose structure became unknown through a DDL.

    Attributes:
        reason: what was not understood.
        statement: the DDL.
        place: its position in the log.
    """

    reason: str
    statement: str = ""
    place: str = ""


Tracked = TableDefinition | Unresolved


@dataclass
class Catalog:
    """The tables and databases at one position of the log.

    Attributes:
        tables: a missing entry means unknown, or no such table if ``complete``.
        databases: the default character set of each.
        complete: whether all tables are in it.
    """

    tables: dict[QualifiedName, Tracked] = field(default_factory=dict)
    databases: dict[str, str] = field(default_factory=dict)
    complete: bool = False


@dataclass
class Changes:
    """What a statement changed: tables by name, None for those that are gone; likewise databases."""

    tables: dict[QualifiedName, Tracked | None] = field(default_factory=dict)
    databases: dict[str, str | None] = field(default_factory=dict)


def ddl_changes(text: str, found: ClassifiedStatement, session: DdlContext, catalog: Catalog) -> Changes:
    """The changes that a DDL makes.

    Args:
        found: ``classify`` of the text.
    """
    work = _Work(text, found, session, catalog)
    try:
        work.run()
    except ValueError as error:  # Unparsable, LexError, and numbers that are none
        for name in [(t.db, t.table) for t in found.tables if t.renamed_to is None]:
            work.set(name, Unresolved(str(error)))
    return work.changes


def created(text: str, session: DdlContext, charset: str | None = None) -> TableDefinition:
    """The table that a CREATE TABLE with columns makes, as from SHOW CREATE TABLE.

    Raises:
        Unparsable, LexError: what is not understood.
    """
    cursor = Cursor(text, dialect_of(session.flavor, session.sql_mode), session.default_db or "?")
    cursor.expect("CREATE")
    cursor.take("OR", "REPLACE")
    cursor.expect("TABLE")
    if cursor.take("IF"):
        cursor.expect("NOT", "EXISTS")
    cursor.table()
    return _created(cursor, session, charset)


class _Work:
    """One statement over a catalog."""

    def __init__(self, text: str, found: ClassifiedStatement, session: DdlContext, catalog: Catalog) -> None:
        self._text, self._found, self._session, self._catalog = text, found, session, catalog
        self.changes = Changes()

    def get(self, name: QualifiedName) -> Tracked | None:
        if name in self.changes.tables:
            return self.changes.tables[name]
        return self._catalog.tables.get(name)

    def set(self, name: QualifiedName, table: Tracked | None) -> None:
        if isinstance(table, Unresolved) and not table.statement:
            table = replace(table, statement=self._text)
        self.changes.tables[name] = table

    def run(self) -> None:
        """Work out the changes."""
        kind = self._found.kind
        handlers = {
            "CREATE TABLE": self._create,
            "CREATE SEQUENCE": lambda: self.set(self._name(), _SEQUENCE),
            "ALTER TABLE": self._alter,
            "CREATE INDEX": self._index,
            "DROP INDEX": self._drop_index,
            "RENAME TABLE": self._rename,
            "DROP TABLE": self._drop,
            "DROP SEQUENCE": self._drop_sequence,
            "CREATE DATABASE": self._database,
            "ALTER DATABASE": self._database,
            "DROP DATABASE": self._drop_database,
        }
        if kind in handlers:
            handlers[kind]()
        elif kind not in _UNTOUCHED | _VIEWS:
            raise Unparsable(f"unknown statement {kind}")

    def _name(self) -> QualifiedName:
        return self._found.tables[0].db, self._found.tables[0].table

    def _cursor(self) -> Cursor:
        dialect = dialect_of(self._session.flavor, self._session.sql_mode)
        return Cursor(self._text, dialect, self._session.default_db)

    def _behind_name(self) -> tuple[Cursor, tuple[str, ...]]:
        """A cursor behind the table's name, and the words in front of it."""
        cursor, words = self._cursor(), []
        start = self._found.references[0].start
        while cursor.peek().start < start:
            words.append(cursor.next().key)
        cursor.table()
        return cursor, tuple(words)

    # -- tables ----------------------------------------------------------------------------------

    def _create(self) -> None:
        name = self._name()
        cursor, words = self._behind_name()
        known = self.get(name)
        if "EXISTS" in words and "REPLACE" not in words:
            if known is not None:
                return
            if not self._catalog.complete:
                raise Unparsable("IF NOT EXISTS, and it is unknown whether the table existed")
        like = cursor.at("LIKE") or cursor.at("(", "LIKE")
        if like:
            cursor.take("(")
            cursor.next()
            source = cursor.table()
            self.set(name, self._copy((source.db, source.table)))
        else:
            charset = self._catalog.databases.get(name[0])
            bare = _without_charsets(cursor, self._session)
            self.set(name, _created(cursor, self._session, None if bare else charset, bare=bare))

    def _copy(self, source: QualifiedName) -> Tracked:
        table = self.get(source)
        if table is None:
            return Unresolved(f"it is like {source[0]}.{source[1]}, whose structure is not tracked")
        return replace(table.without_hash(), foreign=False) if isinstance(table, TableDefinition) else table

    def _alter(self) -> None:
        name = self._name()
        cursor, _ = self._behind_name()
        cursor.lock_wait()
        table = self.get(name)
        if isinstance(table, TableDefinition):
            try:
                charset = self._catalog.databases.get(name[0])
                self.set(name, alter_table(cursor, table, self._session, charset))
            except (Unparsable, LexError) as error:
                self.set(name, Unresolved(str(error)))
        self._partners(name)
        target = self._found.tables[0]
        if target.renamed_to is not None:
            self._move(target)

    def _partners(self, name: QualifiedName) -> None:
        """Handle CONVERT PARTITION and CONVERT TABLE (MariaDB)."""
        for other in self._found.tables[1:]:
            partner = (other.db, other.table)
            words = self._words()
            if "EXCHANGE" in words:
                continue
            if ("CONVERT", "TABLE") in itertools.pairwise(words):
                self.set(partner, None)
            else:
                self.set(partner, self._copy(name))

    def _move(self, pair: TableName) -> None:
        old, new = (pair.db, pair.table), (pair.renamed_to_db or pair.db, pair.renamed_to or "")
        table = self.get(old)
        if old != new:
            self.set(old, None)
            # Whatever is not known under the old name is not known under the new one.
            self.set(
                new, table if table is not None else Unresolved("it was renamed and was not tracked before")
            )

    def _rename(self) -> None:
        may_lack = "EXISTS" in self._words()[:4]
        for pair in self._found.tables:
            if self.get((pair.db, pair.table)) is not None or not may_lack:
                self._move(pair)

    def _drop(self) -> None:
        for table in self._found.tables:
            self.set((table.db, table.table), None)

    def _drop_sequence(self) -> None:
        """IF EXISTS leaves a table of that name where it is."""
        for table in self._found.tables:
            known = self.get((table.db, table.table))
            if not isinstance(known, TableDefinition) or known.columns == _SEQUENCE.columns:
                self.set((table.db, table.table), None)

    # -- keys ------------------------------------------------------------------------------------

    def _index(self) -> None:
        name = self._name()
        table = self.get(name)
        if not isinstance(table, TableDefinition):
            return
        cursor, words = self._behind_name()
        index = self._index_name()
        if "REPLACE" in words:
            table = self._without_index(table, index)
        elif "EXISTS" in words and any(same_name(key.name, index) for key in table.keys):
            return
        parts, hashed = key_columns(cursor), ("USING", "HASH") in itertools.pairwise(words)
        hashed = key_options(cursor, hashed) and "UNIQUE" in words and cursor.flavor == "mariadb"
        key = KeyDefinition(index, "unique" if "UNIQUE" in words else "other", parts, hash=hashed)
        self.set(name, with_keys(table.without_hash(), [key], self._session))

    def _index_name(self) -> str:
        cursor = self._cursor()
        while not cursor.take("INDEX"):
            cursor.next()
        cursor.take("IF", "NOT", "EXISTS")
        cursor.take("IF", "EXISTS")
        return cursor.name()

    def _drop_index(self) -> None:
        name = self._name()
        table = self.get(name)
        if isinstance(table, TableDefinition):
            self.set(name, self._without_index(table, self._index_name()))

    def _without_index(self, table: TableDefinition, index: str) -> TableDefinition:
        what = "PRIMARY KEY" if index.upper() == "PRIMARY" else "INDEX " + quoted(index)
        return alter_table(
            Cursor(f"DROP {what}", dialect_of(self._session.flavor), "?"), table, self._session, None
        )

    # -- databases -------------------------------------------------------------------------------

    def _database(self) -> None:
        name, words, default = self._found.database or "", self._words(), self._session.server_charset
        known = self._catalog.databases.get(name)
        creating = self._found.kind == "CREATE DATABASE"
        if words[1:3] == ["OR", "REPLACE"]:
            self._drop_database()
        elif creating and "EXISTS" in words[:5] and (known is not None or not self._catalog.complete):
            return
        cursor = self._cursor()
        for _ in range(2):
            cursor.next()
        start = self._found.references[0].start if self._found.references else cursor.peek().start - 1
        while cursor.peek().kind is not TokenKind.END and cursor.peek().start <= start:
            cursor.next()
        charset = _charset_option(cursor, self._session, default if creating else known, default)
        self.changes.databases[name] = charset

    def _words(self) -> list[str]:
        return [token.key for token in self._cursor().rest()]

    def _drop_database(self) -> None:
        database = self._found.database or ""
        for name in self._catalog.tables:
            if name[0] == database:
                self.set(name, None)
        self.changes.databases[database] = None


def _without_charsets(cursor: Cursor, session: DdlContext) -> bool:
    """Whether a text may be the server's own for a CREATE … SELECT, and the session's sql_mode left charsets out.

    Source: sql/sql_show.cc of both servers, store_create_info, which the session's sql_mode governs there too.
    """
    if not session.sql_mode & _LEAVES_CHARSETS_OUT:
        return False
    start = cursor.peek().start
    return cursor.statement[start - 1 : start + 4] == " (\n  "


def _created(
    cursor: Cursor, session: DdlContext, charset: str | None, *, bare: bool = False
) -> TableDefinition:
    """Read the columns, keys and options behind a new table's name.

    Args:
        bare: columns that name no character set have one that is not known.
    """
    if not cursor.take("("):
        raise Unparsable("a table without a list of columns")
    # The table's own character set stands behind the columns that take it over.
    options = list(_behind_columns(cursor, session).rest())
    versioned = session.flavor == "mariadb" and keeps_history([token.key for token in options])
    charset = _charset_option(cursor.over(options), session, charset, charset)
    table = TableDefinition((), (), charset)
    columns: list[ColumnDefinition] = []
    keys: list[KeyDefinition] = []
    period: tuple[str, ...] = ()
    while True:
        part = _create_part(cursor, session, None if bare else charset)
        columns += [part.column] if part.column else []
        keys += part.keys
        if len(columns) > MAX_COLUMNS or len(keys) > MAX_KEYS:
            raise Unparsable("more columns or keys than a table has")
        period += part.period
        versioned |= part.versioned
        table = replace(table, foreign=table.foreign or part.foreign)
        if cursor.take(")"):
            break
        cursor.expect(",")
    table = replace(table, columns=tuple(columns), versioned=versioned).not_null(period)
    return with_keys(table, keys, session)


def _behind_columns(cursor: Cursor, session: DdlContext) -> Cursor:
    """A cursor of its own at the table's options, for one that is behind the first parenthesis."""
    ahead = look_ahead(cursor, session)
    skip_group(ahead, opened=True)
    return ahead


def _create_part(cursor: Cursor, session: DdlContext, charset: str | None) -> TableElement:
    return column_element(cursor, session, charset) if at_column(cursor) else key_element(cursor)


def _charset_option(
    cursor: Cursor, session: DdlContext, charset: str | None, default: str | None
) -> str | None:
    """The character set that a table's or a database's options name, ``charset`` if they name none."""
    explicit = False
    while (token := cursor.next()).kind is not TokenKind.END:
        if token.key == "(":
            skip_group(cursor, opened=True)
        elif token.key in ("PARTITION", "SELECT"):
            return charset
        elif token.key == "CHARSET" or (token.key in ("CHARACTER", "CHAR") and cursor.take("SET")):
            cursor.take("=")
            explicit = not cursor.take("DEFAULT")
            charset = charset_named(word_or_string(cursor, session), session) if explicit else default
        elif token.key == "COLLATE":
            cursor.take("=")
            if not cursor.take("DEFAULT"):
                charset = charset_of_collation(word_or_string(cursor, session), charset)
            elif not explicit:
                charset = default
    return charset


def definitions(tables: Mapping[QualifiedName, Tracked]) -> dict[QualifiedName, TableDefinition]:
    """The tables whose structure is known."""
    return {name: table for name, table in tables.items() if isinstance(table, TableDefinition)}


def _sequence() -> TableDefinition:
    """The columns that MariaDB gives every sequence (sql/sql_sequence.cc)."""
    signed = ("next_not_cached_value", "minimum_value", "maximum_value", "start_value", "increment")
    columns = [ColumnDefinition(name, "bigint", nullable=False) for name in signed]
    columns.append(ColumnDefinition("cache_size", "bigint", unsigned=True, nullable=False))
    columns.append(ColumnDefinition("cycle_option", "tinyint", unsigned=True, nullable=False))
    columns.append(ColumnDefinition("cycle_count", "bigint", nullable=False))
    return TableDefinition(tuple(columns))


_SEQUENCE = _sequence()
