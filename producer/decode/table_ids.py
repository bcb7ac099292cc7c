"""The tables that a file's table ids stand for: a TABLE_MAP event says it before the rows events that use it."""

from __future__ import annotations

from collections.abc import Callable

from producer.decode.row_decoder import SchemaName
from producer.decode.rows_head import RowsTable
from producer.events.table_map import table_names
from schemas.structure import TableStructure
from schemas.tables import TableFilter

# Of a MariaDB TABLE_MAP's flags, in their second byte. Source: sql/log_event.h, TM_BIT_HAS_TRIGGERS_F.
_HAS_TRIGGERS = 0x40
_MOST_TABLES = 10_000
# Of the tables whose decoders are kept, each of which takes some kilobytes.
_MOST_COLUMNS = 200_000
# Where consumers have their positions.
_CHANNELS = ("tailrace", "relay_log_info")


class TableIds:
    """Table ids of one file, and the tables of all files so far.

    Args:
        tables: those that are replicated.
        schema_name: what names a structure's schema on the wire.
        structure_of: the structure that a TABLE_MAP's body leads to.

    Attributes:
        by_id: the table of each id; None for one that is not replicated.
        contents: the TABLE_MAP, from its flags on, that ``by_id`` has the table of; not of all ids.
        with_triggers: ids of tables that have triggers, where the upstream says so.
        has_positions: whether a TABLE_MAP was met of another pipeline's positions; whoever looks sets it back.
    """

    def __init__(
        self,
        tables: TableFilter,
        schema_name: SchemaName,
        structure_of: Callable[[bytes], TableStructure],
    ) -> None:
        self._tables, self._schema_name, self._structure_of = tables, schema_name, structure_of
        self.by_id: dict[bytes, RowsTable | None] = {}
        self.contents: dict[bytes, bytes] = {}
        self.with_triggers: set[bytes] = set()
        self.has_positions = False
        self._by_body: dict[bytes, RowsTable | None] = {}
        self._columns = 0

    def new_file(self) -> None:
        """Forget the ids, which are a file's own."""
        self.by_id.clear()
        self.contents.clear()
        self.with_triggers.clear()

    def structures_changed(self) -> None:
        """Look each table's structure up anew, behind a DDL."""
        self._by_body.clear()
        self.contents.clear()

    def table_map(self, table_id: bytes, content: bytes, is_passed_over: bool) -> None:
        """Take in a TABLE_MAP other than the last one with this id.

        Args:
            content: its flags and what follows them.
            is_passed_over: whether the rows that follow are not read.
        """
        body = content[2:]
        if body in self._by_body:
            self.by_id[table_id] = self._by_body[body]
        else:
            self.by_id[table_id] = self._learn(body, is_passed_over)
        if body in self._by_body and len(self.contents) < _MOST_TABLES:
            self.contents[table_id] = content
        else:
            self.contents.pop(table_id, None)
        (self.with_triggers.add if content[1] & _HAS_TRIGGERS else self.with_triggers.discard)(table_id)

    def _learn(self, body: bytes, is_passed_over: bool) -> RowsTable | None:
        """The table of a TABLE_MAP not met before, or None if it is not replicated."""
        db, table, _ = table_names(body)
        if len(self._by_body) > _MOST_TABLES or self._columns > _MOST_COLUMNS:
            self._by_body.clear()
            self._columns = 0
        if not self._tables.allows(db, table):
            self._by_body[body] = None
            self.has_positions = self.has_positions or (db, table) == _CHANNELS
            return None
        if is_passed_over:
            # What it says may be older than what is tracked.
            return None
        structure = self._structure_of(body)
        self._columns += len(structure.columns)
        learned = self._by_body[body] = RowsTable(structure, self._schema_name)
        return learned
