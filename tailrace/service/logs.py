"""Logs on stderr: readable text on a terminal, otherwise JSON lines."""

from __future__ import annotations

import logging
import os
import sys

import structlog
from structlog.tracebacks import ExceptionDictTransformer

# Without the values of local variables, which may be passwords.
_TRACEBACKS = structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False))
#: environment variable: set for processes that must not draw on the terminal
NO_LIVE_DISPLAY = "TAILRACE_PLAIN"


def is_terminal() -> bool:
    """Return whether stderr is a terminal."""
    return sys.stderr.isatty()


def may_draw() -> bool:
    """Return whether this process may draw a live display."""
    return is_terminal() and not os.environ.get(NO_LIVE_DISPLAY)


def configure(process: str) -> None:
    """Configure structlog for this process; ``process`` is a field of every line."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if is_terminal():
        renderer: list[structlog.typing.Processor] = [structlog.dev.ConsoleRenderer()]
    else:
        renderer = [_TRACEBACKS, structlog.processors.JSONRenderer(default=str)]
    structlog.configure(
        processors=[*shared, _named(process), *renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _named(process: str) -> structlog.typing.Processor:
    def add(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        event["process"] = process
        return event

    return add
