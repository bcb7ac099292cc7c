"""Compiles generated lines into functions, and keeps them, and their sources for tracebacks and profilers."""

from __future__ import annotations

import linecache
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sized
from functools import lru_cache, wraps
from types import CodeType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

# Columns of structures of which each kind of functions is kept: some kilobytes for each. Tables are at work in turn, so
# with one more than fits all would be made again each time.
_MOST_COLUMNS = 100_000
# The newest sources are kept, for tracebacks.
_sources: deque[str] = deque()
_MOST_SOURCES = 2_000
# Characters of sources whose code is kept: tables of one structure, such as those of tenants, have the same.
_SHORT_SOURCE = 100_000


class _Structure(Protocol):
    @property
    def after_image(self) -> Sized: ...


_S = TypeVar("_S", bound=_Structure)
_P = ParamSpec("_P")
_T = TypeVar("_T")


def kept(make: Callable[Concatenate[_S, _P], _T]) -> Callable[Concatenate[_S, _P], _T]:
    """Keep what a function makes for structures: for those that were used last, up to so many columns of all."""
    made: OrderedDict[Any, tuple[int, _T]] = OrderedDict()
    lock = threading.Lock()
    columns = 0

    @wraps(make)
    def get(structure: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        nonlocal columns
        key = structure, args, tuple(kwargs.items())
        with lock:
            if (found := made.get(key)) is not None:
                made.move_to_end(key)
                return found[1]
        new = len(structure.after_image) + 1, make(structure, *args, **kwargs)
        with lock:
            # Another thread may have made it too.
            columns -= made.pop(key, (0,))[0]
            made[key] = new
            columns += new[0]
            while columns > _MOST_COLUMNS and len(made) > 1:
                columns -= made.popitem(last=False)[1][0]
        return new[1]

    return get


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
