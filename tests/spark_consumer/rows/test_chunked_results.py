"""Large results on their way through the JVM."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_consumer.rows import chunked_results
from spark_consumer.rows.chunked_results import PIECE, Result, chunked, joined, size_of

texts = st.none() | st.binary(max_size=70)
results = st.tuples(*[st.integers(0, 4)] * 7, texts, texts, texts, st.integers(0, 4))


@given(st.lists(results))
def test_results_come_back_whole_from_small_pieces(given_results: list[Result]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunked_results, "_PIECE_BYTES", 16)
        sent = list(chunked(given_results))
        assert all(size_of(one) <= 3 * 16 for one in sent)
        assert list(joined(sent)) == given_results


def test_an_ordinary_result_is_left_as_it_is() -> None:
    result: Result = (2, 0, 5, 0, 0, 0, 0, b"x" * (1 << 20), None, None, 0)
    assert list(chunked([result])) == [result]
    assert PIECE not in range(5)
