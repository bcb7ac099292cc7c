"""Turning generated lines into a function, with its source kept for tracebacks and profilers."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable
from typing import Any


def indent(lines: Iterable[str], levels: int = 1) -> list[str]:
    """The lines, moved to the right."""
    return ["    " * levels + line for line in lines]


def compile_function(
    name: str, parameters: str, body: list[str], names: dict[str, Any], where: str
) -> Callable[..., Any]:
    """Compile one function.

    Args:
        body: its lines, not indented.
        names: its globals.
        where: what tracebacks call the source, such as ``<rows of shop.orders>``.
    """
    source = "\n".join([f"def {name}({parameters}):", *indent(body)]) + "\n"
    linecache.cache[where] = (len(source), None, source.splitlines(True), where)
    scope = dict(names)
    exec(compile(source, where, "exec"), scope)
    function: Callable[..., Any] = scope[name]
    return function
