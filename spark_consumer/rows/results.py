"""Result types of tasks, which executors send to the driver.

There may be one for each row, so they are named tuples: a dataclass costs three times as much to create and to send.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


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


class OnlyInOrder(NamedTuple):
    """Changes of the table can only be made in the upstream's order; the other results are of no use.

    ``table`` is the table's index in the plan, here and in the other kinds.
    """

    table: int
    reason: str


class Deletes(NamedTuple):
    """A DELETE of ``rows`` rows; ``different`` as in ``Statement``."""

    table: int
    sql: bytes
    rows: int
    different: bytes | None = None


class Updates(NamedTuple):
    """A change of ``rows`` rows that are all there: an INSERT of several, or an UPDATE of one.

    ``values`` as in ``Statement``.
    """

    table: int
    sql: bytes
    rows: int
    values: bytes | None = None


class Inserts(NamedTuple):
    """A statement that inserts, wherever they belong, ``rows`` rows; ``values`` as in ``Statement``."""

    table: int
    sql: bytes
    rows: int
    values: bytes | None = None


class InsertedRows(NamedTuple):
    """Rows to insert, in the log's order with those of other partitions.

    Attributes:
        places: where each was inserted in the log, as numbers that grow.
        nulls: see ``schemas.sql.parameters.PreparedRows``; None if the values are literals.
        values: for each the values of an INSERT, or of a prepared one.
        keys: the Kafka key of each, if they are rows of a copy.
    """

    table: int
    places: list[int]
    nulls: list[int] | None
    values: list[bytes]
    keys: Sequence[bytes] = ()


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


class Share(NamedTuple):
    """Rows of tables whose rows conflict only with those of the same key; the statements after it are theirs.

    Attributes:
        offsets: the offsets of all their changes in the partition.
        updates: for each table that has some the number of UPDATEs, without those that change the key.
    """

    partition: int
    offsets: Sequence[int]
    updates: Mapping[int, int]


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
    | OnlyInOrder
    | Deletes
    | Updates
    | Inserts
    | InsertedRows
    | Written
    | OrderedChange
    | TracedRow
    | RowToShare
    | ChangeToShare
    | Share
    | ArrowRows
    | TaskFailure
)
