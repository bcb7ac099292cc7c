"""The types of what compiled functions work on.

Annotations are for readers and mypy alone: Numba takes the types of arrays from examples (``schemas.compiled.build``).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Bytes: TypeAlias = NDArray[np.uint8]
Numbers: TypeAlias = NDArray[np.int64]
Words: TypeAlias = NDArray[np.uint64]
#: an int64, a bool and a uint64; mypy would tell NumPy's from Python's
Int: TypeAlias = Any
Bool: TypeAlias = Any
Word: TypeAlias = Any
#: what a compiled function is called with: an array, or a named tuple of arrays
Argument: TypeAlias = NDArray[Any] | tuple[NDArray[Any], ...]


def arrays_of(arguments: tuple[Argument, ...]) -> list[NDArray[Any]]:
    """All arrays of the arguments, in their order."""
    arrays: list[NDArray[Any]] = []
    for argument in arguments:
        arrays += argument if isinstance(argument, tuple) else (argument,)
    return arrays


def pieces(data: Bytes, ends: list[int]) -> list[bytes]:
    """Cut the bytes at these ends."""
    if not ends:
        return []
    whole = data[: ends[-1]].tobytes()
    return [whole[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
