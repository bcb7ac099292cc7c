"""``producer_process``, which decodes with compiled code from its first block on."""

from __future__ import annotations

import sys

from producer.decode.compiled import load
from tests.support.programs.producer_process import main

_read = load.BacklogWatch.read


def _read_behind_a_backlog(watch: load.BacklogWatch, size: int) -> None:
    _read(watch, load._BACKLOG + 1)
    watch.wait()
    _read(watch, size)


if __name__ == "__main__":
    load.BacklogWatch.read = _read_behind_a_backlog  # type: ignore[method-assign,assignment]
    sys.exit(main())
