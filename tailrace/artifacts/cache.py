"""The cache: one folder for each bundle of files, named after what it holds, whole or absent.

A bundle is built under another name and renamed when it is whole, under a file lock, so that neither a crash nor a
second process leaves half a bundle.
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
    """The cache: ``$TAILRACE_CACHE``, else ``.cache`` of the checkout, else ``~/.cache/tailrace``."""
    if chosen := os.environ.get("TAILRACE_CACHE"):
        return Path(chosen).absolute()
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").exists():
        return checkout / ".cache"
    return Path.home() / ".cache" / "tailrace"


def bundle(name: str, build: Callable[[Path], None]) -> Path:
    """The folder ``name`` of the cache, built by ``build`` if it is not there yet.

    ``build`` fills an empty folder; only when it returns does the folder get its name.
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


def progress(line: str) -> None:
    """One line of talk on stderr."""
    print(f"stack: {line}", file=sys.stderr, flush=True)


@contextmanager
def _locked(name: str) -> Iterator[None]:
    cache_dir().mkdir(parents=True, exist_ok=True)
    with (cache_dir() / f".{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
