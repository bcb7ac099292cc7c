"""``producer_process``, which waits for processes that decode ahead as soon as it has a backlog."""

from __future__ import annotations

import sys
import time

from producer.ahead.pool import DecodePool
from tests.support.programs.producer_process import main


def _wait(is_ready: property) -> property:
    asked = is_ready.fget
    assert asked is not None

    def wait(self: DecodePool) -> bool:
        deadline = time.monotonic() + 60
        while not asked(self) and time.monotonic() < deadline:
            time.sleep(0.02)
        return bool(asked(self))

    return property(wait)


if __name__ == "__main__":
    DecodePool.is_ready = _wait(DecodePool.__dict__["is_ready"])  # type: ignore[method-assign,assignment]
    sys.exit(main())
