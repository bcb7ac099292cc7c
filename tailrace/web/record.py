"""The record of actions: a file of JSON lines to which lines are only added."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

from schemas.access.private_files import make_folder, opener
from schemas.errors import ConfigError

_READ = 1 << 20  # bytes at the file's end
Line = dict[str, Any]


class ActionRecord:
    """The file. Every line is on disk before its action goes on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    def add(self, line: Line) -> None:
        """Append a line. Raises ConfigError TR162: an action that cannot be recorded must not happen."""
        data = (json.dumps(line, ensure_ascii=True) + "\n").encode()
        try:
            with self._lock:
                make_folder(self.path.parent, chosen=True)
                with open(self.path, "ab", buffering=0, opener=opener) as file:
                    file.write(data)
                    os.fsync(file.fileno())
        except OSError as error:
            raise ConfigError(
                "TR162",
                f"actions cannot be recorded in {self.path}: {error.strerror or error}",
                hint="make room or correct its rights, or set actions-file in [serve]; nothing was done",
            ) from None

    def last(self, count: int) -> list[Line]:
        """Return the last actions, the newest first: what was begun, and how it ended if that is known."""
        try:
            with self.path.open("rb") as file:
                start = max(0, file.seek(0, os.SEEK_END) - _READ)
                file.seek(start)
                lines = file.read(_READ).splitlines()[1 if start else 0 :]
        except OSError:
            return []
        found: dict[str, Line] = {}
        for line in lines:
            try:
                one = json.loads(line)
                found[one["id"]] = found.pop(one["id"], {}) | one
            except (ValueError, LookupError, TypeError, RecursionError):
                continue  # a line that was cut by a full disk
        return list(found.values())[: -count - 1 : -1]
