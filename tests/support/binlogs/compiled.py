"""Compiled code, loaded once for all tests of a process."""

from __future__ import annotations

from functools import cache

from schemas.compiled.library import Library
from tailrace.artifacts.compiled import compiled_code


@cache
def compiled_library() -> Library:
    """Load it; what is missing is compiled."""
    folder = compiled_code()
    assert folder is not None
    return Library.load(folder)
