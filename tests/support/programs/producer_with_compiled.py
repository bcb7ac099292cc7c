"""``producer_process``, which decodes with compiled code from its first block on."""

from __future__ import annotations

import sys

from producer.decode.compiled import load
from tests.support.programs.producer_process import main

_read = load.CompiledCode.read


def _read_behind_a_backlog(code: load.CompiledCode, size: int) -> None:
    _read(code, load._BACKLOG + 1)
    code.wait()
    _read(code, size)


if __name__ == "__main__":
    load.CompiledCode.read = _read_behind_a_backlog  # type: ignore[method-assign,assignment]
    sys.exit(main())
