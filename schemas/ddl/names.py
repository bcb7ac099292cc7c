"""Renames the tables and databases in a DDL's text. The rest of the text, including comments, does not change.

Names are found by the servers' grammars (MySQL and MariaDB: ``sql/sql_yacc.yy``): the names that ``classify`` reads,
REFERENCES, LIKE, UNION= of MERGE tables, MariaDB's sequences in defaults, columns qualified with their table, and the
tables in the query of a view (``view_query``). In the query a renamed table gets its old name as an alias, so its
qualified columns need no change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from schemas.ddl.classify import classify
from schemas.ddl.cursor import Reference, TokenList
from schemas.ddl.kinds import Category, ClassifiedStatement
from schemas.ddl.lexer import Dialect, Flavor, LexError, TokenKind, dialect_of
from schemas.ddl.view_query import Qualifier, QueryTable, UnreadableQuery, read_query
from schemas.letter_case import lowered
from schemas.quote import quoted

#: a function from an upstream's database and table to the new ones; the table is None for a database
NewName = Callable[[str, str | None], tuple[str, str | None]]

_BODIES = ("CREATE TABLE", "ALTER TABLE", "CREATE INDEX")
_WITH_QUERY = (
    "CREATE VIEW",
    "ALTER VIEW",
    "CREATE JSON DUALITY VIEW",
    "ALTER JSON DUALITY VIEW",
)
_SEQUENCE_FUNCTIONS = ("NEXTVAL", "LASTVAL", "SETVAL")
_ORACLE = 0x200  # of sql_mode


class CannotRename(ValueError):
    """The names in a statement cannot be changed reliably."""


@dataclass(frozen=True)
class RenamedStatement:
    """A DDL with its new names, and the default database to run it with."""

    statement: str
    default_db: str


def rename(
    statement: str,
    default_db: str,
    flavor: Flavor,
    new_name: NewName,
    *,
    sql_mode: int = 0,
    if_not_exists: bool = False,
    name_in_query: NewName | None = None,
) -> RenamedStatement:
    """Rename the tables and databases in a DDL; new names have backticks and the database.

    Args:
        statement, default_db, flavor, sql_mode: as for ``classify``.
        if_not_exists: CREATE TABLE and CREATE DATABASE get IF NOT EXISTS.
        name_in_query: like ``new_name``, for the tables that a view reads.

    Raises:
        CannotRename: some name would have to change, and the text does not show for sure where.
    """
    dialect = dialect_of(flavor, sql_mode)
    found = classify(statement, default_db, flavor, sql_mode=sql_mode)
    if found.category is not Category.DDL:
        raise CannotRename(f"it is not a replicated DDL: {found.reason or found.kind}")
    text = _Text(statement, dialect, default_db, new_name)
    changes = [text.change(reference) for reference in found.references]
    if found.kind in _BODIES:
        changes += text.body(found)
    elif found.kind in _WITH_QUERY:
        aliases = "DUALITY" not in found.kind
        changes += text.query(found.references[0].end, name_in_query or new_name, sql_mode, aliases=aliases)
    if if_not_exists and found.references:
        changes.append(text.if_not_exists(found.references[0]))
    if found.database and not found.references:
        # ALTER DATABASE without a name means the session's own.
        default_db = new_name(found.database, None)[0]
    return RenamedStatement(text.replaced(filter(None, changes)), default_db)


def in_lower_case(statement: str, default_db: str, flavor: Flavor, *, sql_mode: int = 0) -> RenamedStatement:
    """Convert the names of databases and tables in a DDL to lower case, as on a server that ignores their case.

    The queries of views and the bodies of programs do not change.

    Raises:
        CannotRename: a comment stands inside of a name.
    """
    default_db = lowered(default_db)
    found = classify(statement, default_db, flavor, sql_mode=sql_mode)
    if found.category not in (Category.DDL, Category.OBJECT):
        return RenamedStatement(statement, default_db)
    table = lowered if found.category is Category.DDL else str
    names = max((reference.end for reference in found.references), default=0)
    text = _Text(
        statement,
        dialect_of(flavor, sql_mode),
        default_db,
        lambda db, name: (lowered(db), None if name is None else table(name)),
        # A program's body may be in another language.
        None if found.category is Category.DDL else names,
    )
    changes = [text.change(reference) for reference in found.references]
    if found.kind in _BODIES:
        changes += text.body(found)
    return RenamedStatement(text.replaced(filter(None, changes)), default_db)


@dataclass(frozen=True)
class _Change:
    """New text for ``[start, end)`` of the statement."""

    start: int
    end: int
    text: str


class _Text:
    """A statement's tokens, and the changes of its names.

    Args:
        end: offset at which to stop reading; None means the statement's end.

    Raises:
        CannotRename: a quote or comment is not closed.
    """

    def __init__(
        self,
        statement: str,
        dialect: Dialect,
        default_db: str,
        new_name: NewName,
        end: int | None = None,
    ) -> None:
        self._statement = statement
        try:
            self._tokens = TokenList(statement, dialect, end)
        except LexError as error:
            raise CannotRename(str(error)) from error
        self._flavor = dialect.flavor
        self._default_db = default_db
        self._new_name = new_name

    def change(self, reference: Reference) -> _Change | None:
        """Return the change of a reference, None if it keeps its name."""
        old = (reference.db, reference.table)
        new = self._new_name(*old)
        if new == old:
            return None
        text = quoted(*filter(None, new))
        return self._at(reference.start, reference.end, text)

    def if_not_exists(self, created: Reference) -> _Change | None:
        """Return the change that adds IF NOT EXISTS before a created name, None if it is already there."""
        index = next(i for i, token in enumerate(self._tokens) if token.start >= created.start)
        if any(token.key == "REPLACE" for token in self._tokens[:index]):
            raise CannotRename("OR REPLACE would remove rows of other tables")
        if index and self._tokens[index - 1].key == "EXISTS":
            return None
        return _Change(created.start, created.start, "IF NOT EXISTS ")

    def body(self, found: ClassifiedStatement) -> Iterator[_Change | None]:
        """Yield the changes after the names at the start of the statement."""
        own = found.references[0]
        known = {reference.start for reference in found.references}
        seen = -1
        for index, token in enumerate(self._tokens):
            if token.start <= seen:
                continue
            for reference in self._named_at(index, own):
                seen = max(seen, reference.end - 1)
                yield self.change(reference)
            if token.start > max(own.end, seen) and token.start not in known:
                yield self._column_at(index, own.db)

    def _named_at(self, index: int, own: Reference) -> Iterator[Reference]:
        """Yield the tables after the keyword at ``index``."""
        token, following, key = self._tokens[index], index + 1, self._tokens.key
        if token.kind is not TokenKind.WORD or key(index - 1) == ".":
            return
        if token.key == "REFERENCES":
            # Without a database, the table is in the database of the table with the foreign key, not the session's.
            yield self._reference(following, own.db)
        elif token.key == "LIKE" and self._follows(index, own):
            yield self._reference(following, self._default_db)
        elif token.key == "UNION":
            following += key(following) == "="
            while key(following) in ("(", ","):
                reference = self._reference(following + 1, self._default_db)
                yield reference
                following = next(i for i, t in enumerate(self._tokens) if t.start >= reference.end)
        elif self._flavor == "mariadb":
            if token.key in _SEQUENCE_FUNCTIONS and key(following) == "(":
                yield self._reference(following + 1, self._default_db)
            elif token.key in ("NEXT", "PREVIOUS") and self._tokens.keys(following, 2) == ("VALUE", "FOR"):
                yield self._reference(following + 2, self._default_db)

    def _follows(self, index: int, own: Reference) -> bool:
        """Whether the token directly follows the table's own name, or is in a parenthesis there."""
        before = index - 1
        if self._tokens.key(before) == "(":
            before -= 1
        return before >= 0 and self._tokens[before].end == own.end

    def _column_at(self, index: int, db: str) -> _Change | None:
        """Return the change of the table in ``table.column`` or ``database.table.column``."""
        tokens = self._tokens
        if tokens.key(index - 1) == "." or not tokens.is_name(index) or tokens.key(index + 1) != ".":
            return None
        token, second = tokens[index], tokens[index + 2]
        if tokens.key(index + 3) == ".":
            reference = Reference(token.start, second.end, token.text, second.text)
            return self.change(reference)
        new_db, new_table = self._new_name(db, token.text)
        if (new_db, new_table) == (db, token.text):
            return None
        return self._at(token.start, token.end, quoted(new_table or ""))

    def query(
        self, start: int, new_name: NewName, sql_mode: int, *, aliases: bool
    ) -> Iterator[_Change | None]:
        """Yield the changes in a view's query.

        Args:
            start: where the view's own name ends.
            new_name: what the tables are called that it reads.
            aliases: whether they may have some.
        """
        try:
            begin = next(i for i, token in enumerate(self._tokens) if token.start >= start)
            if self._tokens.key(begin) == "(":
                begin = 1 + next(i for i, token in enumerate(self._tokens) if i > begin and token.key == ")")
            if self._tokens.key(begin) != "AS":
                raise CannotRename("its query was not found")
            oracle = self._flavor == "mariadb" and bool(sql_mode & _ORACLE)
            query = read_query(self._tokens, begin + 1, self._default_db, self._flavor, oracle=oracle)
        except (UnreadableQuery, StopIteration) as error:
            raise CannotRename(f"its query is not understood: {error}") from error
        new = {read: new_name(read.reference.db, read.reference.table) for read in query.reads}
        for read, name in new.items():
            yield from self._read(read, name, aliases)
        for one in query.qualified:
            yield self._qualifier(one, new, new_name)

    def _read(self, read: QueryTable, new: tuple[str, str | None], aliases: bool) -> Iterator[_Change | None]:
        """Yield the changes for a table that a query reads."""
        reference = read.reference
        if new == (reference.db, reference.table):
            return
        yield self._at(reference.start, reference.end, quoted(new[0], new[1] or ""))
        if read.sequence or read.alias is not None or new[1] == reference.table:
            return
        if read.alias_at is None or not aliases:
            raise CannotRename(
                f"its query qualifies columns with the table {reference.table}, which has another name"
            )
        yield _Change(read.alias_at, read.alias_at, f" AS {quoted(reference.table or '')}")

    def _qualifier(
        self, one: Qualifier, new: Mapping[QueryTable, tuple[str, str | None]], new_name: NewName
    ) -> _Change | None:
        """Return the change of a database that qualifies a column or a function."""
        there = [read for read in new if read.reference.db == one.db]
        named = [read for read in there if read.name == one.name] or there
        found = {new[read][0] for read in named} if one.name is not None else set()
        found = found or {new_name(one.db, None)[0]}
        if found == {one.db}:
            return None
        if len(found) > 1 or not there or one.name is None:
            raise CannotRename(f"its query uses an object in {one.db}, which has another name here")
        return self._at(one.start, one.end, quoted(found.pop()))

    def replaced(self, changes: Iterator[_Change]) -> str:
        """Return the statement with the changes applied."""
        parts, position = [], 0
        for change in sorted(changes, key=lambda change: (change.start, change.end)):
            parts += [self._statement[position : change.start], change.text]
            position = change.end
        return "".join([*parts, self._statement[position:]])

    def _at(self, start: int, end: int, text: str) -> _Change:
        if any(gap_start < end and start < gap_end for gap_start, gap_end in self._tokens.gaps):
            raise CannotRename(f"there is a comment inside the name {self._statement[start:end]!r}")
        return _Change(start, end, text)

    def _reference(self, index: int, default_db: str) -> Reference:
        """Read the table at ``index``."""
        found = self._tokens.table_at(index, default_db)
        if found is None:
            raise CannotRename(f"expected a table's name after {self._tokens[index - 1].text!r}")
        return found
