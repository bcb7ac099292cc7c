"""Loads the compiled code, which takes half a second and 100 MB, and is worth it behind a backlog.

``python -m producer.decode.compiled.load FOLDER`` compiles it and keeps it in a folder.
"""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from schemas.binlog import framing
from schemas.gtid import base
from schemas.gtid.sets import Flavor
from schemas.wire import avro_schema

if TYPE_CHECKING:
    from producer.decode.plain_groups import PlainGroups

log = structlog.get_logger()

# Bytes that were read without coming to the tail, behind which there is a backlog.
_BACKLOG = 8 << 20

#: the folder with the compiled code, which it may take a while to make; None if it cannot be made
Folder = Callable[[], Path | None]


def no_folder() -> None:
    """There is no compiled code."""


def load(folder: Path, flavor: Flavor) -> PlainGroups:
    """Load the code from its folder; what is missing there is compiled.

    Raises:
        ImportError, OSError: this is no machine for it.
    """
    import numba

    numba.config.CACHE_DIR = str(folder)
    from producer.decode.compiled.groups import CompiledGroups

    groups = CompiledGroups(flavor)
    groups.warm_up()
    return groups


def state_of_code() -> str:
    """What the compiled code depends on: its source, Numba, and the processor."""
    import llvmlite.binding
    import numba

    folder = Path(__file__).parent
    digest = hashlib.sha256(str(folder).encode())
    # Numba itself compares times, and only those of the files that it keeps functions of.
    for source in sorted(folder.glob("*.py")):
        digest.update(source.read_bytes() + str(source.stat().st_mtime_ns).encode())
    # Constants of these become part of the code.
    for module in (framing, base, avro_schema):
        digest.update(Path(str(module.__file__)).read_bytes())
    processor = llvmlite.binding.get_host_cpu_name(), llvmlite.binding.get_host_cpu_features().flatten()
    digest.update(f"{numba.__version__} {sys.version} {processor}".encode())
    return digest.hexdigest()


class BacklogWatch:
    """Loads the code in a thread once there is a backlog.

    Args:
        use: what the loaded code is given to, by the thread that calls ``read``.
    """

    def __init__(self, folder: Folder, flavor: Flavor, use: Callable[[PlainGroups], None]) -> None:
        self._folder, self._flavor, self._use = folder, flavor, use
        self._without_pause = 0
        self._thread: threading.Thread | None = None
        self._loaded: PlainGroups | None = None

    def read(self, size: int) -> None:
        """So many bytes were read; 0 at the tail."""
        self._without_pause = self._without_pause + size if size else 0
        if self._thread is None and self._without_pause > _BACKLOG:
            self._thread = threading.Thread(target=self._load, name="load", daemon=True)
            self._thread.start()
        if self._loaded is not None:
            self._use(self._loaded)
            self._loaded = None

    def wait(self) -> None:
        """Wait for the code, if it is being loaded."""
        if self._thread is not None:
            self._thread.join()

    def _load(self) -> None:
        try:
            folder = self._folder()
            if folder is not None:
                self._loaded = load(folder, self._flavor)
                log.info("compiled_code_loaded")
        except Exception as error:
            # All of it can be decoded without.
            log.warning("compiled_code_left_out", reason=f"{type(error).__name__}: {str(error)[:500]}")


if __name__ == "__main__":
    load(Path(sys.argv[1]), "mysql")
