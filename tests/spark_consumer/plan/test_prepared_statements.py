"""Into how many statements the rows of prepared INSERTs are divided."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from schemas.sql.parameters import Parameters, PreparedRows
from schemas.types.parameter import STRING
from spark_consumer.plan.statements import Limits, prepared


def _divided(sizes: Sequence[int], limits: Limits, columns: int = 4) -> list[int]:
    """Return the numbers of rows of the statements, whose texts and values are checked."""
    row = b"(" + b",".join([b"?"] * columns) + b")"
    parameters = Parameters(row, STRING * columns, _unused, _unused)
    values = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    nulls = [number % (1 << columns) for number in range(len(sizes))]
    made = list(prepared(b"INSERT ", nulls, values, b" END", limits, parameters))
    begin = 0
    for one in made:
        end = begin + one.rows
        assert one.sql == b"INSERT " + b",".join([row] * one.rows) + b" END"
        assert one.values == parameters.joined(nulls[begin:end], values[begin:end])
        assert one.rows == 1 or (one.rows <= limits.max_rows and len(one.values) <= limits.max_bytes)
        begin = end
    assert begin == len(sizes)
    return [one.rows for one in made]


def _unused(rows: Sequence[bytes]) -> PreparedRows:
    raise AssertionError(rows)


@given(
    st.lists(st.sampled_from([0, 1, 5, 20, 90, 300]), max_size=60),
    st.sampled_from([1, 2, 7, 16, 2000]),
    st.sampled_from([1, 64, 500, 1 << 20]),
    st.sampled_from([1, 3, 100, 5000]),
)
def test_all_rows_are_in_order_and_within_the_limits(
    sizes: list[int], max_rows: int, max_bytes: int, columns: int
) -> None:
    _divided(sizes, Limits(max_rows, max_bytes), columns)


def test_statements_have_few_numbers_of_rows() -> None:
    limits = Limits(2000)
    assert _divided([100] * 1500, limits) == [512, 512, *[64] * 7, 28]
    # Of long rows as many as 512 are too long, and how many are not differs.
    assert set(_divided([2000 + number % 900 for number in range(900)], limits)[:-1]) == {64}
    assert _divided([2 << 20] * 3, limits) == [1, 1, 1]


def test_rows_of_many_columns_have_fewer_rows_in_a_statement() -> None:
    assert _divided([300] * 45, Limits(2000), columns=100) == [16, 16, *[2] * 6, 1]
    assert _divided([300] * 3, Limits(2000), columns=4000) == [1, 1, 1]
    # Never one row after the other, of which a server does not say whether they were there.
    assert _divided([30] * 20, Limits(12)) == [8, 8, 4]
