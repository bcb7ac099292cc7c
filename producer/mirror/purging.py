"""Purges the relay log in the background of a producer, and when its disk is full."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import structlog

from relay_store.purge.purge import PurgeReport, PurgeRules, purge
from schemas.errors import TailraceError

_PASSED_INTERVAL = 2.0  # seconds: what "as soon as every reader has passed it" means

log = structlog.get_logger()


class Purging(threading.Thread):
    """Purges by the same rules again and again.

    Args:
        root: the relay directory.
        rules: which files are to go, and how often; an interval of 0 leaves it to `purge` alone.
        awaited: readers that need everything, if they have not registered yet.
    """

    def __init__(self, root: Path, rules: PurgeRules, awaited: Sequence[str] = ()) -> None:
        super().__init__(name="purge", daemon=True)
        self._root, self._rules, self._awaited = root, rules, awaited
        self._interval = min(rules.interval, _PASSED_INTERVAL) if rules.passed else rules.interval
        self._stop_event = threading.Event()
        self._said: tuple[str, str] | None = None

    def run(self) -> None:
        while self._interval and not self._stop_event.wait(self._interval):
            self.purge()

    def stop(self) -> None:
        """End the thread, once a purge in hand is through."""
        self._stop_event.set()
        self.join()

    def purge(self) -> bool:
        """Purge now. Returns whether anything was deleted; errors are only logged."""
        try:
            report = purge(self._root, self._rules, awaited=self._awaited)
        except TailraceError as error:
            log.error("purge_failed", **error.as_dict())
            return False
        self._tell(report)
        return bool(report.deleted)

    def _tell(self, report: PurgeReport) -> None:
        """Log the result; a blocked purge only when the reason changes."""
        if report.deleted:
            log.info("relay_purged", files=len(report.deleted), bytes=report.bytes)
        said = (str(report.kept), report.why) if report.blocked else None
        if said and said != self._said and not self._rules.passed:
            log.warning("purge_blocked", file=said[0], why=report.why)
        self._said = said
