"""``producer_process``, which decodes with compiled code from its first block on."""

from __future__ import annotations

import sys

from schemas.compiled import code as compiled_code
from tests.support.programs.producer_process import main

_read = compiled_code.CompiledCode.read


def _read_behind_a_backlog(code: compiled_code.CompiledCode, size: int) -> None:
    _read(code, compiled_code._BACKLOG + 1)
    code.wait()
    _read(code, size)


if __name__ == "__main__":
    compiled_code.CompiledCode.read = _read_behind_a_backlog  # type: ignore[method-assign,assignment]
    sys.exit(main())
