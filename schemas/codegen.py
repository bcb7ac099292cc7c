"""Turning generated lines into a function, with its source kept for tracebacks and profilers."""

from __future__ import annotations

import linecache
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

# Sources of this many functions are kept: for tracebacks, so those of the last ones will do.
_sources: deque[str] = deque()
_MOST_SOURCES = 2_000


def indent(lines: Iterable[str], levels: int = 1) -> list[str]:
    """The lines, moved to the right."""
    return ["    " * levels + line for line in lines]


def compile_function(
    name: str, parameters: str, body: list[str], names: dict[str, Any], where: str
) -> Callable[..., Any]:
    """Compile one function.

    Args:
        body: its lines, not indented. Whatever comes from outside, a log included, is in them as a literal that
            ``repr`` or ``d`` made, or not at all.
        names: its globals.
        where: what tracebacks call the source, such as ``<rows of shop.orders>``.
    """
    source = "\n".join([f"def {name}({parameters}):", *indent(body)]) + "\n"
    if where not in linecache.cache:
        _sources.append(where)
    linecache.cache[where] = (len(source), None, source.splitlines(True), where)
    while len(_sources) > _MOST_SOURCES:
        linecache.cache.pop(_sources.popleft(), None)
    scope = dict(names)
    exec(compile(source, where, "exec"), scope)
    function: Callable[..., Any] = scope[name]
    return function
