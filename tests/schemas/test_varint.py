"""The generated lines that read Avro's numbers, against the function that reads those of any size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.codegen import compile_function
from schemas.varint import encode, read_lines, read_more

_NAMES = {"read_more": read_more}
_read = compile_function("read", "v, p", [*read_lines("z"), "return z, p"], _NAMES, "<read of a test>")
_EDGES = [edge + near for edge in (0, *(1 << bits for bits in range(7, 64, 7))) for near in (-1, 0, 1)]


@given(st.integers(0, (1 << 64) - 1) | st.sampled_from(_EDGES[1:]) | st.integers(0, 1 << 22))
def test_a_number_is_read_with_its_end(zigzag: int) -> None:
    data = b"x" + encode(zigzag)
    assert _read(data + b"\xff", 1) == (zigzag, len(data))


@given(st.integers(1 << 7, (1 << 64) - 1))
def test_a_number_that_is_cut_off_is_refused(zigzag: int) -> None:
    with pytest.raises(IndexError):
        _read(encode(zigzag)[:-1], 0)
