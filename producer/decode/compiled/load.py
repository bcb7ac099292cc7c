"""Loads the compiled code once there is a backlog: without one it is not worth its memory.

``python -m producer.decode.compiled.load FOLDER`` compiles it and keeps it in a folder.
"""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from schemas import compiled
from schemas.binlog import compiled as binlog_compiled
from schemas.binlog import framing, groups
from schemas.gtid import base
from schemas.wire import avro_schema

if TYPE_CHECKING:
    from schemas.compiled.library import Library

log = structlog.get_logger()

# Bytes that were read without coming to the tail, behind which there is a backlog.
_BACKLOG = 1 << 20

#: the folder with the compiled code, which it may take a while to make; None if it cannot be made
Folder = Callable[[], Path | None]


def no_folder() -> None:
    """There is no compiled code."""


def state_of_code() -> str:
    """What the compiled code depends on: its source, Numba, and the processor."""
    import llvmlite
    import llvmlite.binding

    digest = hashlib.sha256()
    for module in (__file__, binlog_compiled.__file__, compiled.__file__):
        for source in sorted(Path(str(module)).parent.glob("*.py")):
            digest.update(source.read_bytes())
    # Constants of these become part of the code.
    for other in (framing, groups, base, avro_schema):
        digest.update(Path(str(other.__file__)).read_bytes())
    processor = llvmlite.binding.get_host_cpu_name(), llvmlite.binding.get_host_cpu_features().flatten()
    digest.update(f"{version('numba')} {llvmlite.__version__} {sys.version} {processor}".encode())
    return digest.hexdigest()


class CompiledCode:
    """The compiled code of one reader of the binlog, which a thread loads once there is a backlog.

    Args:
        reader: its name, for the log.
        folder: returns where it is; called once, by that thread.

    Attributes:
        library: the code; None until it is there.
    """

    def __init__(self, reader: str, folder: Folder) -> None:
        self._reader = reader
        self.library: Library | None = None
        self._folder = folder
        self._without_pause = 0
        self._thread: threading.Thread | None = None

    def read(self, size: int) -> None:
        """So many bytes were read; 0 at the tail."""
        self._without_pause = self._without_pause + size if size else 0
        if self._thread is None and self._without_pause > _BACKLOG:
            self._thread = threading.Thread(target=self._load, name="load", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Wait for the code, if it is being loaded."""
        if self._thread is not None:
            self._thread.join()

    def _load(self) -> None:
        try:
            folder = self._folder()
            if folder is not None:
                from schemas.compiled.library import Library

                self.library = Library.load(folder)
                log.info("compiled_code_loaded", reader=self._reader)
        except Exception as error:
            # All of it can be decoded without.
            log.warning("compiled_code_left_out", reason=f"{type(error).__name__}: {str(error)[:500]}")


def _build(folder: Path) -> None:
    from producer.decode.compiled.groups import examples
    from producer.decode.compiled.walk import fill_index, walk
    from schemas.binlog.compiled import calls, events
    from schemas.compiled.build import build

    walked, about_events = examples(), calls.examples()
    build(
        folder,
        {
            "walk": (walk, walked),
            "fill_index": (fill_index, walked[1:2]),
            "whole_events": (events.whole_events, about_events["whole_events"]),
            "packets": (events.packets, about_events["packets"]),
        },
    )


if __name__ == "__main__":
    _build(Path(sys.argv[1]))
