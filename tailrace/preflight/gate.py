"""Refuses to start ``produce`` and ``consume`` while ``tailrace check`` has a blocking finding."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from schemas.errors import TailraceError
from tailrace.config.model import Config
from tailrace.preflight.finding import Finding, Result
from tailrace.preflight.gather import consumer_results, producer_results

_log = structlog.get_logger()


def check_producer(config: Config) -> None:
    """Raise TailraceError if ``produce`` could not work or would do damage."""
    _refuse(producer_results(config))


def check_consumer(config: Config, channel: str) -> None:
    """Raise TailraceError if ``consume`` could not work or would do damage."""
    _refuse(consumer_results(config, channel))


def _refuse(results: Iterable[Result]) -> None:
    findings = [one for one in results if isinstance(one, Finding)]
    blocks = [one for one in findings if one.level == "block" and not one.passes]
    for other in blocks[1:]:
        _log.error("check_blocks", part=other.part, what=other.message, remedy=other.hint)
    if blocks:
        first = blocks[0]
        what = f"{first.part}: {first.message}"
        raise TailraceError(first.error, what, hint=first.hint, another_start=first.another_start)
