"""Loads compiled functions, which takes 30 ms and 45 MB, and calls them."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numpy.typing import NDArray

from schemas.compiled.types import Argument, arrays_of

#: of each array: its address, its length, and the length of its rows if it has two dimensions
PLACE_FIELDS = 3

# A status, and where result, exception and places are: of the first two no function has any.
_PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


def machine(optimize: int = 0) -> Any:
    """This machine, to compile for it or to load what was compiled."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=optimize,
        jit=True,
    )


class Library:
    """Compiled functions. Any thread may use it."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    @classmethod
    def load(cls, folder: Path) -> Library:
        """Load the functions of a folder; see ``schemas.compiled.build``.

        Raises:
            OSError: a file cannot be read.
            RuntimeError: it is no object file.
        """
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine())
        for path in sorted(folder.glob("*.o")):
            engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(path.read_bytes()))
        engine.finalize_object()
        return cls(engine)

    def function(self, name: str) -> Function:
        """Return a function of its own for one caller. Raises LookupError."""
        address = self._engine.get_function_address(name)
        if not address:
            raise LookupError(f"there is no compiled function {name}")
        return Function(address, self)


class Function:
    """A compiled function. It writes its results into arrays, and other threads run meanwhile."""

    def __init__(self, address: int, library: Library) -> None:
        self._call, self._library = _PROTOTYPE(address), library
        self._arrays: list[NDArray[Any] | None] = []
        self._places = np.empty((0, PLACE_FIELDS), np.int64)
        self._places_at = 0
        # Numba's functions write that there is no result.
        self._result = np.zeros(1, np.int64)
        self._result_at = self._result.ctypes.data

    def __call__(self, *arguments: Argument) -> None:
        """Call it with contiguous arrays, whose types and dimensions are those that it was compiled for."""
        arrays = arrays_of(arguments)
        if not self._arrays:
            self._places, self._arrays = np.empty((len(arrays), PLACE_FIELDS), np.int64), [None] * len(arrays)
            self._places_at = self._places.ctypes.data
        for number, array in enumerate(arrays):
            # Most are those of the call before, and to ask an array for its address takes a microsecond.
            if array is not self._arrays[number]:
                self._places[number] = array.ctypes.data, len(array), array.shape[-1]
                self._arrays[number] = array
        self._call(self._result_at, None, self._places_at)
