"""Settings of the Python interpreter for a process that many rows pass through."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

_GC_THRESHOLD = 200_000  # objects
_SWITCH = 0.0002  # seconds


def collect_seldom() -> None:
    """Look for cycles seldom: rows hold none, and to look takes a twentieth to a tenth of the time."""
    gc.set_threshold(_GC_THRESHOLD, *gc.get_threshold()[1:])


@contextmanager
def tuned_interpreter() -> Iterator[None]:
    """Look for cycles seldom, and let threads take turns sooner.

    A thread that talks to a server needs the interpreter for each answer, while others work on rows: the publisher's
    for the report of each partition, the consumer's for that of each statement. With Python's own 5 ms commits of the
    publisher took three times as long.
    """
    collections, switch = gc.get_threshold(), sys.getswitchinterval()
    collect_seldom()
    sys.setswitchinterval(_SWITCH)
    try:
        yield
    finally:
        gc.set_threshold(*collections)
        sys.setswitchinterval(switch)


def import_structlog() -> None:
    """Import structlog without rich, Pygments and attrs, which take half as long as the rest of a start.

    It would use them to draw tracebacks, and no operator sees one. They can be imported afterwards.
    """
    if "structlog" not in sys.modules and "rich" not in sys.modules:
        sys.modules["rich"] = None  # type: ignore[assignment]  # raises ImportError when it is imported
        import_module("structlog")
        del sys.modules["rich"]
