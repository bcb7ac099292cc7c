"""Compiles generated lines into a function, and keeps the source for tracebacks and profilers."""

from __future__ import annotations

import linecache
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

# The newest sources are kept, for tracebacks.
_sources: deque[str] = deque()
_MOST_SOURCES = 2_000


def indent(lines: Iterable[str], levels: int = 1) -> list[str]:
    """Indent lines by ``levels`` of four spaces."""
    return ["    " * levels + line for line in lines]


def compile_function(
    name: str, parameters: str, body: list[str], names: dict[str, Any], where: str
) -> Callable[..., Any]:
    """Compile one function.

    Args:
        body: its lines, not indented. Values from outside, also from a log, may only be in them as literals made by
            ``repr`` or ``d``.
        names: its globals.
        where: the name of the source in tracebacks, such as ``<rows of shop.orders>``.
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
