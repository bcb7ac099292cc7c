"""Shows progress and writes log lines for as many seconds as the first argument says."""

from __future__ import annotations

import sys
import time

import structlog

from tailrace.service.logs import configure
from tailrace.service.progress import Snapshot, progress_display

configure("test")
log = structlog.get_logger()
end = time.monotonic() + float(sys.argv[1])
with progress_display("produce") as show:
    log.error("went_wrong", code="TR304", table="a\x1b[2Jb")
    while time.monotonic() < end:
        show(Snapshot(1234567, "epoch 7", 0.5, 10.0, 5.0, paused="disk full"))
        log.info("batch_applied", rows=5)
        time.sleep(0.1)
