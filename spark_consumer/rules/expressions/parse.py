"""Parses the expressions of the expression filter, with MySQL's grammar and precedence under its default sql_mode.

Parts of the grammar that are not supported (subqueries, CASE, INTERVAL, …) are refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from spark_consumer.rules.expressions import UnsupportedExpression

Value = int | Decimal | float | str | None


@dataclass(frozen=True)
class Literal:
    """A constant: ``str`` is text, ``Decimal`` a number with a decimal point, ``float`` one with an exponent."""

    value: Value


@dataclass(frozen=True)
class ColumnRef:
    """A column, with its table if the expression names it."""

    name: str
    table: str | None = None


@dataclass(frozen=True)
class Call:
    """An operator or function, its name in capitals, and its operands. NOT BETWEEN, IN, LIKE and IS are in a NOT."""

    name: str
    operands: tuple[Node, ...]


@dataclass(frozen=True)
class Collate:
    """``operand COLLATE collation``."""

    operand: Node
    collation: str


Node = Literal | ColumnRef | Call | Collate


class _Token(NamedTuple):
    kind: str
    text: str

    @property
    def key(self) -> str:
        return self.text.upper() if self.kind in ("word", "sign") else ""


_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w$]))"
    r"|(?P<word>[A-Za-z_$\x80-\U0010ffff][\w$]*)"
    r"|(?P<name>`(?:[^`]|``)+`)"
    r"|(?P<text>'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\"\"|\\.)*\")"
    r"|(?P<sign><=>|<<|>>|<=|>=|<>|!=|&&|\|\||[-+*/%^&|~!=<>(),.])",
    re.DOTALL,
)
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_COMPARISONS = {"=": "=", "<=>": "<=>", ">=": ">=", ">": ">", "<=": "<=", "<": "<", "<>": "<>", "!=": "<>"}
_RESERVED = frozenset(
    {"AND", "OR", "XOR", "NOT", "IS", "NULL", "TRUE", "FALSE", "IN", "BETWEEN", "LIKE", "RLIKE", "REGEXP"}
    | {"DIV", "MOD", "COLLATE", "BINARY", "CASE", "WHEN", "THEN", "ELSE", "END", "SELECT", "EXISTS"}
    | {"INTERVAL", "MATCH", "ESCAPE"}
)


def parse(text: str) -> Node:
    """Parse an expression. Raises UnsupportedExpression."""
    parser = _Parser(_tokens(text))
    try:
        node = parser.expression()
    except RecursionError:
        raise UnsupportedExpression("it is nested too deeply") from None
    parser.end()
    return node


def _tokens(text: str) -> list[_Token]:
    found, pos = [], 0
    while pos < len(text):
        match = _TOKEN.match(text, pos)
        if match is None:
            raise UnsupportedExpression(f"{text[pos : pos + 20]!r} is not valid")
        if match.lastgroup != "space":
            found.append(_Token(match.lastgroup or "", match.group()))
        pos = match.end()
    return found


class _Parser:
    """A recursive descent parser with one method for each level of MySQL's grammar."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def expression(self) -> Node:
        """Parse OR, the weakest operator."""
        return self._left(self._xor, {"OR": "OR", "||": "OR"})

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise UnsupportedExpression(f"unexpected {self._tokens[self._at].text!r}")

    def _xor(self) -> Node:
        return self._left(self._and, {"XOR": "XOR"})

    def _and(self) -> Node:
        return self._left(self._not, {"AND": "AND", "&&": "AND"})

    def _not(self) -> Node:
        if self._take("NOT"):
            return Call("NOT", (self._not(),))
        return self._truth_test()

    def _truth_test(self) -> Node:
        node = self._comparison()
        while self._take("IS"):
            negated = self._take("NOT")
            what = self._word("NULL", "TRUE", "FALSE", "UNKNOWN")
            node = _negated(
                Call("IS NULL" if what in ("NULL", "UNKNOWN") else f"IS {what}", (node,)), negated
            )
        return node

    def _comparison(self) -> Node:
        node = self._predicate()
        while (sign := self._key()) in _COMPARISONS:
            self._at += 1
            node = Call(_COMPARISONS[sign], (node, self._predicate()))
        return node

    def _predicate(self) -> Node:
        node = self._bits_or()
        negated = self._take("NOT")
        if self._take("IN"):
            return _negated(Call("IN", (node, *self._list())), negated)
        if self._take("BETWEEN"):
            low = self._bits_or()
            self._expect("AND")
            return _negated(Call("BETWEEN", (node, low, self._predicate())), negated)
        if self._take("LIKE"):
            operands = [node, self._simple()]
            if self._take("ESCAPE"):
                operands.append(self._simple())
            return _negated(Call("LIKE", tuple(operands)), negated)
        if negated:
            raise UnsupportedExpression(f"NOT {self._text()} is not valid")
        return node

    def _bits_or(self) -> Node:
        return self._left(self._bits_and, {"|": "|"})

    def _bits_and(self) -> Node:
        return self._left(self._shift, {"&": "&"})

    def _shift(self) -> Node:
        return self._left(self._sum, {"<<": "<<", ">>": ">>"})

    def _sum(self) -> Node:
        return self._left(self._product, {"+": "+", "-": "-"})

    def _product(self) -> Node:
        return self._left(self._power, {"*": "*", "/": "/", "DIV": "DIV", "%": "MOD", "MOD": "MOD"})

    def _power(self) -> Node:
        return self._left(self._simple, {"^": "^"})

    def _simple(self) -> Node:
        if self._take("-"):
            return _minus(self._simple())
        if self._take("+"):
            return self._simple()
        if self._take("~"):
            return Call("~", (self._simple(),))
        if self._take("!"):
            return Call("NOT", (self._simple(),))
        node = self._atom()
        while self._take("COLLATE"):
            node = Collate(node, self._name())
        return node

    def _atom(self) -> Node:
        token = self._next()
        if token.key == "(":
            node = self.expression()
            self._expect(")")
            return node
        if token.kind == "number":
            return Literal(_number(token.text))
        if token.kind == "text":
            return Literal(_unquoted(token.text))
        if token.key in ("TRUE", "FALSE"):
            return Literal(int(token.key == "TRUE"))
        if token.key == "NULL":
            return Literal(None)
        if token.kind == "word" and self._key() == "(":
            return Call(token.key, self._list())
        if token.kind == "name" or (token.kind == "word" and token.key not in _RESERVED):
            return self._column(token)
        raise UnsupportedExpression(f"unexpected {token.text or 'the end'!r}")

    def _column(self, first: _Token) -> Node:
        if self._kind() == "text":
            raise UnsupportedExpression(f"{first.text}{self._text()}: only plain strings are supported")
        parts = [_plain(first)]
        while self._take("."):
            parts.append(self._name())
        if len(parts) > 2:
            raise UnsupportedExpression(f"{'.'.join(parts)}: write the column's name alone")
        return ColumnRef(parts[-1], parts[0] if len(parts) == 2 else None)

    def _list(self) -> tuple[Node, ...]:
        self._expect("(")
        if self._take(")"):
            return ()
        nodes = [self.expression()]
        while self._take(","):
            nodes.append(self.expression())
        self._expect(")")
        return tuple(nodes)

    def _left(self, inner: Callable[[], Node], operators: dict[str, str]) -> Node:
        node = inner()
        while (key := self._key()) in operators:
            self._at += 1
            node = Call(operators[key], (node, inner()))
        return node

    def _key(self) -> str:
        return self._tokens[self._at].key if self._at < len(self._tokens) else ""

    def _kind(self) -> str:
        return self._tokens[self._at].kind if self._at < len(self._tokens) else ""

    def _text(self) -> str:
        return self._tokens[self._at].text if self._at < len(self._tokens) else "the end"

    def _next(self) -> _Token:
        self._at += 1
        return self._tokens[self._at - 1] if self._at <= len(self._tokens) else _Token("end", "")

    def _take(self, key: str) -> bool:
        found = self._key() == key
        self._at += found
        return found

    def _expect(self, key: str) -> None:
        if not self._take(key):
            raise UnsupportedExpression(f"{self._text()!r} instead of {key}")

    def _word(self, *keys: str) -> str:
        found = self._next().key
        if found not in keys:
            raise UnsupportedExpression(f"{found or 'the end'!r} instead of one of {', '.join(keys)}")
        return found

    def _name(self) -> str:
        token = self._next()
        if token.kind not in ("word", "name"):
            raise UnsupportedExpression(f"{token.text or 'the end'!r} instead of a name")
        return _plain(token)


def _plain(token: _Token) -> str:
    return token.text[1:-1].replace("``", "`") if token.kind == "name" else token.text


def _negated(node: Node, negated: bool) -> Node:
    return Call("NOT", (node,)) if negated else node


def _minus(node: Node) -> Node:
    if isinstance(node, Literal) and isinstance(node.value, int | Decimal | float):
        # copy_negate: the operator would round to the context's precision
        value = node.value.copy_negate() if isinstance(node.value, Decimal) else -node.value
        return Literal(value)
    return Call("NEGATE", (node,))


def _number(text: str) -> Value:
    if "e" in text.lower():
        return float(text)
    return Decimal(text) if "." in text else int(text)


def _unquoted(text: str) -> str:
    quote = text[0]

    def plain(match: re.Match[str]) -> str:
        if match[0] == quote * 2:
            return quote
        return _ESCAPES.get(match[0][1], match[0][1])

    return re.sub(rf"\\.|{quote}{quote}", plain, text[1:-1], flags=re.DOTALL)
