"""How Numba compiles, and the types that compiled functions work on.

Numba takes types from the first call, so annotations are for readers and mypy alone. Nothing is checked at run time:
each function reads and writes only what its caller has made sure of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

Bytes: TypeAlias = NDArray[np.uint8]
Numbers: TypeAlias = NDArray[np.int64]
Words: TypeAlias = NDArray[np.uint64]
#: an int64, a bool and a uint64; mypy would tell NumPy's from Python's
Int: TypeAlias = Any
Bool: TypeAlias = Any
Word: TypeAlias = Any

_F = TypeVar("_F", bound=Callable[..., Any])

# No function makes or keeps an array, so none has to count references to them, which took five times as long as the
# rest. Integers are divided as in C where a divisor is zero; none is.
_OPTIONS = {"nogil": True, "error_model": "numpy", "_nrt": False}

#: for a function that others call
compiled: Callable[[_F], _F] = njit(**_OPTIONS)
#: for one that Python calls, which is kept on disk with all that it calls
compiled_once: Callable[[_F], _F] = njit(**_OPTIONS, cache=True)
