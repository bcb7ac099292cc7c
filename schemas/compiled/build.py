"""Compiles functions into object files, which need neither Numba nor Python to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
from numba import njit, types
from numba.extending import intrinsic
from numba.np import arrayobj
from numba.np.numpy_support import from_dtype
from numpy.typing import NDArray

from schemas.codegen import compile_function
from schemas.compiled.jit import OPTIONS
from schemas.compiled.library import PLACE_FIELDS, machine
from schemas.compiled.types import Argument

_OPTIMIZE_MOST = 3
_WITHOUT_PYTHON = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def build(folder: Path, functions: Mapping[str, tuple[Callable[..., None], tuple[Argument, ...]]]) -> None:
    """Write one object file for each function.

    Args:
        functions: by their names, with examples of their arguments: what counts are types and numbers of dimensions.
    """
    for name, (function, arguments) in functions.items():
        (folder / f"{name}.o").write_bytes(_object_file(name, _entry(name, function, arguments)))


def _entry(name: str, function: Callable[..., None], arguments: tuple[Argument, ...]) -> Any:
    """A function that gets the places of all arrays, and calls one with the arrays."""
    names: dict[str, Any] = {"function": function}
    made, number = [], 0
    for argument in arguments:
        arrays = []
        for array in argument if isinstance(argument, tuple) else (argument,):
            names[f"array{number}"] = _array_at(array)
            arrays.append(f"array{number}(places, {number})")
            number += 1
        if isinstance(argument, tuple):
            kind = type(argument).__name__
            names[kind] = type(argument)
            arrays = [f"{kind}({', '.join(arrays)})"]
        made += arrays
    body = [f"function({', '.join(made)})"]
    return njit(**OPTIONS, **_WITHOUT_PYTHON)(
        compile_function(name, "places", body, names, f"<entry of {name}>")
    )


def _array_at(like: NDArray[Any]) -> Any:
    """What makes an array of a type like this one from its place."""
    kind, item = types.Array(from_dtype(like.dtype), like.ndim, "C"), like.itemsize

    def array_at(context: Any, places: Any, number: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            whole = context.get_value_type(types.int64)
            first = builder.mul(values[1], whole(PLACE_FIELDS))
            address, length, width = (
                builder.load(builder.gep(values[0], [builder.add(first, whole(field))]))
                for field in range(PLACE_FIELDS)
            )
            array = arrayobj.make_array(kind)(context, builder)
            pointer = context.get_data_type(kind.dtype).as_pointer()
            arrayobj.populate_array(
                array,
                data=builder.inttoptr(address, pointer),
                shape=[length, width][: like.ndim],
                strides=[builder.mul(width, whole(item)), whole(item)][-like.ndim :],
                itemsize=whole(item),
                meminfo=None,
            )
            return array._getvalue()

        return kind(places, types.int64), generate

    return intrinsic(array_at)


def _object_file(name: str, entry: Any) -> bytes:
    signature = types.void(types.CPointer(types.int64))
    entry.compile(signature)
    compiled = entry.overloads[signature.args]
    module = llvm.parse_assembly(compiled.library.get_llvm_str())
    module.get_function(compiled.fndesc.llvm_func_name).name = name
    for function in module.functions:
        if not function.is_declaration and function.name != name:
            function.linkage = "internal"
    target = machine(_OPTIMIZE_MOST)
    passes = llvm.create_pass_builder(target, llvm.PipelineTuningOptions(speed_level=_OPTIMIZE_MOST))
    # What only wrappers needed is left out.
    passes.getModulePassManager().run(module, passes)
    return bytes(target.emit_object(module))
