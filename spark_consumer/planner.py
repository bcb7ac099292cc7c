"""Plans slices against the downstream's tables as they are."""

from __future__ import annotations

from collections.abc import Mapping

from schemas.structure import TableStructure
from schemas.tables import TableFilter
from spark_consumer.apply import Applier
from spark_consumer.config import ConsumerConfig
from spark_consumer.merge import Limits
from spark_consumer.plan import SlicePlan, plan_slice, structures_of
from spark_consumer.slices import Slice
from spark_consumer.target import TargetCatalog


class Planner:
    """Plans the slices of one channel. It reads on the applier's connection, so it runs in the applier's thread."""

    def __init__(self, config: ConsumerConfig, applier: Applier) -> None:
        self._applier = applier
        self._filter = TableFilter(config.include, config.exclude)
        self._catalog = TargetCatalog()
        # Room for the statement's own words and the packet's header.
        self._limits = Limits(max_bytes=min(1 << 20, applier.session.max_allowed_packet - 65536))

    def plan(self, piece: Slice, structures: Mapping[str, TableStructure]) -> SlicePlan:
        """The plan of a slice whose rows were written with these structures, by fingerprint.

        Raises:
            LogError: a structure is missing.
            DownstreamError: the downstream's tables do not fit.
        """
        needed = structures_of(piece, structures)
        names = [(s.db, s.table) for s in needed.values() if self._filter.allows(s.db, s.table)]
        targets = self._applier.with_retries(lambda: self._catalog.load(self._applier.session, names))
        return plan_slice(needed, targets, self._filter, self._limits, piece.where)

    def forget(self) -> None:
        """A DDL has run: look at the tables anew."""
        self._catalog.forget()
