"""MariaDB's system-versioned tables: the binlog also has history rows, and a versioned downstream makes its own.

MariaDB logs an UPDATE as an UPDATE of the row and an INSERT of the old row, and a DELETE as an UPDATE of ``row_end``,
which is in the row's key. Without the history rows, the log is the same as that of a plain table.
"""

from __future__ import annotations

from schemas.ddl.table_definition import PERIOD
from schemas.structure import TableStructure
from schemas.types.temporal import TIMESTAMP, TIMESTAMP2
from spark_consumer.target.table import TargetTable

START, END = PERIOD


def keeps_history(structure: TableStructure, target: TargetTable) -> bool:
    """Whether both tables keep their history, in hidden columns downstream."""
    kinds = {column.name: column.code for column in structure.columns}
    upstream = all(kinds.get(name) in (TIMESTAMP, TIMESTAMP2) for name in PERIOD)
    return upstream and target.versioned and not any(target.column(name) for name in PERIOD)


def identifies_history(structure: TableStructure) -> bool:
    """Whether each change shows whether its row is current: ``row_end`` is in the row's key and in the image."""
    images = (structure.before_columns, structure.after_columns)
    logged = images[1] if images[0] == () else images[0]
    return END in structure.key and (logged is None or END in logged)
