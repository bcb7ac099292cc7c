"""Keeps ``produce`` and ``consume`` from starting while ``tailrace check`` has a blocking finding."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from schemas.errors import TailraceError
from tailrace.config.model import Config
from tailrace.preflight.finding import Finding, Result
from tailrace.preflight.gather import consumer_results, producer_results

#: findings that pass by themselves: the programs wait for that, each in its way
_PASSING = frozenset({"reachable", "space", "read_only", "transactions"})
# The codes under which the programs would say the same, later.
_CODES = {
    ("upstream", "log_bin"): "TR206",
    ("upstream", "privileges"): "TR202",
    ("upstream", "server-id"): "TR210",
    ("relay", "writable"): "TR302",
    ("kafka", "partitions"): "TR509",
    ("kafka", "epochs"): "TR509",
    ("downstream", "channel"): "TR558",
    ("downstream", "privileges"): "TR641",
    ("downstream", "writable"): "TR680",
    ("consumer", "checkpoint"): "TR564",
}
_log = structlog.get_logger()


def check_producer(config: Config) -> None:
    """Raises TailraceError if ``produce`` could not work, or would do harm."""
    _refuse(producer_results(config))


def check_consumer(config: Config, channel: str) -> None:
    """Raises TailraceError if ``consume`` could not work, or would do harm."""
    _refuse(consumer_results(config, channel))


def _refuse(results: Iterable[Result]) -> None:
    blocks = [
        one
        for one in results
        if isinstance(one, Finding) and one.level == "block" and one.code not in _PASSING
    ]
    for other in blocks[1:]:
        _log.error("check_blocks", part=other.part, what=other.what, remedy=other.remedy)
    if blocks:
        first = blocks[0]
        code = _CODES.get((first.part, first.code), "TR003")
        raise TailraceError(code, f"{first.part}: {first.what}", hint=first.remedy)
