"""Logs on stderr: readable text on a terminal, otherwise JSON lines."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

import structlog
from structlog.tracebacks import ExceptionDictTransformer

# Without the values of local variables, which may be passwords.
_TRACEBACKS = structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False))
_SHARED: list[structlog.typing.Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]
#: environment variable: set for processes that must not draw on the terminal
NO_LIVE_DISPLAY = "TAILRACE_PLAIN"


def is_terminal() -> bool:
    """Return whether stderr is a terminal."""
    return sys.stderr.isatty()


def may_draw() -> bool:
    """Return whether this process may draw a live display."""
    return is_terminal() and not os.environ.get(NO_LIVE_DISPLAY)


def show_cursor() -> None:
    """Show the terminal's cursor, which a live display hides, for a process that ends at once."""
    if may_draw():
        with suppress(OSError):
            os.write(sys.stderr.fileno(), b"\x1b[?25h")


def unbroken(stream: TextIO) -> TextIO:
    """Return a stream that drops what cannot be written: nobody reads it any more, or its terminal was closed."""
    return cast(TextIO, _UnbrokenStream(stream))


class _UnbrokenStream:
    """The methods that differ from those of the stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text. Returns its length."""
        with suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush what was written."""
        with suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def events_to(take: Callable[[Mapping[str, Any]], None]) -> Iterator[None]:
    """Give each line of the log to ``take``, as its fields, instead of writing it, while the block runs."""
    before = structlog.get_config()["processors"]

    def taken(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        take(event)
        raise structlog.DropEvent

    structlog.configure(processors=[*_SHARED, taken])
    try:
        yield
    finally:
        structlog.configure(processors=before)


def configure(process: str) -> None:
    """Configure structlog for this process; ``process`` is a field of every line."""
    if is_terminal():
        renderer: list[structlog.typing.Processor] = [structlog.dev.ConsoleRenderer()]
    else:
        renderer = [_TRACEBACKS, structlog.processors.JSONRenderer(default=str)]
    structlog.configure(
        processors=[*_SHARED, _named(process), *renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(unbroken(sys.stderr)),
    )


def _named(process: str) -> structlog.typing.Processor:
    def add(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        event["process"] = process
        return event

    return add
