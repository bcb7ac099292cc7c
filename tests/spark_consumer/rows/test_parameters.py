"""Laws of the values of prepared statements; test_values.py of the schemas compares them with literals."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from schemas.sql.parameters import Parameters, PreparedRows
from schemas.types.codec import read_counted_field
from schemas.types.parameter import LENGTH, STRING, length_prefix


@given(
    st.integers(1, 17).flatmap(
        lambda count: st.tuples(
            st.just(count), st.lists(st.integers(0, (1 << count) - 1), min_size=1, max_size=40)
        )
    )
)
def test_the_nulls_of_many_rows_are_one_bitmap(case: tuple[int, list[int]]) -> None:
    count, masks = case
    values = [b"%d;" % number for number in range(len(masks))]
    parameters = Parameters(b"", STRING * count, _unused, _unused)
    size = (count * len(masks) + 7) // 8
    joined = parameters.joined(masks, values)
    bits = "".join(f"{mask:0{count}b}"[::-1] for mask in masks)
    assert joined[:size] == int(bits[::-1], 2).to_bytes(size, "little")
    assert joined[size:] == b"\1" + STRING * count * len(masks) + b"".join(values)


def _unused(rows: Sequence[bytes]) -> PreparedRows:
    raise AssertionError(rows)


@given(st.sampled_from([0, 1, 250, 251, 252, 65_535, 65_536, (1 << 24) - 1, 1 << 24, 1 << 32]))
def test_a_length_is_read_back(size: int) -> None:
    prefix = length_prefix(size)
    assert read_counted_field(prefix, 0) == (size, len(prefix))
    assert 2 * size >= len(LENGTH) or LENGTH[2 * size] == prefix
