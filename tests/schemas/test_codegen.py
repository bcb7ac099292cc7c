"""Functions of equal source share their code, and yet name their own source in a traceback."""

from __future__ import annotations

import traceback

import pytest

from schemas.codegen import compile_function


def test_functions_of_equal_source_have_their_own_names_and_values() -> None:
    lines = ["found = [step // n for n in values]", "return found"]
    made = [
        compile_function("f", "values", lines, {"step": step}, f"<rows of shop.t{step}>") for step in (10, 20)
    ]
    assert [function([5]) for function in made] == [[2], [4]]
    for function, step in zip(made, (10, 20), strict=True):
        with pytest.raises(ZeroDivisionError) as raised:
            function([0])
        frames = traceback.extract_tb(raised.value.__traceback__)[1:]
        assert {frame.filename for frame in frames} == {f"<rows of shop.t{step}>"}
        assert frames[-1].line == lines[0]


def test_a_long_source_is_compiled_too() -> None:
    function = compile_function("f", "x", [f"x += {n}" for n in range(20_000)] + ["return x"], {}, "<long>")
    assert function(1) == 1 + sum(range(20_000))
