"""Compiles generated lines into a function, and keeps the source for tracebacks and profilers."""

from __future__ import annotations

import linecache
from collections import deque
from collections.abc import Callable, Iterable
from functools import lru_cache
from types import CodeType
from typing import Any

#: Structures whose functions are kept. Tables are at work in turn, so with one more each would be made again each time.
MOST_STRUCTURES = 10_000
# The newest sources are kept, for tracebacks.
_sources: deque[str] = deque()
_MOST_SOURCES = 2_000
# Characters of sources whose code is kept: tables of one structure, such as those of tenants, have the same.
_SHORT_SOURCE = 100_000


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
    exec(_code(source, where), scope)
    function: Callable[..., Any] = scope[name]
    return function


def _code(source: str, where: str) -> CodeType:
    if len(source) > _SHORT_SOURCE:
        return compile(source, where, "exec")
    return _renamed(_shared_code(source), where)


@lru_cache(maxsize=100)
def _shared_code(source: str) -> CodeType:
    return compile(source, "<generated>", "exec")


def _renamed(code: CodeType, where: str) -> CodeType:
    """The same code with another name of its source."""
    constants = tuple(_renamed(one, where) if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.replace(co_filename=where, co_consts=constants)
