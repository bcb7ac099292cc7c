"""MariaDB's system-versioned tables: the log holds rows of the past too, and a versioned downstream keeps its own.

An UPDATE is logged as one of the row and an INSERT of the row as it was, a DELETE as an UPDATE of ``row_end``, which
is in the row's key. So what is left without the rows of the past is what a plain table's log would have had.
"""

from __future__ import annotations

from schemas.ddl.table_definition import PERIOD
from schemas.structure import TableStructure
from schemas.types.temporal import TIMESTAMP, TIMESTAMP2
from spark_consumer.target.find_by_image import compile_finder
from spark_consumer.target.table import TargetTable

#: the end of rows that are in force, before MariaDB 11.5 and since
_NEVER = frozenset({b"'2038-01-19 03:14:07.999999'", b"'2106-02-07 06:28:15.999999'"})
START, END = PERIOD


def keeps_history(structure: TableStructure, target: TargetTable) -> bool:
    """Whether both tables keep their history, in columns that nobody sees."""
    kinds = {column.name: column.code for column in structure.columns}
    upstream = all(kinds.get(name) in (TIMESTAMP, TIMESTAMP2) for name in PERIOD)
    return upstream and target.versioned and not any(target.column(name) for name in PERIOD)


def tells_history(structure: TableStructure) -> bool:
    """Whether each change says of its row whether it is in force: by the row's key, in the image that it has."""
    images = (structure.before_columns, structure.after_columns)
    told = images[1] if images[0] == () else images[0]
    return END in structure.key and (told is None or END in told)


class InForce:
    """Tells the rows of the past from those in force."""

    def __init__(self, structure: TableStructure) -> None:
        self._end = compile_finder(structure, (END,), exact=False).old

    def __call__(self, value: bytes) -> bool:
        """Whether a change is one of a row that was in force before it, or is new and in force."""
        return self._end(value) in _NEVER
