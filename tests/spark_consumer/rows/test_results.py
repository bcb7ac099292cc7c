"""Results of executors on their way through the JVM, and the errors among them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.access.kafka_security import KafkaRefused
from schemas.errors import DownstreamError, EventId, Where
from spark_consumer.epochs.fetch import InvalidRow, NoResponse
from spark_consumer.rows import executors
from spark_consumer.rows.executors import SCHEMA, decoded, encoded
from spark_consumer.rows.reader import InvalidRecord
from spark_consumer.rows.render import UnevaluableRow, UnknownHeader
from spark_consumer.rows.results import (
    ArrowRows,
    ChangeToShare,
    Inserts,
    OrderedChange,
    Result,
    RowTally,
    RowToShare,
    TaskFailure,
)
from spark_consumer.target.tables import TableAltered

numbers = st.integers(0, 1 << 40)
texts = st.none() | st.binary(max_size=70)
changes = st.builds(OrderedChange, *[numbers] * 5, texts, texts, texts, numbers)
places = st.lists(numbers).map(tuple)
keys = st.lists(st.binary(max_size=9)).map(tuple)
kinds = st.one_of(
    st.builds(RowTally, numbers, numbers),
    st.builds(Inserts, numbers, st.binary(max_size=70), numbers),
    st.builds(ArrowRows, numbers, st.binary(max_size=70)),
    st.builds(RowToShare, numbers, numbers, places, keys, texts, texts),
    st.builds(ChangeToShare, changes, numbers, places, keys),
    changes,
)


def sent(given_results: list[Result]) -> pa.Table:
    return pa.Table.from_batches(encoded(given_results), SCHEMA)


@given(st.lists(kinds))
def test_results_come_back_whole_from_small_pieces(given_results: list[Result]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executors, "_PIECE_BYTES", 16)
        patch.setattr(executors, "_GROUP_BYTES", 40)
        table = sent(given_results)
        assert all(len(piece.as_py()) <= 16 for piece in table.column("piece"))
        found = decoded(table)
    assert found == given_results
    assert [type(one) for one in found] == [type(one) for one in given_results]


def test_ordinary_results_go_together() -> None:
    assert sent([RowTally(1, 2), Inserts(0, b"x" * (1 << 20), 5)]).num_rows == 1


@pytest.mark.parametrize(
    "error",
    [
        NoResponse("nothing came"),
        InvalidRow("no value"),
        UnknownHeader(b"\x00\x01"),
        UnevaluableRow("no sure result", Where(table="d.t", epoch=7)),
        InvalidRecord("ValueError: x"),
        KafkaRefused("TR508", "no", hint="the password", retryable=True),
        DownstreamError("TR600", "no", where=Where(event=EventId(7, 3)), applied="no", statement="SELECT 1"),
        TableAltered(("d", "t")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_keep_what_they_say(error: Exception) -> None:
    [found] = decoded(sent([TaskFailure(3, error)]))
    assert isinstance(found, TaskFailure)
    assert (found.task, type(found.error), str(found.error)) == (3, type(error), str(error))
    assert (found.error.args, vars(found.error)) == (error.args, vars(error))
