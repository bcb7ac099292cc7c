"""The cache: one folder for each bundle of files, complete or absent.

A bundle is built under a temporary name and renamed when it is complete, under a file lock, so that neither a crash
nor a second process leaves an incomplete bundle.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_dir() -> Path:
    """Return the cache folder: ``$TAILRACE_CACHE``, else the checkout's ``.cache``, else ``~/.cache/tailrace``."""
    if chosen := os.environ.get("TAILRACE_CACHE"):
        return Path(chosen).absolute()
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").exists():
        return checkout / ".cache"
    return Path.home() / ".cache" / "tailrace"


def bundle(name: str, build: Callable[[Path], None]) -> Path:
    """Return the folder ``name`` of the cache. If it does not exist, ``build`` fills it first.

    ``build`` gets an empty folder, which is renamed to ``name`` when ``build`` returns.
    """
    final = cache_dir() / name
    if final.is_dir():
        return final
    with _locked(name):
        if not final.is_dir():
            scratch = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=cache_dir()))
            try:
                build(scratch)
                scratch.chmod(0o755)
                scratch.rename(final)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return final


def print_progress(line: str) -> None:
    """Print a line about progress to stderr."""
    print(f"tailrace: {line}", file=sys.stderr, flush=True)


@contextmanager
def _locked(name: str) -> Iterator[None]:
    cache_dir().mkdir(parents=True, exist_ok=True)
    with (cache_dir() / f".{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
