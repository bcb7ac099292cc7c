"""Loads the compiled code once there is a backlog: without one it is not worth its memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from schemas.compiled.library import Library

log = structlog.get_logger()

# Bytes that were read without coming to the tail, behind which there is a backlog.
_BACKLOG = 1 << 20
# Seconds. It takes less than a tenth of one, and the first rows of a backlog take longer without it.
_MOMENT = 0.5

#: the folder with the compiled code, which it may take a while to make; None if it cannot be made
Folder = Callable[[], Path | None]


def no_folder() -> None:
    """There is no compiled code."""


class CompiledCode:
    """The compiled code of one reader of a log, which a thread loads once there is a backlog.

    Args:
        reader: its name, for the log.
        folder: returns where it is; called once, by that thread.
        loaded: called by that thread once the code is there.

    Attributes:
        library: the code; None until it is there.
    """

    def __init__(
        self, reader: str, folder: Folder, loaded: Callable[[Library], None] = lambda library: None
    ) -> None:
        self._reader = reader
        self.library: Library | None = None
        self._folder, self._loaded = folder, loaded
        self._without_pause = 0
        self._thread: threading.Thread | None = None
        self._latest = 0.0

    def read(self, size: int) -> None:
        """So many bytes were read; 0 at the tail."""
        self._without_pause = self._without_pause + size if size else 0
        if self._without_pause > _BACKLOG:
            self.load()

    def begin(self) -> None:
        """Have the thread load it, unless it has begun to."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._load, name="load", daemon=True)
            self._thread.start()
            self._latest = time.monotonic() + _MOMENT

    def load(self) -> None:
        """As ``begin``, and wait a moment for it, but not until it is made."""
        self.begin()
        if (left := self._latest - time.monotonic()) > 0:
            self.wait(left)

    def wait(self, seconds: float | None = None) -> None:
        """Wait for the code, if it is being loaded."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _load(self) -> None:
        try:
            folder = self._folder()
            if folder is not None:
                from schemas.compiled.library import Library

                self.library = Library.load(folder)
                log.info("compiled_code_loaded", reader=self._reader)
                self._loaded(self.library)
        except Exception as error:
            # All of it can be decoded without.
            log.warning("compiled_code_left_out", reason=f"{type(error).__name__}: {str(error)[:500]}")
