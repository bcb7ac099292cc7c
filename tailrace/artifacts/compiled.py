"""The producer's compiled code, built once for each version of it, of Numba and of the processor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import structlog

from producer.decode.compiled.load import state_of_code
from tailrace.artifacts.cache import bundle, print_progress

_TIMEOUT_S = 600.0
_log = structlog.get_logger()


def compiled_code() -> Path | None:
    """Return the folder of the compiled code; None if it cannot be made.

    Without it the producer decodes as well, more slowly.
    """
    try:
        return bundle(f"compiled-{state_of_code()[:12]}", _compile)
    except (OSError, ImportError, subprocess.SubprocessError) as error:
        _log.warning("compiled_code_left_out", reason=str(error))
        return None


def _compile(folder: Path) -> None:
    print_progress("compiling the producer's code")
    command = [sys.executable, "-m", "producer.decode.compiled.load", str(folder)]
    subprocess.run(command, check=True, timeout=_TIMEOUT_S, capture_output=True)


if __name__ == "__main__":
    compiled_code()
