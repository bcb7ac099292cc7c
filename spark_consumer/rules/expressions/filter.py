"""The expression filter: rows that are left out because an expression over their values is true.

As in DM, NULL and false keep the row, and so does an expression with a column that the table does not have (yet, or any
more). An UPDATE is left out if the rule's expressions over the old and the new row are both true; if a rule has only
one of them, that one decides. Each expression becomes one function for each table structure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import structlog
from pydantic import Field

from schemas.codegen import compile_function, indent, kept
from schemas.errors import ConfigError
from schemas.structure import Column, TableStructure
from schemas.types import codec_of, with_tag
from schemas.varint import read_more
from schemas.wire.avro_schema import AFTER_AT
from spark_consumer.rules.expressions import UnsupportedExpression
from spark_consumer.rules.expressions.code import ExpressionCompiler, UnknownColumn
from spark_consumer.rules.expressions.kinds import Unevaluable
from spark_consumer.rules.expressions.parse import parse

Test = Callable[[bytes], bool | None]
_log = structlog.get_logger()


@dataclass(frozen=True)
class ExpressionRule:
    """One rule of ``[[expression-filter]]``. An expression that is None leaves nothing out.

    Raises:
        ConfigError: TR134, an expression cannot be parsed.
    """

    # Not "schema": pydantic uses that name.
    schema_: Annotated[str, Field(min_length=1, description="the schema upstream", examples=["shop"])]
    table: Annotated[str, Field(min_length=1, description="the table upstream", examples=["orders"])]
    insert_value_expr: Annotated[
        str | None,
        Field(
            description="condition on the new row of an INSERT",
            examples=["state = 'draft' AND total < 0.5"],
        ),
    ] = None
    update_old_value_expr: Annotated[
        str | None, Field(description="condition on the old row of an UPDATE", examples=["state = 'draft'"])
    ] = None
    update_new_value_expr: Annotated[
        str | None,
        Field(
            description="condition on its new row; if both are given, both must be true",
            examples=["state = 'draft'"],
        ),
    ] = None
    delete_value_expr: Annotated[
        str | None,
        Field(description="condition on the row of a DELETE", examples=["state IS NULL OR id % 10 <> 0"]),
    ] = None

    def __post_init__(self) -> None:
        for name in _IMAGES:
            text = getattr(self, name)
            if text is not None:
                try:
                    parse(text)
                except UnsupportedExpression as refused:
                    raise self.refuses(name, refused) from None

    def refuses(self, name: str, why: UnsupportedExpression) -> ConfigError:
        """Return the error for an expression that cannot be evaluated exactly as the servers do."""
        return ConfigError(
            "TR134",
            f"expression-filter of {self.schema_}.{self.table}, {name.replace('_', '-')} {getattr(self, name)!r}"
            f" cannot be evaluated exactly as MySQL does: {why}",
            hint="docs/PIPELINE.md lists what is supported",
        )


#: whether each expression is over the row's before image
_IMAGES = {
    "insert_value_expr": False,
    "update_old_value_expr": True,
    "update_new_value_expr": False,
    "delete_value_expr": True,
}


@dataclass(frozen=True)
class RowFilter:
    """The rules of one table as functions of a row value. Each raises Unevaluable for a value without a sure result.

    Attributes:
        inserts, deletes: the row is left out if any of them is true.
        updates: each rule's tests of the old and the new row; None if the rule does not have one.
    """

    inserts: tuple[Test, ...]
    deletes: tuple[Test, ...]
    updates: tuple[tuple[Test | None, Test | None], ...]

    def drops(self, event: str, value: bytes) -> bool:
        """Whether a row with both images in one record is left out."""
        if event == "insert":
            return any(test(value) for test in self.inserts)
        if event == "delete":
            return any(test(value) for test in self.deletes)
        return bool(self.old_bits(value) & self.new_bits(value))

    def old_bits(self, value: bytes) -> int:
        """Return a bit for each rule by which the old row of an UPDATE may be left out."""
        return self._bits(0, value)

    def new_bits(self, value: bytes) -> int:
        """Return the same bits for the new row. The UPDATE is left out if both have a bit in common."""
        return self._bits(1, value)

    def _bits(self, side: int, value: bytes) -> int:
        bits = 0
        for number, tests in enumerate(self.updates):
            test = tests[side]
            bits |= (test is None or bool(test(value))) << number
        return bits


@kept
def compile_filter(
    structure: TableStructure, rules: tuple[ExpressionRule, ...], collations: tuple[tuple[str, str], ...]
) -> RowFilter:
    """Compile the rules of a table for one of its structures.

    Args:
        collations: name in lower case and collation of each text column.

    Raises:
        ConfigError: TR134, an expression cannot be evaluated exactly as the servers do.
    """

    def tests(name: str) -> list[Test | None]:
        return [_test(structure, rule, name, dict(collations)) for rule in rules]

    both = zip(tests("update_old_value_expr"), tests("update_new_value_expr"), strict=True)
    return RowFilter(
        tuple(filter(None, tests("insert_value_expr"))),
        tuple(filter(None, tests("delete_value_expr"))),
        tuple(pair for pair in both if pair != (None, None)),
    )


def _test(
    structure: TableStructure, rule: ExpressionRule, name: str, collations: dict[str, str]
) -> Test | None:
    text: str | None = getattr(rule, name)
    if text is None:
        return None
    coder = ExpressionCompiler(structure, collations)
    try:
        result = coder.condition(parse(text))
    except UnsupportedExpression as refused:
        raise rule.refuses(name, refused) from None
    except UnknownColumn as unknown:
        _log.warning("expression_keeps_all", table=structure.name, expression=text, unknown=str(unknown))
        return _never
    image = structure.before_image if _IMAGES[name] else structure.after_image
    if absent := set(coder.columns) - {column.name for column in image}:
        return partial(_unevaluable, min(absent))
    body = [*value_lines(structure, coder.columns, before=_IMAGES[name]), *coder.lines, f"return {result}"]
    names = value_names(structure) | coder.names
    try:
        made: Test = compile_function("test", "v", body, names, f"<{name} of {structure.name}: {text}>")
    except SyntaxError:
        raise rule.refuses(name, UnsupportedExpression("it is nested too deeply")) from None
    return made


def _unevaluable(column: str, value: bytes) -> bool:
    raise Unevaluable(f"the row image lacks {column} (binlog_row_image is not FULL)")


def _never(value: bytes) -> bool:
    return False


def value_lines(structure: TableStructure, wanted: Collection[str], *, before: bool) -> list[str]:
    """Return lines that read columns of the after or before image of the row value ``v`` into ``c0``, ``c1``, …

    The number is the column's index in the structure. The lines need ``value_names`` as globals. The wanted columns
    must be in the image.
    """
    lines = [f"p = {AFTER_AT + 1}"]
    index = {column.name: i for i, column in enumerate(structure.columns)}
    if before:
        lines += [f"if v[{AFTER_AT}]:", *indent(_image(structure.after_image, index)), "p += 1"]
    image = structure.before_image if before else structure.after_image
    last = max((i for i, c in enumerate(image) if c.name in wanted), default=-1)
    return [*lines, *_image(image[: last + 1], index)]


def value_names(structure: TableStructure) -> dict[str, Any]:
    """Return the globals of ``value_lines``."""
    names: dict[str, Any] = {"read_more": read_more, "from_bytes": int.from_bytes}
    for column in structure.columns:
        names |= codec_of(column).names
    return names


def _image(columns: tuple[Column, ...], index: dict[str, int]) -> list[str]:
    return [line for column in columns for line in _column(column, f"c{index[column.name]}")] or ["pass"]


def _column(column: Column, target: str) -> list[str]:
    lines = codec_of(column).value(column, target, 1 if column.nullable else 0)
    return with_tag(column, lines, f"{target} = None")
