"""Generates Python code for expressions, with MySQL's three-valued logic and its rules for comparing types.

NULL is None. Each part of an expression becomes lines that set a variable, and a static type. An operation that the
types do not allow is refused while the code is generated, not when a row is read.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from typing import Any

from schemas.codegen import indent
from schemas.structure import TableStructure
from spark_consumer.rules.expressions import UnsupportedExpression
from spark_consumer.rules.expressions.kinds import (
    NUMBERS,
    Kind,
    Type,
    Unevaluable,
    collation,
    moment_constant,
    number_of,
    time_constant,
    time_micros,
    type_of,
)
from spark_consumer.rules.expressions.parse import (
    Call,
    Collate,
    ColumnRef,
    Literal,
    Node,
)

_BOOL = Type(Kind.INT, digits=1)
_PYTHON = {"=": "==", "<=>": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_BITS = ("&", "|", "^", "<<", ">>")
_MASK = (1 << 64) - 1
# This precision is exact: two DECIMALs of at most 65 digits have no result with more digits.
_EXACT = Context(prec=200)
# Numerals that have the same value as text, double and integer.
_PLAIN_INTEGER = re.compile(r"-?\d{1,15}", re.ASCII)


class UnknownColumn(Exception):
    """The expression names a column that the table does not have."""


def _is_whole_constant(kind: Type) -> bool:
    return kind.kind is Kind.NULL or (kind.kind is Kind.INT and kind.constant is not None)


def _may_share_bits(one: Type, other: Type) -> bool:
    """Whether a signed and an unsigned number may differ, but not in their 64 bits."""
    if one.kind is not Kind.INT or other.kind is not Kind.INT or one.unsigned == other.unsigned:
        return False
    constants = (kind.constant for kind in (one, other) if isinstance(kind.constant, int))
    return all(not 0 <= constant < 1 << 63 for constant in constants)


def _in_range(value: int, unsigned: bool) -> int:
    if 0 <= value <= _MASK if unsigned else -(1 << 63) <= value < 1 << 63:
        return value
    raise Unevaluable(f"{value} is out of range for BIGINT")


def _finite(value: float) -> float:
    if math.isinf(value):
        raise Unevaluable("a number is out of range for DOUBLE")
    return value


def _int_div(a: int, b: int) -> int | None:
    if not b:
        return None
    result = abs(a) // abs(b)
    # The smallest number divided by 1 or -1: MySQL looks at the result before it has its sign.
    if result >> 63:
        raise Unevaluable("a number is out of range for BIGINT")
    return result if (a < 0) == (b < 0) else -result


def _int_mod(a: int, b: int) -> int | None:
    return None if not b else abs(a) % abs(b) * (-1 if a < 0 else 1)


def _decimal_mod(a: Decimal, b: Decimal) -> Decimal | None:
    return _EXACT.remainder(a, b) if b else None


def _double_mod(a: float, b: float) -> float | None:
    return math.fmod(a, b) if b else None


def _padded(compare: Callable[[str, str], bool]) -> Callable[[str, str], bool]:
    def padded(a: str, b: str) -> bool:
        size = max(len(a), len(b))
        return compare(a.ljust(size), b.ljust(size))

    return padded


_PADDED = {"<": _padded(operator.lt), "<=": _padded(operator.le), ">": _padded(operator.gt)}
_PADDED[">="] = _padded(operator.ge)

NAMES: Mapping[str, Any] = {
    "Decimal": Decimal,
    "number_of": number_of,
    "time_micros": time_micros,
    "in_range": _in_range,
    "finite": _finite,
    "int_div": _int_div,
    "int_mod": _int_mod,
    "decimal_mod": _decimal_mod,
    "double_mod": _double_mod,
    "EXACT": _EXACT,
}


class ExpressionCompiler:
    """The code of one expression over one structure.

    Args:
        collations: the collations of the text columns, by the columns' names in lower case.
    """

    def __init__(self, structure: TableStructure, collations: Mapping[str, str]) -> None:
        self._structure = structure
        self._collations = collations
        self._count = 0
        self.names: dict[str, Any] = dict(NAMES)
        self.lines: list[str] = []
        self.columns: set[str] = set()

    def condition(self, node: Node) -> str:
        """Generate an expression's lines into ``lines``; return the variable that is true if the expression is.

        Raises UnsupportedExpression.
        """
        return self._truth(*self._value(node))

    # parts -------------------------------------------------------------------------------------------

    def _value(self, node: Node) -> tuple[str, Type]:
        if isinstance(node, Literal):
            return self._constant(node.value)
        if isinstance(node, ColumnRef):
            return self._column(node)
        if isinstance(node, Collate):
            return self._collated(node)
        name = node.name
        if name in _PYTHON:
            left, right = (self._value(operand) for operand in node.operands)
            return self._compare(name, left, right)[0], _BOOL
        maker = _MAKERS.get(name)
        if maker is None:
            raise UnsupportedExpression(f"function {name}" if name[0].isalpha() else f"operator {name}")
        return maker(self, node)

    def _constant(self, value: Any) -> tuple[str, Type]:
        if value is None:
            return "None", Type(Kind.NULL)
        if isinstance(value, int) and not -(1 << 63) <= value <= _MASK:
            value = Decimal(value)
        name = self._name(value)
        if isinstance(value, str):
            return name, Type(Kind.TEXT, constant=value)
        if isinstance(value, float):
            return name, Type(Kind.DOUBLE, constant=value)
        if isinstance(value, Decimal):
            _, digits, exponent = value.as_tuple()
            scale = max(0, -int(exponent))
            return name, Type(Kind.DECIMAL, constant=value, scale=scale, digits=max(len(digits), scale))
        return name, Type(Kind.INT, constant=value, unsigned=value >= 1 << 63, digits=len(str(abs(value))))

    def _column(self, node: ColumnRef) -> tuple[str, Type]:
        if node.table is not None and node.table != self._structure.table:
            raise UnsupportedExpression(
                f"{node.table}.{node.name} is not a column of {self._structure.table}"
            )
        for index, column in enumerate(self._structure.columns):
            if column.name.lower() == node.name.lower():
                self.columns.add(column.name)
                return f"c{index}", type_of(column, self._collations.get(column.name.lower(), ""))
        raise UnknownColumn(node.name)

    def _collated(self, node: Collate) -> tuple[str, Type]:
        variable, kind = self._value(node.operand)
        if kind.kind is not Kind.TEXT or kind.constant is not None or kind.listed:
            raise UnsupportedExpression("COLLATE on a non-text column")
        charset = kind.collation.partition("_")[0]
        if node.collation.lower().partition("_")[0] != charset:
            raise UnsupportedExpression(f"COLLATE {node.collation} of text in {charset}")
        return variable, Type(Kind.TEXT, collation=node.collation.lower())

    # comparisons -------------------------------------------------------------------------------------

    def _compare(self, sign: str, left: tuple[str, Type], right: tuple[str, Type]) -> tuple[str, str]:
        """Return the result's variable, and how the two values are compared."""
        if Kind.NULL in (left[1].kind, right[1].kind):
            if sign != "<=>":
                return "None", ""
            return self._set(f"{left[0]} is {right[0]}"), ""
        test, how = self._test(sign, left, right)
        a, b = left[0], right[0]
        if sign == "<=>":
            return self._set(f"{a} is {b} if {a} is None or {b} is None else {test}"), how
        return self._set(f"None if {a} is None or {b} is None else {test}"), how

    def _test(self, sign: str, left: tuple[str, Type], right: tuple[str, Type]) -> tuple[str, str]:
        kinds = {left[1].kind, right[1].kind}
        if kinds <= {Kind.INT, Kind.DECIMAL}:
            return f"{left[0]} {_PYTHON[sign]} {right[0]}", "number"
        if kinds == {Kind.TEXT}:
            return self._text_test(sign, left, right)
        if Kind.BYTES in kinds:
            return f"{self._bytes(left)} {_PYTHON[sign]} {self._bytes(right)}", "bytes"
        for kind, convert in ((Kind.MOMENT, self._moment), (Kind.TIME, self._time), (Kind.YEAR, self._year)):
            if kind in kinds:
                return f"{convert(left)} {_PYTHON[sign]} {convert(right)}", kind.value
        if Kind.DOUBLE in kinds or Kind.TEXT in kinds:
            for one, other in ((left, right), (right, left)):
                if one[1].kind is Kind.INT and other[1].kind is Kind.TEXT:
                    return self._integer_test(sign, left, right, other[1]), "double"
            return f"{self._double(left)} {_PYTHON[sign]} {self._double(right)}", "double"
        raise UnsupportedExpression(f"a comparison of {left[1].kind.value} with {right[1].kind.value}")

    def _integer_test(self, sign: str, left: tuple[str, Type], right: tuple[str, Type], text: Type) -> str:
        """Compare an integer with text. With a column and a constant, the servers may convert the constant instead."""
        both = left[1].constant is None and right[1].constant is None
        if (left[1].listed or right[1].listed) or (both and not text.collation):
            raise UnsupportedExpression("a comparison of this column with text")
        if text.constant is not None:
            if not isinstance(text.constant, str) or not _PLAIN_INTEGER.fullmatch(text.constant):
                raise UnsupportedExpression(
                    f"a comparison of an integer with {text.constant!r}; write it as a number"
                )
            number = self._name(int(text.constant))
            a, b = (number if part[1] is text else part[0] for part in (left, right))
            return f"{a} {_PYTHON[sign]} {b}"
        return f"{self._double(left)} {_PYTHON[sign]} {self._double(right)}"

    def _text_test(self, sign: str, left: tuple[str, Type], right: tuple[str, Type]) -> tuple[str, str]:
        names = {part[1].collation for part in (left, right) if part[1].constant is None}
        if len(names) != 1:
            raise UnsupportedExpression("a comparison of texts whose collation is ambiguous")
        if left[1].listed and right[1].listed:
            raise UnsupportedExpression("a comparison of two ENUM or SET columns")
        rules = collation(next(iter(names)))
        equality = sign in ("=", "<=>", "<>")
        if not equality and not rules.ordered:
            name = next(iter(names))
            raise UnsupportedExpression(
                f"a comparison with < or > in collation {name}; a COLLATE with a _bin collation is supported"
            )
        key = self._name(rules.key)
        tail = '.rstrip(" ")' if rules.pads and equality else ""

        def keyed(part: tuple[str, Type]) -> str:
            if part[1].constant is None:
                return f"{key}({part[0]}){tail}"
            try:
                text = rules.key(str(part[1].constant))
            except Unevaluable as error:
                raise UnsupportedExpression(str(error)) from None
            return self._name(text.rstrip(" ") if tail else text)

        a, b = keyed(left), keyed(right)
        if rules.pads and not equality:
            return f"{self._name(_PADDED[sign])}({a}, {b})", "text"
        return f"{a} {_PYTHON[sign]} {b}", "text"

    def _bytes(self, part: tuple[str, Type]) -> str:
        if part[1].kind is Kind.BYTES:
            return part[0]
        if part[1].kind is Kind.TEXT and isinstance(part[1].constant, str):
            return self._name(part[1].constant.encode())
        raise UnsupportedExpression(f"a comparison of bytes with {part[1].kind.value}")

    def _moment(self, part: tuple[str, Type]) -> str:
        if part[1].kind is Kind.MOMENT:
            return f"({part[0]} + {part[1].padding!r})"
        if part[1].kind is Kind.TEXT and part[1].constant is not None:
            return self._name(moment_constant(part[1].constant))
        raise UnsupportedExpression(f"a comparison of a date with {part[1].kind.value}")

    def _time(self, part: tuple[str, Type]) -> str:
        if part[1].kind is Kind.TIME:
            return f"time_micros({part[0]})"
        if part[1].kind is Kind.TEXT and part[1].constant is not None:
            return self._name(time_constant(part[1].constant))
        raise UnsupportedExpression(f"a comparison of a time with {part[1].kind.value}")

    def _year(self, part: tuple[str, Type]) -> str:
        if part[1].kind is Kind.YEAR:
            return f"int({part[0]})"
        constant = part[1].constant
        if part[1].kind is Kind.INT and isinstance(constant, int) and 1901 <= constant <= 2155:
            return part[0]
        raise UnsupportedExpression("a comparison of a year with anything but a number from 1901 to 2155")

    def _double(self, part: tuple[str, Type]) -> str:
        kind = part[1].kind
        if kind is Kind.DOUBLE:
            return part[0]
        if kind in NUMBERS:
            return f"float({part[0]})"
        if kind is Kind.TEXT and not part[1].listed:
            return f"number_of({part[0]})"
        raise UnsupportedExpression(f"{kind.value} as a number")

    # logic -------------------------------------------------------------------------------------------

    def _truth(self, variable: str, kind: Type) -> str:
        if kind is _BOOL or kind.kind is Kind.NULL:
            return variable
        if kind.kind in NUMBERS:
            return self._set(f"None if {variable} is None else {variable} != 0")
        if kind.kind is Kind.TEXT and not kind.listed:
            return self._set(f"None if {variable} is None else number_of({variable}) != 0")
        raise UnsupportedExpression(f"{kind.kind.value} as a condition")

    def and_or(self, node: Call) -> tuple[str, Type]:
        """Evaluate left to right, and the right side only if it matters, as the servers do."""
        decided = node.name == "OR"
        left = self.condition(node.operands[0])
        result = self._fresh()
        outer, self.lines = self.lines, []
        right = self.condition(node.operands[1])
        inner, self.lines = self.lines, outer
        stop = f"{left} is not None and {left} == {decided}"
        inner += [
            f"if {right} is not None and {right} == {decided}: {result} = {decided}",
            f"else: {result} = None if {left} is None or {right} is None else {not decided}",
        ]
        self.lines += [f"if {stop}: {result} = {decided}", "else:", *indent(inner)]
        return result, _BOOL

    def xor(self, node: Call) -> tuple[str, Type]:
        operands = self._operands(node, 2)
        # MariaDB rounds a value that is not an integer before it compares it with 0. It turns NOT (a XOR NOT b) into
        # a XOR b, so what is negated counts too.
        negated = [self._value(_without_not(one)) for one in node.operands if _without_not(one) is not one]
        if any(kind.kind not in (Kind.INT, Kind.NULL) for _, kind in (*operands, *negated)):
            raise UnsupportedExpression("XOR of anything but conditions and integers")
        left, right = (self._truth(*operand) for operand in operands)
        return self._set(f"None if {left} is None or {right} is None else {left} != {right}"), _BOOL

    def negation(self, node: Call) -> tuple[str, Type]:
        inner = self.condition(node.operands[0])
        return self._set(f"None if {inner} is None else not {inner}"), _BOOL

    def is_null(self, node: Call) -> tuple[str, Type]:
        (operand,) = self._operands(node, 1)
        return self._set(f"{operand[0]} is None"), _BOOL

    def is_truth(self, node: Call) -> tuple[str, Type]:
        inner = self.condition(node.operands[0])
        return self._set(f"{inner} is not None and {inner} == {node.name == 'IS TRUE'}"), _BOOL

    def member(self, node: Call) -> tuple[str, Type]:
        if len(node.operands) < 2:
            raise UnsupportedExpression("IN without values")
        first, *others = (self._value(operand) for operand in node.operands)
        # MySQL then compares whole numbers by their bits.
        by_bits = len(others) > 1 and not all(_is_whole_constant(kind) for _, kind in others)
        if by_bits and any(_may_share_bits(first[1], kind) for _, kind in others):
            raise UnsupportedExpression("IN with signed and unsigned numbers that are not all constants")
        found = self._same_way([self._compare("=", first, other) for other in others], "IN")
        any_true = " or ".join(found)
        any_null = " or ".join(f"{one} is None" for one in found)
        return self._set(f"True if {any_true} else None if {any_null} else False"), _BOOL

    def between(self, node: Call) -> tuple[str, Type]:
        value, low, high = self._operands(node, 3)
        pair = [self._compare(">=", value, low), self._compare("<=", value, high)]
        a, b = self._same_way(pair, "BETWEEN")
        false = f"({a} is not None and not {a}) or ({b} is not None and not {b})"
        return self._set(f"False if {false} else None if {a} is None or {b} is None else True"), _BOOL

    @staticmethod
    def _same_way(compared: list[tuple[str, str]], where: str) -> list[str]:
        """Check that all operands are compared in one way, because the servers choose one way for all of them."""
        if len({how for _, how in compared if how}) > 1:
            raise UnsupportedExpression(f"{where} with operands of several types")
        return [variable for variable, _ in compared]

    def like(self, node: Call) -> tuple[str, Type]:
        value, pattern, *escape = (self._value(operand) for operand in node.operands)
        constants = [part[1].constant for part in (pattern, *escape)]
        if not all(isinstance(constant, str) for constant in constants):
            raise UnsupportedExpression("LIKE with a non-constant pattern")
        kind = value[1]
        if kind.kind is not Kind.TEXT or kind.constant is not None or kind.listed:
            raise UnsupportedExpression(f"LIKE of {kind.kind.value}")
        sign = str(constants[1]) if escape else "\\"
        if len(sign) != 1:
            raise UnsupportedExpression(f"ESCAPE {sign!r}")
        rules = collation(kind.collation)
        try:
            expression = _like(rules.key(str(constants[0])), rules.key(sign))
        except Unevaluable as error:
            raise UnsupportedExpression(str(error)) from None
        match, key = self._name(re.compile(expression, re.DOTALL).fullmatch), self._name(rules.key)
        test = f"{match}({key}({value[0]})) is not None"
        return self._set(f"None if {value[0]} is None else {test}"), _BOOL

    # numbers -----------------------------------------------------------------------------------------

    def arithmetic(self, node: Call) -> tuple[str, Type]:
        left, right = self._operands(node, 2)
        kinds = {left[1].kind, right[1].kind}
        if not kinds <= {*NUMBERS, Kind.NULL}:
            raise UnsupportedExpression(f"{node.name} on non-numbers")
        if Kind.NULL in kinds:
            return "None", Type(Kind.NULL)
        if Kind.DOUBLE in kinds:
            result, made = Type(Kind.DOUBLE), self._double_result(node.name, left, right)
        elif Kind.DECIMAL in kinds:
            result, made = self._decimal_result(node.name, left, right)
        else:
            result, made = self._integer_result(node.name, left, right)
        return self._set(f"None if {left[0]} is None or {right[0]} is None else {made}"), result

    def _integer_result(self, name: str, left: tuple[str, Type], right: tuple[str, Type]) -> tuple[Type, str]:
        unsigned = left[1].unsigned or right[1].unsigned
        if unsigned and name not in ("+", "*"):
            raise UnsupportedExpression(f"{name} of an unsigned number")
        if name in ("DIV", "MOD"):
            return Type(Kind.INT), f"int_{name.lower()}({left[0]}, {right[0]})"
        return Type(Kind.INT, unsigned=unsigned), f"in_range({left[0]} {name} {right[0]}, {unsigned})"

    def _decimal_result(self, name: str, left: tuple[str, Type], right: tuple[str, Type]) -> tuple[Type, str]:
        a, b = left[1], right[1]
        scale = a.scale + b.scale if name == "*" else max(a.scale, b.scale)
        whole = max(a.digits - a.scale, b.digits - b.scale) + 1
        digits = a.digits + b.digits if name == "*" else whole + scale
        if scale > 30 or digits > 65:
            raise UnsupportedExpression(f"{name} with more than 65 digits, or 30 after the point")
        x, y = f"Decimal({left[0]})", f"Decimal({right[0]})"
        methods = {"+": "EXACT.add", "-": "EXACT.subtract", "*": "EXACT.multiply", "MOD": "decimal_mod"}
        if name not in methods:
            raise UnsupportedExpression(f"{name} of decimal numbers")
        return Type(Kind.DECIMAL, scale=scale, digits=digits), f"{methods[name]}({x}, {y})"

    def _double_result(self, name: str, left: tuple[str, Type], right: tuple[str, Type]) -> str:
        x, y = self._double(left), self._double(right)
        if name == "MOD":
            return f"double_mod({x}, {y})"
        if name == "DIV":
            raise UnsupportedExpression("DIV of a double")
        return f"finite({x} {name} {y})"

    def sign(self, node: Call) -> tuple[str, Type]:
        """Generate unary minus and ABS."""
        (operand,) = self._operands(node, 1)
        variable, kind = operand
        if kind.kind not in NUMBERS or (kind.kind is Kind.INT and kind.unsigned):
            raise UnsupportedExpression(
                f"{node.name} of {'an unsigned number' if kind.unsigned else kind.kind.value}"
            )
        negate = node.name == "NEGATE"
        if kind.kind is Kind.INT:
            made = f"in_range({'-' + variable if negate else f'abs({variable})'}, False)"
        elif kind.kind is Kind.DECIMAL:
            made = f"{variable}.copy_{'negate' if negate else 'abs'}()"
        else:
            made = f"-{variable}" if negate else f"abs({variable})"
        result = Type(kind.kind, scale=kind.scale, digits=kind.digits)
        return self._set(f"None if {variable} is None else {made}"), result

    def bits(self, node: Call) -> tuple[str, Type]:
        """Generate bit operators, which are of 64 bits and unsigned."""
        operands = self._operands(node, 1 if node.name == "~" else 2)
        if any(kind.kind is not Kind.INT for _, kind in operands):
            raise UnsupportedExpression(f"{node.name} of anything but integers")
        shift = operands[-1][1].constant
        # MariaDB uses 32 bits of a shift count, MySQL all.
        if node.name in ("<<", ">>") and not (isinstance(shift, int) and 0 <= shift < 1 << 31):
            raise UnsupportedExpression(f"{node.name} by anything but a constant")
        masked = [f"({variable} & {_MASK})" for variable, _ in operands]
        if node.name == "~":
            made = f"{masked[0]} ^ {_MASK}"
        elif node.name in ("<<", ">>"):
            made = f"({masked[0]} {node.name} {masked[1]}) & {_MASK} if {masked[1]} < 64 else 0"
        else:
            made = f"{masked[0]} {node.name} {masked[1]}"
        nulls = " or ".join(f"{variable} is None" for variable, _ in operands)
        return self._set(f"None if {nulls} else {made}"), Type(Kind.INT, unsigned=True)

    # functions ---------------------------------------------------------------------------------------

    def length(self, node: Call) -> tuple[str, Type]:
        (operand,) = self._operands(node, 1)
        variable, kind = operand
        if kind.kind is Kind.BYTES:
            made = f"len({variable})"
        elif kind.kind is not Kind.TEXT or kind.constant is not None:
            raise UnsupportedExpression(f"{node.name} of {kind.kind.value}")
        else:
            text = f"{self._name(collation_text)}({variable})"
            if node.name not in ("LENGTH", "OCTET_LENGTH"):
                made = f"len({text})"
            elif kind.collation.startswith("utf8"):
                made = f"len({text}.encode())"
            else:
                raise UnsupportedExpression(f"LENGTH of text in {kind.collation.partition('_')[0]}")
        return self._set(f"None if {variable} is None else {made}"), Type(Kind.INT)

    def coalesce(self, node: Call) -> tuple[str, Type]:
        if not node.operands or (node.name == "IFNULL" and len(node.operands) != 2):
            raise UnsupportedExpression(f"{node.name} with {len(node.operands)} values")
        operands = [part for part in map(self._value, node.operands) if part[1].kind is not Kind.NULL]
        columns = {_shape(kind) for _, kind in operands if kind.constant is None}
        if len(columns) != 1 or len({kind.kind for _, kind in operands}) != 1:
            raise UnsupportedExpression(f"{node.name} of values of several types, or of constants only")
        result = next(kind for _, kind in operands if kind.constant is None)
        made = operands[-1][0]
        for variable, _ in reversed(operands[:-1]):
            made = f"{variable} if {variable} is not None else {made}"
        return self._set(made), result

    # variables ---------------------------------------------------------------------------------------

    def _operands(self, node: Call, count: int) -> list[tuple[str, Type]]:
        if len(node.operands) != count:
            raise UnsupportedExpression(f"{node.name} with {len(node.operands)} values")
        return [self._value(operand) for operand in node.operands]

    def _name(self, value: Any) -> str:
        name = f"k{len(self.names)}"
        self.names[name] = value
        return name

    def _fresh(self) -> str:
        self._count += 1
        return f"r{self._count}"

    def _set(self, expression: str) -> str:
        variable = self._fresh()
        self.lines.append(f"{variable} = {expression}")
        return variable


def collation_text(value: str | bytes) -> str:
    """Return the value if it is decoded text. Raises Unevaluable for bytes that only the server can decode."""
    if isinstance(value, bytes):
        raise Unevaluable("the length of text in a charset that only the server can decode is not known")
    return value


def _shape(kind: Type) -> tuple[object, ...]:
    return kind.kind, kind.collation, kind.unsigned, kind.padding, kind.listed, kind.scale


def _like(pattern: str, escape: str) -> str:
    """Return a LIKE pattern as a regular expression."""
    parts, pos = [], 0
    while pos < len(pattern):
        sign = pattern[pos]
        if sign == escape and pos + 1 < len(pattern):
            pos += 1
            parts.append(re.escape(pattern[pos]))
        else:
            parts.append({"%": ".*", "_": "."}.get(sign, re.escape(sign)))
        pos += 1
    return "".join(parts)


def _without_not(node: Node) -> Node:
    while isinstance(node, Call) and node.name == "NOT":
        node = node.operands[0]
    return node


_MAKERS: dict[str, Callable[[ExpressionCompiler, Call], tuple[str, Type]]] = {
    "AND": ExpressionCompiler.and_or,
    "OR": ExpressionCompiler.and_or,
    "XOR": ExpressionCompiler.xor,
    "NOT": ExpressionCompiler.negation,
    "IS NULL": ExpressionCompiler.is_null,
    "ISNULL": ExpressionCompiler.is_null,
    "IS TRUE": ExpressionCompiler.is_truth,
    "IS FALSE": ExpressionCompiler.is_truth,
    "IN": ExpressionCompiler.member,
    "BETWEEN": ExpressionCompiler.between,
    "LIKE": ExpressionCompiler.like,
    **dict.fromkeys(("+", "-", "*", "DIV", "MOD"), ExpressionCompiler.arithmetic),
    **dict.fromkeys(("NEGATE", "ABS"), ExpressionCompiler.sign),
    **dict.fromkeys((*_BITS, "~"), ExpressionCompiler.bits),
    **dict.fromkeys(("LENGTH", "OCTET_LENGTH", "CHAR_LENGTH", "CHARACTER_LENGTH"), ExpressionCompiler.length),
    **dict.fromkeys(("COALESCE", "IFNULL"), ExpressionCompiler.coalesce),
}
