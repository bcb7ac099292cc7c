"""The storage engine of a table whose CREATE TABLE names none; the binlog does not say which one it was."""

from __future__ import annotations

from pathlib import Path

from producer.structures.store import Upstream
from relay_store.layout.directory import read_default_engine
from schemas.ddl.engine import has_foreign_key
from schemas.gtid.sets import Flavor
from schemas.wire.epoch import SchemaChanged


class DefaultEngine:
    """Tells the engine of a table of which CREATE TABLE names none: as it is upstream now, else the default there.

    Args:
        root: the relay directory, which has the upstream's default.
        upstream: asked for the table's engine; None where there is no upstream.
    """

    def __init__(self, root: Path, flavor: Flavor, upstream: Upstream | None) -> None:
        self._root, self._flavor, self._upstream = root, flavor, upstream

    def __call__(self, change: SchemaChanged) -> str | None:
        """The engine; None if it is not known."""
        default = read_default_engine(self._root)
        table = change.tables[0]
        found = self._upstream.engine((table.db, table.table)) if self._upstream else None
        # Somebody may have altered it since. Then the log alters it as well; but meanwhile its foreign keys act.
        has_keys = has_foreign_key(change.statement, self._flavor, sql_mode=change.mode)
        return default if found and default and has_keys else found or default
