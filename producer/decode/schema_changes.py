"""How tables' structures get into the log: stated with their first rows, and changed by DDL.

A DDL's record has the structures before and after; it is carried out on those that are tracked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import structlog

from producer.decode.logged_statement import LoggedStatement
from producer.decode.row_decoder import RowDecoder, SchemaName
from producer.epochs.open_epoch import OpenEpoch
from producer.events.query_event import epoch_ddl
from producer.structures.store import ReadPosition, Structures
from schemas.ddl.engine import takes_default_engine
from schemas.gtid.sets import Flavor
from schemas.structure import TableStructure
from schemas.wire.avro_schema import fingerprint_of, row_schema
from schemas.wire.epoch import SchemaChanged, StructureVersion

log = structlog.get_logger()


class StatedStructures:
    """What the log states so far.

    Args:
        current: fingerprint (hex) of the last structure by schema and table; kept up to date.
    """

    def __init__(self, current: dict[tuple[str, str], str]) -> None:
        self._current = current
        self._partial: dict[tuple[str, str], set[str]] = {}

    def touch(self, decoder: RowDecoder, epoch: OpenEpoch) -> list[int]:
        """An epoch's first rows of a structure come: it is stated if it has to be. Returns its counts."""
        structure, fingerprint = decoder.structure, decoder.fingerprint.hex()
        counts = epoch.counts[decoder.header] = [0, 0, 0]
        epoch.touched[decoder.header] = structure
        if self._is_news(structure, fingerprint):
            text, schema = structure.to_json(), row_schema(structure).text
            epoch.structures.append(
                StructureVersion(epoch.number, structure.db, structure.table, fingerprint, text, schema)
            )
        return counts

    def _is_news(self, structure: TableStructure, fingerprint: str) -> bool:
        """Whether the log does not have a structure as its table's; from now on it does."""
        name = (structure.db, structure.table)
        if structure.is_full:
            known = self._current.get(name)
            self._current[name] = fingerprint
            return known != fingerprint
        # One table has many of these at a time, so none of them is current: each is stated once a run.
        stated = self._partial.setdefault(name, set())
        if fingerprint in stated:
            return False
        stated.add(fingerprint)
        return True

    def current(self, db: str, table: str) -> str | None:
        """The fingerprint of the structure that a table's last rows had; None if nobody knows."""
        return self._current.get((db, table))

    def forget(self, db: str, table: str) -> None:
        """Whatever the table is now, its next rows state its structure anew."""
        self._current.pop((db, table), None)
        self._partial.pop((db, table), None)


#: the storage engine that a table has upstream, of which its CREATE TABLE says none; None if nobody knows
EngineOf = Callable[[SchemaChanged], str | None]


def nobody_knows(change: SchemaChanged) -> str | None:
    """The engine where there is nobody to ask."""
    return None


class SchemaChanges:
    """Carries DDL out.

    Args:
        structures: the tracked ones; kept up to date.
        stated: what the log states so far; kept up to date.
        schema_name: what names a structure's schema on the wire.
    """

    def __init__(
        self,
        flavor: Flavor,
        structures: Structures,
        stated: StatedStructures,
        schema_name: SchemaName,
        engine_of: EngineOf,
    ) -> None:
        self._flavor, self._structures, self._stated = flavor, structures, stated
        self._schema_name, self._engine_of = schema_name, engine_of

    def carry_out(self, found: LoggedStatement, here: ReadPosition) -> SchemaChanged:
        """The DDL's record, behind which the structures are those after it.

        Raises:
            DecodeError, UpstreamError: a structure that it needs is not known.
        """
        change = self._with_engine(epoch_ddl(found.query, found.statement, self._flavor, found.timestamp))
        tables = [replace(t, before=self._before(t.db, t.table)) for t in change.tables]
        self._structures.apply(change, found.statement, here)
        tables = [
            replace(t, after=self._tracked(t.renamed_to_db or t.db, t.renamed_to or t.table)) for t in tables
        ]
        for table in tables:
            self._stated.forget(table.db, table.table)
            if table.renamed_to is not None:
                self._stated.forget(table.renamed_to_db or table.db, table.renamed_to)
        return replace(change, tables=tuple(tables))

    def _with_engine(self, change: SchemaChanged) -> SchemaChanged:
        """With the engine that a CREATE TABLE took by default: the binlog does not say which one that was."""
        mode = change.mode
        if change.kind != "CREATE TABLE" or not takes_default_engine(
            change.statement, self._flavor, sql_mode=mode
        ):
            return change
        engine = self._engine_of(change)
        if engine is None:
            log.warning("default_engine_unknown", statement=change.shown[:200])
            return change
        return replace(change, settings=(*change.settings, ("default_storage_engine", engine)))

    def _before(self, db: str, table: str) -> str | None:
        """The fingerprint of the structure that a table's last rows had, or that it has by its definition."""
        return self._stated.current(db, table) or self._tracked(db, table)

    def _tracked(self, db: str, table: str) -> str | None:
        """That of the structure that a table's next rows will have, where the definition says so for sure."""
        structure = self._structures.after((db, table))
        # A registry would have to be told of the structure before it had a name.
        if structure is None or self._schema_name is not fingerprint_of:
            return None
        return fingerprint_of(structure).hex()
