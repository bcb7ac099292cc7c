"""The compiled code of both processes, built once for each version of it, of Numba and of the processor.

``python -m tailrace.artifacts.compiled`` compiles it into the cache; with a folder, into that one.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import structlog

from tailrace.artifacts.cache import bundle, print_progress

_TIMEOUT_S = 600.0
# The compiled functions, and whose constants become part of them.
_SOURCES = (
    "schemas/compiled/*.py",
    "schemas/binlog/compiled/*.py",
    "schemas/sql/compiled/*.py",
    "producer/decode/compiled/*.py",
    "schemas/binlog/framing.py",
    "schemas/binlog/groups.py",
    "schemas/gtid/base.py",
    "schemas/types/parameter.py",
    "schemas/wire/avro_schema.py",
)
_log = structlog.get_logger()


def compiled_code() -> Path | None:
    """Return the folder of the compiled code; None if it cannot be made.

    Without it everything is done as well, more slowly.
    """
    try:
        return bundle(f"compiled-{_state_of_code()[:12]}", _compile)
    except (OSError, ImportError, subprocess.SubprocessError) as error:
        _log.warning("compiled_code_left_out", reason=str(error))
        return None


def _state_of_code() -> str:
    """What the compiled code depends on: its source, Numba, and the processor."""
    import llvmlite
    import llvmlite.binding

    digest, root = hashlib.sha256(), Path(__file__).resolve().parents[2]
    for pattern in _SOURCES:
        for source in sorted(root.glob(pattern)):
            digest.update(source.read_bytes())
    processor = llvmlite.binding.get_host_cpu_name(), llvmlite.binding.get_host_cpu_features().flatten()
    digest.update(f"{version('numba')} {llvmlite.__version__} {sys.version} {processor}".encode())
    return digest.hexdigest()


def _compile(folder: Path) -> None:
    print_progress("compiling code that decodes a backlog")
    command = [sys.executable, "-m", "tailrace.artifacts.compiled", str(folder)]
    subprocess.run(command, check=True, timeout=_TIMEOUT_S, capture_output=True)


def _build(folder: Path) -> None:
    from producer.decode.compiled import documents, groups, json_diff, walk
    from schemas.binlog.compiled import calls, events
    from schemas.compiled.build import build
    from schemas.sql.compiled import calls as sql_calls
    from schemas.sql.compiled import changes, values

    walked, about_events, about_rows = groups.examples(), calls.examples(), sql_calls.examples()
    build(
        folder,
        {
            "walk": (walk.walk, walked),
            "fill_index": (walk.fill_index, walked[1:2]),
            "document": (json_diff.document, documents.examples()),
            "whole_events": (events.whole_events, about_events["whole_events"]),
            "packets": (events.packets, about_events["packets"]),
            "parameters": (values.parameters, about_rows["parameters"]),
            "changes": (changes.changes, about_rows["changes"]),
        },
    )


if __name__ == "__main__":
    if sys.argv[1:]:
        _build(Path(sys.argv[1]))
    else:
        compiled_code()
