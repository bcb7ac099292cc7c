"""Splits a MySQL or MariaDB statement into tokens, lazily, with executable comments resolved.

sqlglot's tokenizer is not used here: it silently drops ``/*!80023 … */`` and ``/*M! … */``, and it reads the whole
text at once, which is too slow for a 100 MB INSERT in statement format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple

Flavor = Literal["mysql", "mariadb"]
FLAVORS: tuple[Flavor, ...] = ("mysql", "mariadb")

#: sql_mode bits that change how text is split into tokens (MySQL: sql/system_variables.h)
ANSI_QUOTES = 0x4
NO_BACKSLASH_ESCAPES = 0x100000

#: If a server did not execute an executable comment, it replaces the ``!`` by a space before it logs the statement
#: ("to avoid it being propagated", MySQL and MariaDB: sql/sql_lex.cc). So every executable comment in a binlog was
#: executed, and the newest version of the flavor is the right assumption.
_NEWEST: dict[Flavor, int] = {"mysql": 99_999, "mariadb": 999_999}


class LexError(ValueError):
    """The text cannot be split into tokens: a quote or comment is not closed."""


class TokenKind(Enum):
    """The kind of a token; keywords are WORDs, since most of them may also be names."""

    WORD = "word"
    QUOTED = "quoted identifier"
    STRING = "string"
    SIGN = "sign"
    END = "end of statement"


#: what a name may be
NAME_KINDS = (TokenKind.WORD, TokenKind.QUOTED)


class Token(NamedTuple):
    """One token: ``text`` is unquoted for names, upper case in ``key`` for unquoted words, else the sign."""

    kind: TokenKind
    text: str
    key: str
    start: int
    end: int


@dataclass(frozen=True)
class Dialect:
    """How the server that wrote the text reads quotes and versioned comments."""

    flavor: Flavor
    ansi_quotes: bool = False
    backslash_escapes: bool = True
    version: int | None = None

    def executes(self, maria_comment: bool, version: int) -> bool:
        """Whether the server executes ``/*!version … */`` (MySQL and MariaDB: sql/sql_lex.cc)."""
        if version > (self.version or _NEWEST[self.flavor]):
            return False
        # MariaDB ignores comments for MySQL 5.7 and later, unless the comment has an M.
        foreign = self.flavor == "mariadb" and 50_700 <= version <= 99_999
        return maria_comment or not foreign


_SPACE = r"(?P<space>[\x00-\x20]++|\#[^\n]*+|--(?=[\x00-\x20]|\Z)[^\n]*+)"
_COMMENT = r"(?P<comment>/\*)|(?P<close>\*/)"
_WORD = r"(?P<word>[0-9A-Za-z_$\x80-\U0010ffff]++)"
_BACKTICKED = r"(?P<name>`(?:[^`]++|``)*+`)"
_SIGN = r"(?P<open>[`'\"])|(?P<sign>.)"


def _string(quote: str, escapes: bool) -> str:
    if escapes:
        return rf"{quote}(?:[^{quote}\\]++|\\.|{quote}{quote})*+{quote}"
    return rf"{quote}(?:[^{quote}]++|{quote}{quote})*+{quote}"


def _pattern(ansi_quotes: bool, escapes: bool) -> re.Pattern[str]:
    strings = [_string("'", escapes)]
    names = _BACKTICKED
    if ansi_quotes:
        # In a quoted identifier a backslash has no special meaning, whatever sql_mode is.
        names += '|(?P<ansi>"(?:[^"]++|"")*+")'
    else:
        strings.append(_string('"', escapes))
        names += "|(?P<ansi>(?!))"
    string = f"(?P<string>{'|'.join(strings)})"
    return re.compile("|".join((_SPACE, _WORD, names, string, _COMMENT, _SIGN)), re.DOTALL)


_PATTERNS = {(a, e): _pattern(a, e) for a in (False, True) for e in (False, True)}
_EXECUTABLE = re.compile(r"/\*(M?)!(\d{6}|\d{5})?")
_COMMENT_EDGE = re.compile(r"/\*|\*/")


class Lexer:
    """The tokens of one statement; ``gaps`` are the comments and comment marks passed so far."""

    def __init__(self, text: str, dialect: Dialect) -> None:
        self._text = text
        self._dialect = dialect
        self._pattern = _PATTERNS[dialect.ansi_quotes, dialect.backslash_escapes]
        self._inside_executable = False
        self.gaps: list[tuple[int, int]] = []

    def __iter__(self) -> Iterator[Token]:
        pos = 0
        while (match := self._pattern.match(self._text, pos)) is not None:
            group = match.lastgroup
            pos = match.end()
            if group == "comment":
                pos = self._comment(match.start())
            elif group == "close":
                self._close(match.start())
            elif group == "open":
                raise LexError(f"the quote at character {match.start()} is never closed")
            elif group != "space":
                yield _token(group or "", match)
            elif match.group()[0] in "#-":
                self.gaps.append(match.span())
        if self._inside_executable:
            raise LexError("an executable comment is never closed")

    def _comment(self, start: int) -> int:
        """Skip the comment at ``start``, or only its mark if the server executes the contents."""
        match = _EXECUTABLE.match(self._text, start)
        if match is None or (match[1] and self._dialect.flavor == "mysql"):
            end = self._text.find("*/", start + 2) + 2
            if end < 2:
                raise LexError(f"the comment at character {start} is never closed")
        elif self._dialect.executes(bool(match[1]), int(match[2] or 0)):
            if self._inside_executable:
                raise LexError("an executable comment inside another one")
            self._inside_executable = True
            end = match.end()
        else:
            end = self._skipped(match.end())
        self.gaps.append((start, end))
        return end

    def _skipped(self, pos: int) -> int:
        """Return the end of an executable comment for another version, which may contain comments itself."""
        depth = 1
        for edge in _COMMENT_EDGE.finditer(self._text, pos):
            depth += 1 if edge.group() == "/*" else -1
            if depth == 0:
                return edge.end()
        raise LexError("a comment for another version is never closed")

    def _close(self, start: int) -> None:
        if not self._inside_executable:
            raise LexError(f"the */ at character {start} closes no comment")
        self._inside_executable = False
        self.gaps.append((start, start + 2))


def _token(group: str, match: re.Match[str]) -> Token:
    text, start, end = match.group(), match.start(), match.end()
    if group == "word":
        return Token(TokenKind.WORD, text, text.upper(), start, end)
    if group == "name":
        return Token(TokenKind.QUOTED, text[1:-1].replace("``", "`"), "", start, end)
    if group == "ansi":
        return Token(TokenKind.QUOTED, text[1:-1].replace('""', '"'), "", start, end)
    if group == "string":
        return Token(TokenKind.STRING, text, "", start, end)
    return Token(TokenKind.SIGN, text, text, start, end)


def dialect_of(flavor: Flavor, sql_mode: int = 0) -> Dialect:
    """Return the dialect of a session.

    Args:
        flavor: of the server that wrote the text.
        sql_mode: the session's bit set, as in the binlog.
    """
    return Dialect(
        flavor,
        ansi_quotes=bool(sql_mode & ANSI_QUOTES),
        backslash_escapes=not sql_mode & NO_BACKSLASH_ESCAPES,
    )
