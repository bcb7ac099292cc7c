"""Finds the tables that the query of a view reads, and the positions of tables and databases in its text.

The servers' grammar (MySQL and MariaDB: ``sql/sql_yacc.yy``, ``query_expression``) is read as far as necessary to
distinguish a table from an alias, a column, a function or a common table expression. A query that would have to be
guessed is unreadable.

A table is expected after the FROM of a SELECT, after a comma, JOIN or parenthesis there, and after TABLE. FROM inside
a function's parentheses (EXTRACT, TRIM, SUBSTRING) has no tables, nor has FROM in NTH_VALUE or in MariaDB's FOR
SYSTEM_TIME.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from schemas.ddl.cursor import Reference, TokenList
from schemas.ddl.lexer import Flavor, Token, TokenKind

# Words that may follow a table, or its alias without AS.
_AFTER_TABLE = frozenset(
    {
        *(
            "",
            ",",
            ")",
            ";",
            "}",
            "ON",
            "USING",
            "USE",
            "FORCE",
            "IGNORE",
            "JOIN",
            "INNER",
            "CROSS",
            "LEFT",
            "RIGHT",
        ),
        *(
            "NATURAL",
            "STRAIGHT_JOIN",
            "WHERE",
            "GROUP",
            "HAVING",
            "ORDER",
            "LIMIT",
            "UNION",
            "EXCEPT",
            "FOR",
            "LOCK",
        ),
        *("INTO", "PROCEDURE", "WITH"),
    }
)
_ENDS = frozenset(
    {
        *(
            "WHERE",
            "GROUP",
            "HAVING",
            "ORDER",
            "LIMIT",
            "LOCK",
            "INTO",
            "UNION",
            "EXCEPT",
            "PROCEDURE",
            "WITH",
        ),
    }
)
# These also end a list of tables, but may be an alias. They end it if these words follow.
_MAYBE_ENDS: dict[str, frozenset[str]] = {
    "INTERSECT": frozenset({"SELECT", "ALL", "DISTINCT", "(", "VALUES", "TABLE", "WITH"}),
    "MINUS": frozenset({"SELECT", "ALL", "DISTINCT", "("}),
    "FETCH": frozenset({"FIRST", "NEXT"}),
}
_SEQUENCE_FUNCTIONS = frozenset(("NEXTVAL", "LASTVAL", "SETVAL"))
_SEQUENCE_COLUMNS = frozenset(("NEXTVAL", "CURRVAL"))


class UnreadableQuery(ValueError):
    """The tables of a query cannot be determined reliably."""


@dataclass(frozen=True)
class QueryTable:
    """A table or sequence that a query reads.

    Attributes:
        alias: its alias in the query; None without one.
        alias_at: the offset at which an alias can be added; None where it is not allowed.
        sequence: whether it is a sequence, which needs no alias.
    """

    reference: Reference
    alias: str | None = None
    alias_at: int | None = None
    sequence: bool = False

    @property
    def name(self) -> str:
        """The name that may qualify its columns."""
        return self.alias or self.reference.table or ""


@dataclass(frozen=True)
class Qualifier:
    """A database that qualifies a column or a function; ``[start, end)`` is the database's name.

    Attributes:
        name: the table or alias of ``database.table.column``; None for ``database.function()``.
    """

    start: int
    end: int
    db: str
    name: str | None


@dataclass
class QueryNames:
    """The names in a query."""

    reads: list[QueryTable] = field(default_factory=list)
    qualified: list[Qualifier] = field(default_factory=list)


@dataclass
class _Scope:
    """A query or an expression, in parentheses or the whole text.

    Attributes:
        state: ``select``: between SELECT and FROM; ``from``: in the list of tables; "" elsewhere.
        expecting: in the list of tables: whether a table is next.
        fresh: whether no token was read yet.
        ctes: the names of common table expressions that may be used as tables.
        unsure: those for which this depends on the server.
    """

    state: str = ""
    expecting: bool = False
    fresh: bool = True
    ctes: frozenset[str] = frozenset()
    unsure: frozenset[str] = frozenset()

    def nested(self) -> _Scope:
        """Return the scope of a parenthesis that opens here."""
        tables = self.state == "from" and self.expecting
        return _Scope("from" if tables else "", tables, True, self.ctes, self.unsure)


def read_query(
    tokens: TokenList, start: int, default_db: str, flavor: Flavor, *, oracle: bool = False
) -> QueryNames:
    """Read the names in a query.

    Args:
        start: the index of its first token.
        oracle: whether the session had MariaDB's sql_mode ORACLE.

    Raises:
        UnreadableQuery: they cannot be determined reliably.
    """
    reader = _Reader(tokens, start, default_db, flavor, oracle)
    reader.read()
    return reader.query


class _Reader:
    def __init__(self, tokens: TokenList, start: int, default_db: str, flavor: Flavor, oracle: bool) -> None:
        self._tokens, self._at = tokens, start
        self._default_db, self._flavor, self._oracle = default_db, flavor, oracle
        self._scopes = [_Scope()]
        self.query = QueryNames()

    # -- tokens ----------------------------------------------------------------------------------

    def _key(self, ahead: int = 0) -> str:
        """Return the word in capitals, or the sign; "" for a quoted name, a string, and after the end."""
        return self._tokens.key(self._at + ahead)

    def _keys(self, count: int) -> tuple[str, ...]:
        return self._tokens.keys(self._at, count)

    def _is_name(self, ahead: int = 0) -> bool:
        at = self._at + ahead
        return self._tokens.is_name(at) and not _is_number(self._tokens[at])

    def _skip_group(self) -> None:
        """Skip the parenthesis that opens here."""
        depth = 0
        while self._at < len(self._tokens):
            depth += {"(": 1, ")": -1}.get(self._key(), 0)
            self._at += 1
            if depth == 0:
                return
        raise UnreadableQuery("parentheses do not match")

    # -- the query -------------------------------------------------------------------------------

    def read(self) -> None:
        while self._at < len(self._tokens):
            self._next()
        if len(self._scopes) != 1:
            raise UnreadableQuery("parentheses do not match")
        if self._scopes[0].expecting:
            self._reference()

    def _next(self) -> None:
        scope = self._scopes[-1]
        fresh, scope.fresh = scope.fresh, False
        if not self._step(scope, fresh):
            self._other()

    def _step(self, scope: _Scope, fresh: bool) -> bool:
        """Read the next part of a query; False if it is part of an expression."""
        key = self._key()
        plain = self._key(-1) != "."
        if key == "(":
            self._scopes.append(scope.nested())
            scope.expecting = False
        elif key == ")":
            if scope.expecting:
                self._reference()
            self._scopes.pop()
            if not self._scopes:
                raise UnreadableQuery("parentheses do not match")
        elif plain and key == "WITH" and fresh and self._key(1) != "(":
            self._common_tables(scope)
            return True
        elif plain and key == "SELECT":
            scope.state, scope.expecting = "select", False
        elif plain and key == "VALUES" and (fresh or scope.expecting):
            scope.state, scope.expecting = "", False
        elif plain and key == "TABLE" and self._flavor == "mysql" and self._begins_query(scope, fresh):
            scope.state, scope.expecting = "", False
            self._at += 1
            self._table(scope, may_have_alias=False)
            return True
        elif plain and key == "FROM" and scope.state == "select" and not self._from_of_function():
            scope.state, scope.expecting = "from", True
        elif scope.state == "from":
            return self._in_tables(scope, key)
        else:
            return False
        self._at += 1
        return True

    def _begins_query(self, scope: _Scope, fresh: bool) -> bool:
        return (
            fresh or scope.expecting or self._key(-1) in ("UNION", "EXCEPT", "INTERSECT", "ALL", "DISTINCT")
        )

    def _from_of_function(self) -> bool:
        """Whether this FROM belongs to NTH_VALUE or to IS DISTINCT FROM."""
        first = self._key(1) in ("FIRST", "LAST") and self._key(2) in ("RESPECT", "IGNORE", "OVER")
        return (first and self._key(-1) == ")") or (
            self._key(-1) == "DISTINCT" and self._key(-2) in ("IS", "NOT")
        )

    # -- lists of tables -------------------------------------------------------------------------

    def _in_tables(self, scope: _Scope, key: str) -> bool:
        if scope.expecting:
            self._expected(scope, key)
            return True
        if self._key(-1) == ".":
            return False
        if key in (",", "JOIN", "STRAIGHT_JOIN"):
            scope.expecting = True
        elif key in ("USE", "FORCE", "IGNORE") and self._key(1) in ("INDEX", "KEY"):
            # USE INDEX FOR JOIN (i) has the words of other clauses.
            while self._at < len(self._tokens) and self._key() != "(":
                self._at += 1
            self._skip_group()
            return True
        elif self._ends_tables(key):
            scope.state = ""
        else:
            return False
        self._at += 1
        return True

    def _ends_tables(self, key: str) -> bool:
        if key == "FOR":
            return self._key(1) != "SYSTEM_TIME"
        if key == "WINDOW":
            return self._is_name(1) and self._key(2) == "AS" and self._key(3) == "("
        if key == "QUALIFY":
            return self._flavor == "mysql" and self._key(1) not in _AFTER_TABLE
        if key == "OFFSET":
            return self._key(1)[:1].isdigit() or self._key(1) in ("?", "@")
        return key in _ENDS or self._key(1) in _MAYBE_ENDS.get(key, ())

    def _expected(self, scope: _Scope, key: str) -> None:
        """Read a table, or an expression used as a table."""
        if key == "{" and self._key(1) == "OJ":
            self._at += 2
        elif key == "LATERAL" and self._key(1) == "(":
            self._at += 1
        elif (key == "JSON_TABLE" and self._key(1) == "(") or (key == "DUAL" and self._key(1) != "."):
            scope.expecting = False
            self._at += 1
        else:
            scope.expecting = False
            self._table(scope)

    def _table(self, scope: _Scope, *, may_have_alias: bool = True) -> None:
        reference = self._reference()
        if self._key() == "(":
            raise UnreadableQuery(f"expected a table, found the function {reference.table}")
        bare = reference.end == self._tokens[self._at - 1].end and self._key(-2) != "."
        name = self._cte_name(reference.table or "")
        if bare and name in scope.unsure:
            raise UnreadableQuery(f"{reference.table} may be a table or a common table expression")
        if bare and name in scope.ctes:
            return
        alias, at = self._alias() if may_have_alias else (None, None)
        self.query.reads.append(QueryTable(reference, alias, at))

    def _cte_name(self, name: str) -> str:
        return name.lower() if self._flavor == "mariadb" else name

    def _reference(self) -> Reference:
        """Read the name of a table."""
        start = self._tokens[self._at].start if self._at < len(self._tokens) else 0
        dotted = self._key() == "."
        self._at += dotted
        if not self._is_name():
            raise UnreadableQuery(f"expected a table's name, found {self._key() or 'the end'!r}")
        first = self._tokens[self._at]
        self._at += 1
        if dotted or self._key() != ".":
            return Reference(start, first.end, self._default_db, first.text)
        if not self._is_name(1):
            raise UnreadableQuery("expected a name after a dot")
        second = self._tokens[self._at + 1]
        self._at += 2
        return Reference(start, second.end, first.text, second.text)

    def _alias(self) -> tuple[str | None, int | None]:
        """Read a table's alias, and the offset at which one could be added."""
        begin = self._at
        if self._keys(2) == ("PARTITION", "("):
            self._at += 1
            self._skip_group()
        at: int | None = self._tokens[self._at - 1].end
        if self._keys(2) == ("FOR", "SYSTEM_TIME"):
            # FOR SYSTEM_TIME ends with an expression.
            at = None
        alias = None
        if self._key() == "AS" and self._is_name(1):
            alias = self._tokens[self._at + 1].text
        elif self._is_alias():
            alias = self._tokens[self._at].text
        self._at = begin
        return alias, None if alias is not None else at

    def _is_alias(self) -> bool:
        """Whether a name without AS is a table's alias, and not a keyword that may follow the table."""
        if not self._is_name():
            return False
        quoted = self._tokens[self._at].kind is TokenKind.QUOTED
        return quoted or not (self._key() in _AFTER_TABLE or self._ends_tables(self._key()))

    # -- common table expressions ----------------------------------------------------------------

    def _common_tables(self, scope: _Scope) -> None:
        """Read ``WITH [RECURSIVE] name [(columns)] AS (query), …``; the names are known after it and in each other."""
        self._at += 1
        recursive = self._key() == "RECURSIVE"
        self._at += recursive
        names = self._cte_names()
        for index, (name, opening) in enumerate(names):
            later = frozenset(other for other, _ in names[index + (not recursive) :])
            self._at = opening
            inner = _Scope(ctes=scope.ctes | ({name} if recursive else set()), unsure=scope.unsure)
            # In MariaDB several expressions may be mutually recursive, in MySQL only one in itself.
            inner.unsure |= (later - {name}) if recursive else frozenset()
            self._within(inner)
            scope.ctes |= {name}
        self._skip_cycle()
        scope.fresh = True

    def _skip_cycle(self) -> None:
        """Skip MariaDB's ``CYCLE column, … RESTRICT``."""
        if self._key() == "CYCLE":
            while self._at < len(self._tokens) and self._key() != "RESTRICT":
                self._at += 1
            self._at += 1

    def _cte_names(self) -> list[tuple[str, int]]:
        """Read the names of a WITH clause, each with the position of its query's parenthesis, and skip the clause."""
        here, names = self._at, []
        while True:
            if not self._is_name():
                raise UnreadableQuery("WITH without a name")
            name = self._cte_name(self._tokens[self._at].text)
            self._at += 1
            if self._key() == "(":
                self._skip_group()
            if self._keys(2) != ("AS", "("):
                raise UnreadableQuery("a common table expression without its query")
            names.append((name, self._at + 1))
            self._at += 1
            self._skip_group()
            self._skip_cycle()
            if self._key() != ",":
                break
            self._at += 1
        self._at = here
        return names

    def _within(self, scope: _Scope) -> None:
        """Read the parenthesis that opens here."""
        outer, self._scopes = self._scopes, [_Scope(), scope]
        self._at += 1
        while len(self._scopes) > 1:
            if self._at >= len(self._tokens):
                raise UnreadableQuery("parentheses do not match")
            self._next()
        self._scopes = outer

    # -- everything else -------------------------------------------------------------------------

    def _other(self) -> None:
        """Read a token of an expression, or names in it."""
        if not self._is_name() or self._key(-1) in (".", "@") or self._key(-1) == "AS":
            self._at += 1
        elif self._key(1) == ".":
            self._dotted()
        elif self._flavor == "mariadb" and self._key() in ("NEXT", "PREVIOUS") and self._key(1) == "VALUE":
            self._at += 3 if self._key(2) == "FOR" else 1
            if self._key(-1) == "FOR":
                self.query.reads.append(QueryTable(self._reference(), sequence=True))
        elif self._flavor == "mariadb" and self._key() in _SEQUENCE_FUNCTIONS and self._key(1) == "(":
            self._scopes.append(replace(self._scopes[-1].nested(), fresh=False))
            self._at += 2
            self.query.reads.append(QueryTable(self._reference(), sequence=True))
        else:
            self._at += 1

    def _dotted(self) -> None:
        """Read ``a.b``, ``a.b.c`` or ``a.b()``."""
        first, second = self._tokens[self._at], self._tokens[self._at + 2 : self._at + 3]
        if self._key(3) == "." and second:
            self.query.qualified.append(Qualifier(first.start, first.end, first.text, second[0].text))
            self._at += 5
        elif self._key(3) == "(":
            self.query.qualified.append(Qualifier(first.start, first.end, first.text, None))
            self._at += 3
        elif self._key(2) in _SEQUENCE_COLUMNS and self._oracle:
            raise UnreadableQuery(f"{first.text} may be a table or a sequence")
        else:
            self._at += 3


def _is_number(token: Token) -> bool:
    """Whether a word is a number such as 1, 1e5, 0x1f, 0b1. Other words that start with a digit are names."""
    if token.kind is not TokenKind.WORD or not token.text.isascii() or not token.text[0].isdigit():
        return False
    text = token.text.lower()
    mantissa, _, exponent = text.partition("e")
    simple = mantissa.isdecimal() and (not exponent or exponent.isdecimal()) and text.count("e") <= 1
    return simple or text.startswith(("0x", "0b"))
