"""How Numba compiles: a decorator for every compiled function.

Nothing is checked at run time: each function reads and writes only what its caller has made sure of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

_F = TypeVar("_F", bound=Callable[..., Any])

# No function makes or keeps an array, so none has to count references to them, which took five times as long as the
# rest. Integers are divided as in C where a divisor is zero; none is.
OPTIONS = {"nogil": True, "error_model": "numpy", "_nrt": False}

compiled: Callable[[_F], _F] = njit(**OPTIONS)
