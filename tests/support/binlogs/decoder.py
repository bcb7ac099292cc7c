"""Runs the producer's decoder without relay log and Kafka."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from producer.decode.decode_rules import DecodeRules
from producer.decode.event_decoder import EventDecoder
from producer.decode.nested_events import PreparedTransactions
from producer.decode.statements import EngineOf, engine_unknown
from producer.epochs.open_epoch import EpochLimits, Now, OpenEpoch, Records
from producer.publish_start import prepared_in
from producer.settings import SkipRule
from producer.structures.store import Structures
from schemas.gtid.sets import Flavor, empty_gtid_set
from schemas.tables import TableFilter

NOW = Now(0.0, 1_770_000_000_000)
_UNLIMITED = EpochLimits(max_rows=1 << 40, max_bytes=1 << 50, max_delay=1e9, heartbeat=1e9)


def new_decoder(
    flavor: Flavor = "mysql",
    tables: TableFilter | None = None,
    *,
    root: Path = Path("/nowhere"),
    accounts: bool = False,
    skip: tuple[SkipRule, ...] = (),
    engine_of: EngineOf = engine_unknown,
    number: int = 0,
) -> EventDecoder:
    """Return a new decoder whose epochs end only at DDL.

    Args:
        root: where prepared transactions are read again.
        number: of the first epoch.
    """
    tables = tables or TableFilter()
    return EventDecoder(
        DecodeRules(flavor, tables, _UNLIMITED, accounts, skip),
        OpenEpoch(number, NOW.monotonic),
        empty_gtid_set(flavor).tracker(),
        {},
        Structures(flavor, tables, {}, None),
        PreparedTransactions(),
        prepared_in(root),
        engine_of,
    )


def run(
    decoder: EventDecoder,
    data: bytes,
    i: int = 0,
    base: int = 4,
    take: Callable[[Records], None] = lambda records: None,
) -> int:
    """``EventDecoder.run``: where it stopped.

    Args:
        take: gets what it hands out on the way.
    """
    parts = decoder.run(data, i, base, NOW)
    while True:
        try:
            take(next(parts))
        except StopIteration as stopped:
            at: int = stopped.value[0]
            return at
