"""A binlog file through the producer's decoder, as lines of plain text: what happened, in order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from producer.decode.skipping import SkipRule
from producer.decode.walk import EventDecoder
from producer.decode.xa import PreparedTransactions
from producer.epochs.open_epoch import EpochLimits, OpenEpoch
from producer.epochs.records import Records
from relay_store.layout.directory import RelayPosition
from relay_store.read.reader import RelayReader
from schemas.gtid.sets import Flavor, empty_gtid_set
from schemas.tables import TableFilter
from tests.support.binlog_rows import rows_of

_UNLIMITED = EpochLimits(max_rows=1 << 40, max_bytes=1 << 50, max_delay=1e9, heartbeat=1e9)


def decoded_lines(
    root: Path,
    subdir: str,
    file: str,
    flavor: Flavor,
    *,
    skip: Sequence[SkipRule] = (),
    exclude: Sequence[str] = (),
) -> list[str]:
    """All rows and DDL statements of one file of a relay directory.

    Args:
        skip, exclude: the producer's rules.

    Raises:
        TailraceError: what stops the producer there.
    """
    lines: list[str] = []
    decoder = EventDecoder(
        flavor,
        TableFilter(exclude=exclude),
        _UNLIMITED,
        empty_gtid_set(flavor).tracker(),
        {},
        lambda epoch: lines.extend(_taken(decoder, epoch)),
        PreparedTransactions(root),
        skip=skip,
    )
    decoder.next_file(subdir, file)
    reader = RelayReader(root, RelayPosition(subdir, file, 4))
    try:
        while (block := reader.read_block()) is not None:
            i = 0
            while i < len(block.data):
                i = decoder.run(block.data, i, block.pos)
                # It stops behind a DDL, and before one that needs an epoch of its own.
                lines += _taken(decoder, decoder.epoch)
                decoder.epoch = OpenEpoch(decoder.epoch.number + 1)
    finally:
        reader.close()
    return lines


def _taken(decoder: EventDecoder, epoch: OpenEpoch) -> list[str]:
    lines = [f"DDL {epoch.ddl.kind}: {epoch.ddl.statement}"] if epoch.ddl is not None else []
    for row in rows_of(epoch):
        record = row.avro()
        images = [
            json.dumps(record[side], default=_plain, ensure_ascii=False) for side in ("before", "after")
        ]
        lines.append(f"{row.op} {row.structure.name} {record['source']['gtid']} {images[0]} -> {images[1]}")
    epoch.records = Records(first=epoch.seq)
    return lines


def _plain(value: Any) -> str:
    return "0x" + value.hex() if isinstance(value, bytes) else str(value)
