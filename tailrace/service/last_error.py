"""The error that ended the last producer of a relay directory: a file there, which ``tailrace status`` shows.

last-error.json   {"code": …, "what": …, "where": …, "hint": …, "at": time in UTC}

The file goes once a producer works again, or ends as it should.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from relay_store.layout.directory import write_atomically
from schemas.access.private_files import make_folder
from schemas.errors import TailraceError

LAST_ERROR_NAME = "last-error.json"
_FIELDS = ("code", "what", "where", "hint", "at")
# Characters of a text.
_LONGEST = 4_000


@contextmanager
def error_kept(root: Path) -> Iterator[None]:
    """Keep the error with which the block ends; without one, remove what is kept."""
    try:
        yield
    except Exception as error:
        # The disk may be what is gone.
        with suppress(OSError):
            make_folder(root, chosen=True)
            write_atomically(root / LAST_ERROR_NAME, json.dumps(_fields(error), ensure_ascii=False))
        raise
    forget_error(root)


def forget_error(root: Path) -> None:
    """Remove what is kept, because a producer works again."""
    with suppress(OSError):
        (root / LAST_ERROR_NAME).unlink(missing_ok=True)


def read_error(root: Path) -> dict[str, str] | None:
    """Return the kept error; None if there is none."""
    try:
        found = json.loads((root / LAST_ERROR_NAME).read_bytes())
        return {name: str(found[name])[:_LONGEST] for name in _FIELDS}
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def _fields(error: Exception) -> dict[str, Any]:
    at = {"at": datetime.now(UTC).isoformat(timespec="milliseconds")}
    if isinstance(error, TailraceError):
        return error.as_dict() | at
    what = f"unexpected error: {type(error).__name__}: {error}".split("\n", 1)[0]
    return {"code": "TR001", "what": what, "where": "", "hint": "its log has the traceback's file"} | at
