"""A statement's tokens: read from left to right by a cursor, or looked at by index in a list."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import NamedTuple

from schemas.ddl.lexer import NAME_KINDS, Dialect, Lexer, Token, TokenKind


class Unparsable(ValueError):
    """The statement does not match the grammar of its first words."""


class TableName(NamedTuple):
    """A table or view that a statement creates, changes, drops or renames."""

    db: str
    table: str
    renamed_to_db: str | None = None
    renamed_to: str | None = None


class Reference(NamedTuple):
    """The name of a table in a statement's text, or of a database if ``table`` is None, at ``[start, end)``."""

    start: int
    end: int
    db: str
    table: str | None


_END = Token(TokenKind.END, "", "", -1, -1)


class Cursor:
    """Reads tokens from left to right with two tokens of look-ahead, and no further than necessary."""

    def __init__(
        self,
        statement: str,
        dialect: Dialect,
        default_db: str,
        tokens: Iterable[Token] | None = None,
    ) -> None:
        self._tokens = iter(Lexer(statement, dialect) if tokens is None else tokens)
        self._dialect = dialect
        self._ahead: deque[Token] = deque()
        self._default_db = default_db
        self._last = _END
        self.statement = statement
        self.flavor = dialect.flavor
        #: the names that ``table`` and ``database`` have read
        self.references: list[Reference] = []

    def over(self, tokens: Iterable[Token]) -> Cursor:
        """Return a cursor over some of the statement's tokens."""
        return Cursor(self.statement, self._dialect, self._default_db, tokens)

    def peek(self, distance: int = 0) -> Token:
        """Return the token ``distance`` positions ahead without reading it."""
        while len(self._ahead) <= distance:
            self._ahead.append(next(self._tokens, _END))
        return self._ahead[distance]

    def next(self) -> Token:
        """Read the next token."""
        self.peek()
        self._last = self._ahead.popleft()
        return self._last

    def rest(self) -> Iterator[Token]:
        """Read all tokens up to the end."""
        while True:
            # The caller may look ahead in between; tokens that were not looked at need no queue.
            token = self.next() if self._ahead else next(self._tokens, _END)
            if token.kind is TokenKind.END:
                return
            yield token

    def at(self, *keys: str) -> bool:
        """Whether the next tokens are exactly these unquoted words or signs."""
        # Most are not.
        return self.peek().key == keys[0] and all(self.peek(i).key == key for i, key in enumerate(keys))

    def take(self, *keys: str) -> bool:
        """Read these words or signs if they are next. Returns whether they were."""
        if not self.at(*keys):
            return False
        for _ in keys:
            self.next()
        return True

    def take_any(self, *keys: str) -> str:
        """Read one of these words if it is next; ``""`` if none is."""
        return next((key for key in keys if self.take(key)), "")

    def expect(self, *keys: str) -> None:
        """Read these words or signs.

        Raises:
            Unparsable: other tokens are next.
        """
        if not self.take(*keys):
            raise Unparsable(f"expected {' '.join(keys)}, found {self._found()}")

    def name(self) -> str:
        """Read one identifier, quoted or not."""
        token = self.next()
        if token.kind not in NAME_KINDS or not token.text:
            raise Unparsable(f"expected a name, found {token.text or token.kind.value!r}")
        if token.kind is TokenKind.WORD and token.text.isdecimal() and token.text.isascii():
            raise Unparsable(f"expected a name, found the number {token.text}")
        return token.text

    def table(self) -> TableName:
        """Read ``table``, ``db.table`` or ``.table``."""
        start = self.peek().start
        table = self._table()
        self.references.append(Reference(start, self._last.end, table.db, table.table))
        return table

    def database(self) -> str:
        """Read the name of a database."""
        name = self.name()
        self.references.append(Reference(self._last.start, self._last.end, name, None))
        return name

    def tables(self) -> tuple[TableName, ...]:
        """Read ``a, b, c``."""
        names = [self.table()]
        while self.take(","):
            names.append(self.table())
        return tuple(names)

    @property
    def has_default_db(self) -> bool:
        """Whether the session had a default database."""
        return bool(self._default_db)

    def default_db(self) -> str:
        """Return the session's database.

        Raises:
            Unparsable: the session had none.
        """
        if not self._default_db:
            raise Unparsable("a name without its database, and the session had no default database")
        return self._default_db

    def user(self) -> None:
        """Skip ``user``, ``user@host``, ``CURRENT_USER()``."""
        self.next()
        if self.take("(", ")") or not self.take("@"):
            return
        self.next()
        while self.take("."):  # a host name may have dots without quotes
            self.next()

    def lock_wait(self) -> None:
        """Skip MariaDB's ``WAIT n`` and ``NOWAIT``."""
        if self.flavor != "mariadb" or self.take("NOWAIT"):
            return
        if self.at("WAIT") and self.peek(1).text.isdecimal():
            self.next()
            self.next()

    def statement_variables(self) -> None:
        """Skip ``variable=value, … FOR`` of MariaDB's ``SET STATEMENT variable=value, … FOR statement``.

        Raises:
            Unparsable: FOR is missing.
        """
        depth = 0
        for token in self.rest():
            if depth == 0 and token.key == "FOR":
                return
            depth += {"(": 1, ")": -1}.get(token.key, 0)
        raise Unparsable("SET STATEMENT without FOR")

    def end(self) -> None:
        """Check that nothing follows except ``;``.

        Raises:
            Unparsable: the statement continues.
        """
        while self.take(";"):
            pass
        if self.peek().kind is not TokenKind.END:
            raise Unparsable(f"unexpected {self._found()}")

    def _table(self) -> TableName:
        if self.take("."):
            return self._in_default_db(self._after_dot())
        first = self.name()
        if self.take("."):
            return TableName(first, self._after_dot())
        return self._in_default_db(first)

    def _in_default_db(self, table: str) -> TableName:
        return TableName(self.default_db(), table)

    def _after_dot(self) -> str:
        # After a dot both servers' lexers treat any word as a name, including keywords and digits.
        token = self.next()
        if token.kind not in NAME_KINDS or not token.text:
            raise Unparsable(f"expected a name after the dot, found {token.text or token.kind.value!r}")
        return token.text

    def _found(self) -> str:
        token = self.peek()
        return repr(token.text) if token.text else token.kind.value


class TokenList(list[Token]):
    """All tokens of a statement, for readers that look at them by index.

    Args:
        end: offset at which to stop reading; None means the statement's end.

    Attributes:
        gaps: start and end of each comment and comment mark.

    Raises:
        LexError: a quote or comment is not closed.
    """

    def __init__(self, statement: str, dialect: Dialect, end: int | None = None) -> None:
        lexer = Lexer(statement, dialect)
        super().__init__(lexer if end is None else takewhile(lambda token: token.start < end, lexer))
        self.gaps = lexer.gaps

    def key(self, index: int) -> str:
        """Return the word in capitals, or the sign; "" for a quoted name, a string, and outside of the statement."""
        return self[index].key if 0 <= index < len(self) else ""

    def keys(self, index: int, count: int) -> tuple[str, ...]:
        """Return ``key`` of some tokens in a row."""
        return tuple(self.key(index + ahead) for ahead in range(count))

    def find(self, *keys: str, start: int = 0) -> int:
        """Return the index of the first of these words or signs, -1 without one."""
        return next((index for index in range(start, len(self)) if self[index].key in keys), -1)

    def is_name(self, index: int) -> bool:
        """Whether there is a name; a keyword may be one, a number is none."""
        if not 0 <= index < len(self):
            return False
        token = self[index]
        number = token.kind is TokenKind.WORD and token.text.isascii() and token.text.isdecimal()
        return token.kind in NAME_KINDS and not number

    def table_at(self, index: int, default_db: str) -> Reference | None:
        """Return the ``table`` or ``db.table`` that starts at a token; None if there is no name."""
        if not self.is_name(index):
            return None
        first = self[index]
        if self.key(index + 1) != ".":
            return Reference(first.start, first.end, default_db, first.text)
        return Reference(first.start, self[index + 2].end, first.text, self[index + 2].text)
