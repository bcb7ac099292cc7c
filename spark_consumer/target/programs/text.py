"""Reads from a stored program's text which tables it changes, which programs it runs and which columns of NEW it sets.

The text is the body of a trigger, event or routine, or a view's query, from ``information_schema``. It is split into
tokens and not parsed. Every name in a position where a changed table can be counts as changed, so the result may hold
too many names and never too few. Where the text does not show the effect (dynamic SQL, session variables, DDL on
anything but tables), the result has a doubt.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from schemas.ddl.cursor import TokenList
from schemas.ddl.lexer import NAME_KINDS, Dialect, LexError

#: a name with one to three parts, in the text's spelling
Path = tuple[str, ...]

_MODIFIERS = frozenset({"LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "QUICK", "IGNORE"})
# A table's name may follow these, or a list of tables in parentheses.
_BEFORE_TABLES = frozenset({"FROM", "JOIN", "STRAIGHT_JOIN", "USING", ","})
_END_OF_DELETE = frozenset({"WHERE", "ORDER", "LIMIT", "RETURNING"})
_DDL = frozenset({"CREATE", "ALTER", "DROP", "RENAME"})
_DDL_WORDS = frozenset({"OR", "REPLACE", "ONLINE", "IGNORE", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR"})


@dataclass(frozen=True)
class ProgramEffects:
    """The effects of a program's text.

    Attributes:
        writes: tables, views and sequences that it may change directly.
        calls: routines that it may run; most of them are built-in functions.
        names: all names in the text, because views and sequences may be among them.
        assigned: columns of ``NEW`` that it may set, in lower case.
        doubt: why the other fields may be incomplete; "" if they are complete.
        unreadable: whether the text could not be read at all.
    """

    writes: frozenset[Path] = frozenset()
    calls: frozenset[Path] = frozenset()
    names: frozenset[Path] = frozenset()
    assigned: frozenset[str] = frozenset()
    doubt: str = ""
    unreadable: bool = False


def effects_of(text: str, dialect: Dialect, parameters: Collection[str] = ()) -> ProgramEffects:
    """Return the effects of the body of a trigger, event or routine.

    Args:
        parameters: a routine's parameters in lower case; SET may change them.
    """
    try:
        tokens = TokenList(text, dialect)
    except LexError as error:
        return ProgramEffects(doubt=f"its text cannot be read: {error}", unreadable=True)
    return _ProgramScan(tokens, set(parameters)).run()


def query_effects(text: str, dialect: Dialect) -> ProgramEffects:
    """Return the tables that a view's query reads, as ``writes``: a change through the view may change any of them.

    The tables in subqueries are included, because MySQL's JSON duality views change them too.
    """
    try:
        tokens = TokenList(text, dialect)
    except LexError as error:
        return ProgramEffects(doubt=f"its text cannot be read: {error}", unreadable=True)
    scan = _ProgramScan(tokens, set())
    scan.tables_in(0, len(tokens), expected=False, subqueries=True)
    return scan.run()


@dataclass
class _ProgramScan:
    """One pass over a body's tokens."""

    tokens: TokenList
    variables: set[str]
    writes: set[Path] = field(default_factory=set)
    calls: set[Path] = field(default_factory=set)
    names: set[Path] = field(default_factory=set)
    assigned: set[str] = field(default_factory=set)
    doubt: str = ""
    # Tokens before a parenthesis that are not functions, and words such as SET that start no statement.
    _at_tables: set[int] = field(default_factory=set)
    _clauses: set[int] = field(default_factory=set)

    def run(self) -> ProgramEffects:
        index = 0
        while index < len(self.tokens):
            key = self.key(index)
            if key and self.key(index - 1) != ".":
                self._statement(index, key)
            path, end = self.path(index)
            if path and self.key(index - 1) != ".":
                self._name(index, path, end)
                index = end
            else:
                index += 1
        return ProgramEffects(
            frozenset(self.writes),
            frozenset(self.calls),
            frozenset(self.names),
            frozenset(self.assigned),
            self.doubt,
        )

    def key(self, index: int) -> str:
        return self.tokens.key(index)

    def path(self, index: int) -> tuple[Path, int]:
        """Return the name that starts at a token and the index after it; an empty name if there is none."""
        parts: list[str] = []
        while index < len(self.tokens) and self.tokens[index].kind in NAME_KINDS:
            parts.append(self.tokens[index].text)
            index += 1
            if self.key(index) != "." or len(parts) == 3:
                break
            index += 1
        return tuple(parts), index

    def _statement(self, index: int, key: str) -> None:
        before, following = self.key(index - 1), self.key(index + 1)
        if key in ("INSERT", "REPLACE") and following != "(" and before != "OR":
            self._insert(index)
        elif key == "UPDATE" and before not in ("KEY", "FOR", "ON"):
            self._update(index)
        elif key == "DELETE" and before != "ON":
            self.tables_in(index + 1, self._find(index, _END_OF_DELETE))
        elif key in _DDL and index not in self._clauses:
            self._ddl(index)
        elif key == "TRUNCATE" and following != "(":
            self.tables_in(index + 1 + (following == "TABLE"), self._end(index))
        elif key in ("PREPARE", "EXECUTE") and self._is_name(index + 1):
            self._doubt("it runs dynamic SQL")
        elif key == "LOAD":
            self._doubt("it loads a file")
        elif key == "CALL":
            self._call(index + 1)
        elif key in ("DECLARE", "FOR"):
            self._declare(index + 1)
        elif key in ("SIGNAL", "RESIGNAL"):
            self._clauses.add(self._find(index, ("SET",)))
        elif key == "SET" and index not in self._clauses and before != "CHARACTER" and following != "(":
            self._set(index + 1)
        elif key == "INTO" and index not in self._clauses:
            self._into(index + 1)

    def _name(self, index: int, path: Path, end: int) -> None:
        self.names.add(path)
        new = path[0].upper() == "NEW" and len(path) == 2
        if new and (self.key(end), self.key(end + 1)) == (":", "="):
            self.assigned.add(path[1].lower())
        if self.key(end) == "(" and index not in self._at_tables:
            self.calls.add(path)

    def _insert(self, index: int) -> None:
        index += 1
        while self.key(index) in _MODIFIERS | {"INTO"}:
            self._clauses.add(index)
            index += 1
        path, end = self.path(index)
        if not path:
            self._doubt("it has an INSERT that cannot be read")
            return
        self._write(index, path)
        if self.key(end) == "PARTITION":
            end = self._after_parentheses(end + 1)
        if self.key(end) == "SET":
            self._clauses.add(end)

    def _update(self, index: int) -> None:
        end = self._find(index, ("SET",))
        self.tables_in(index + 1, end)
        self._clauses.add(end)
        if self.key(end) != "SET":
            self._doubt("it has an UPDATE that cannot be read")

    def _ddl(self, index: int) -> None:
        """Record DDL on tables, which events may have. DDL on anything else is a doubt."""
        end, at = self._end(index), index + 1
        while self.key(at) in _DDL_WORDS:
            at += 1
        self._clauses.update(range(index, end))
        if self.key(at) == "TEMPORARY":
            return
        if self.key(at) not in ("TABLE", "TABLES", "INDEX"):
            self._doubt(f"it has {self.key(index)} {self.key(at)}")
        for each in range(at + 1, end):
            path, _ = self.path(each)
            if path and self.key(each - 1) != ".":
                self._write(each, path)

    def tables_in(self, begin: int, end: int, *, expected: bool = True, subqueries: bool = False) -> None:
        """Record the names in table positions between two tokens."""
        index = begin
        while index < end:
            key = self.key(index)
            if not subqueries and key == "(" and self.key(index + 1) in ("SELECT", "WITH"):
                # A subquery's tables are only read.
                index = self._after_parentheses(index) - 1
                expected = False
            elif expected and key == "{":
                # ODBC's { OJ … }.
                index += 1
            elif key in _BEFORE_TABLES:
                expected = True
            elif expected and key not in _MODIFIERS and key != "(":
                path, after = self.path(index)
                if path:
                    self.writes.add(path)
                    index = after - 1
                expected = False
            index += 1

    def _write(self, index: int, path: Path) -> None:
        """Record a changed table whose name a column list in parentheses may follow."""
        self.writes.add(path)
        self._at_tables.add(index)

    def _call(self, index: int) -> None:
        path, opening = self.path(index)
        self.calls.add(path)
        if self.key(opening) != "(":
            return
        # A parameter may be OUT.
        for begin, end in self._items(opening + 1):
            argument, last = self.path(begin)
            if last == end and len(argument) == 2 and argument[0].upper() == "NEW":
                self.assigned.add(argument[1].lower())

    def _declare(self, index: int) -> None:
        while self._is_name(index):
            self.variables.add(self.tokens[index].text.lower())
            if self.key(index + 1) != ",":
                return
            index += 2

    def _set(self, index: int) -> None:
        for begin, _ in self._items(index):
            path, _ = self.path(begin)
            if self.key(begin) == "@":
                if self.key(begin + 1) == "@":
                    self._doubt("it sets a system variable")
            elif path[:1] and path[0].lower() in self.variables:
                continue
            elif len(path) == 2 and path[0].upper() == "NEW":
                self.assigned.add(path[1].lower())
            elif path[:1] != ("OLD",):
                self._doubt(f"it sets the variable {'.'.join(path)}, which is not its own")

    def _into(self, index: int) -> None:
        more = True
        while more:
            path, end = self.path(index + (self.key(index) == "@"))
            if len(path) == 2 and path[0].upper() == "NEW":
                self.assigned.add(path[1].lower())
            more = bool(path) and self.key(end) == ","
            index = end + 1

    def _items(self, index: int) -> Iterator[tuple[int, int]]:
        """Yield the first index of each item of a list and the index after it, up to the statement's or list's end."""
        begin, depth = index, 0
        for at in range(index, len(self.tokens)):
            key = self.key(at)
            depth += {"(": 1, ")": -1}.get(key, 0)
            if depth < 0 or key == ";":
                yield begin, at
                return
            if key == "," and depth == 0:
                yield begin, at
                begin = at + 1
        yield begin, len(self.tokens)

    def _find(self, index: int, keys: Iterable[str]) -> int:
        """Return the index of the first of these words outside parentheses, or of the statement's end."""
        wanted, depth = frozenset(keys), 0
        for at in range(index + 1, len(self.tokens)):
            key = self.key(at)
            depth += {"(": 1, ")": -1}.get(key, 0)
            if key == ";" or depth < 0 or (depth == 0 and key in wanted):
                return at
        return len(self.tokens)

    def _end(self, index: int) -> int:
        return self._find(index, ())

    def _after_parentheses(self, index: int) -> int:
        """Return the index after the parentheses that open at ``index``."""
        return self._find(index, ()) + 1 if self.key(index) == "(" else index

    def _is_name(self, index: int) -> bool:
        return 0 <= index < len(self.tokens) and self.tokens[index].kind in NAME_KINDS

    def _doubt(self, why: str) -> None:
        self.doubt = self.doubt or why
