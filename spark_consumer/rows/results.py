"""Result types that executors send to the driver, and their Arrow encoding.

There may be one for each row, so they are named tuples: a dataclass costs three times as much to create and to send.
They are pickled and pass through the JVM between a Python worker and the driver. Its heap is small, so large pickles
are sent in pieces, which are joined here.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa


class RowTally(NamedTuple):
    """The number of all rows read, and the sum of their CRC-32s."""

    rows: int
    digest: int


class UnwrittenCounts(NamedTuple):
    """Changes that become no statement.

    Attributes:
        compacted: changes that another change of the same row replaces.
        left_out: changes that an expression leaves out.
    """

    compacted: int
    left_out: int


class Deletes(NamedTuple):
    """A DELETE of ``rows`` rows. ``table`` is the table's index in the plan, here and in the other kinds."""

    table: int
    sql: bytes
    rows: int


class Inserts(NamedTuple):
    """An INSERT or REPLACE of ``rows`` rows."""

    table: int
    sql: bytes
    rows: int


class CopiedRows(NamedTuple):
    """Rows of a copy.

    Attributes:
        places: where each is in the log, as numbers that grow.
        values: the values of an INSERT for each.
        keys: the Kafka key of each.
    """

    table: int
    places: list[int]
    values: list[bytes]
    keys: list[bytes]


class Written(NamedTuple):
    """Statements and rows of copies that a task has written."""

    statements: int
    rows: int


#: a change is made to a row that is there; a row that is missing is written
IF_THERE, IF_MISSING = 1, 2
ALWAYS = IF_THERE | IF_MISSING


class OrderedChange(NamedTuple):
    """A change that is applied in the upstream's order; its fields are explained in ``OrderedRow``."""

    table: int
    epoch: int
    seq: int
    flags: int
    op: int
    match: bytes | None
    assignments: bytes | None
    values: bytes | None
    rules: int
    writes: int


class TracedRow(NamedTuple):
    """The event of a row, for messages and for an operator's decision.

    Attributes:
        digest: CRC-32 of the row's record.
        pos: the position of the event in ``file``, the upstream's binlog file.
        shown: the predicate that finds the row on the downstream; without one its values.
    """

    table: int
    digest: int
    epoch: int
    seq: int
    pos: int
    gtid: str | None
    file: str
    shown: bytes | None


class RowToShare(NamedTuple):
    """The net change of one row, for the worker that will write it.

    Attributes:
        offsets: the offsets of its changes in the partition.
        conflict_keys: rows with a common conflict key go to the same worker.
        gone: the values that find the row to remove; None if there is none.
        written: the values of the row to write; None if there is none.
    """

    table: int
    partition: int
    offsets: tuple[int, ...]
    conflict_keys: tuple[bytes, ...]
    gone: bytes | None
    written: bytes | None

    @property
    def size(self) -> int:
        """The number of bytes to write."""
        return len(self.gone or b"") + len(self.written or b"")


class ChangeToShare(NamedTuple):
    """A change that is applied in order, for the worker that will make it."""

    change: OrderedChange
    partition: int
    offsets: tuple[int, ...]
    conflict_keys: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """The number of bytes to write."""
        return len(self.change.match or b"") + len(self.change.values or b"")


class ArrowRows(NamedTuple):
    """Rows of one table as an Arrow stream, for change files."""

    table: int
    stream: bytes


class TaskFailure(NamedTuple):
    """The failure of a task.

    Attributes:
        task: the task's number in the job.
        error: the reason; ``spark_consumer.rows.reader`` translates it.
    """

    task: int
    error: Exception


Result = (
    RowTally
    | UnwrittenCounts
    | Deletes
    | Inserts
    | CopiedRows
    | Written
    | OrderedChange
    | TracedRow
    | RowToShare
    | ChangeToShare
    | ArrowRows
    | TaskFailure
)

SCHEMA = pa.schema([("piece", pa.binary()), ("last", pa.bool_())])
SCHEMA_DDL = "piece binary, last boolean"
# Results that are pickled together. A statement with many rows has up to 1 MiB.
_GROUP_RESULTS = 1024
_GROUP_BYTES = 4 << 20
_PIECE_BYTES = 4 << 20


def encoded(results: Iterable[Result]) -> Iterator[pa.RecordBatch]:
    """Encode results as record batches of ``SCHEMA``."""
    group: list[Result] = []
    size = 0
    for result in results:
        group.append(result)
        size += _size(result)
        if len(group) == _GROUP_RESULTS or size >= _GROUP_BYTES:
            yield from _pieces(group)
            group, size = [], 0
    if group:
        yield from _pieces(group)


def decoded(table: Any) -> list[Result]:
    """Decode results from the Arrow table of all record batches; those of each task are in order."""
    found: list[Result] = []
    pieces: list[Any] = []
    for piece, last in zip(*table.columns, strict=True):
        pieces.append(piece.as_buffer())
        if last.as_py():
            found += pickle.loads(b"".join(pieces))
            pieces.clear()
    return found


def _pieces(group: list[Result]) -> Iterator[pa.RecordBatch]:
    whole = pickle.dumps(group, pickle.HIGHEST_PROTOCOL)
    for begin in range(0, len(whole), _PIECE_BYTES):
        end = begin + _PIECE_BYTES
        piece = [pa.array([whole[begin:end]], pa.binary()), pa.array([end >= len(whole)])]
        yield pa.RecordBatch.from_arrays(piece, schema=SCHEMA)


def _size(result: Result) -> int:
    size = 0
    for field in result.change if type(result) is ChangeToShare else result:
        if type(field) is bytes:
            size += len(field)
    return size
