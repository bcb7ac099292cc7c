"""What of a binlog becomes records, and where to stop."""

from __future__ import annotations

from dataclasses import dataclass

from producer.decode.row_decoder import SchemaName
from producer.decode.skipping import SkipRule
from producer.epochs.open_epoch import EpochLimits
from schemas.gtid.sets import Flavor, GtidSet
from schemas.tables import TableFilter
from schemas.wire.avro_schema import fingerprint_of


@dataclass(frozen=True)
class DecodeRules:
    """What the operator wants of a binlog.

    Attributes:
        tables: those that are replicated.
        accounts: whether statements on accounts, which may hold passwords, are published.
        skip: what to pass over that cannot be replicated.
        schema_name: what names a structure's schema on the wire.
        stop_behind: stop exactly behind this GTID set.
    """

    flavor: Flavor
    tables: TableFilter
    limits: EpochLimits
    accounts: bool = False
    skip: tuple[SkipRule, ...] = ()
    schema_name: SchemaName = fingerprint_of
    stop_behind: GtidSet | None = None
