"""The metrics of ``tailrace validate --follow``, from its report."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

from tailrace.metrics.exposition import Sample
from tailrace.metrics.process import STANDS_STILL, Process
from tailrace.validate.result import Report, Verdict

_VERDICTS: tuple[Verdict, ...] = ("equal", "different", "pending", "left out")


class ValidatorFacts:
    """What a validation that goes on has found."""

    def __init__(self, prefix: str, channel: str) -> None:
        self._process, self._channel = Process("validator", prefix, channel), channel
        self._report: Report | None = None
        self._noted = 0.0

    def note(self, report: Report) -> None:
        """Take the present report, about once a second."""
        self._report, self._noted = report, time.monotonic()

    def is_ready(self) -> bool:
        """Whether it has looked at the channel within a minute."""
        return self._report is not None and time.monotonic() - self._noted < STANDS_STILL

    def samples(self) -> Iterator[Sample]:
        """Yield the metrics."""
        yield from self._process.samples(is_ready=self.is_ready())
        report, labels = self._report, (self._channel,)
        if report is None:
            return
        tables = report.tables
        verdicts = Counter(table.verdict for table in tables)
        for verdict in _VERDICTS:
            yield Sample("tailrace_validation_tables", verdicts[verdict], (self._channel, verdict))
        yield Sample("tailrace_validation_rows", sum(table.rows for table in tables), labels)
        yield Sample("tailrace_validation_rows_estimated", report.rows_estimated, labels)
        yield Sample("tailrace_validation_different_rows", sum(table.different for table in tables), labels)
        yield Sample("tailrace_validation_pending_rows", sum(table.pending for table in tables), labels)
