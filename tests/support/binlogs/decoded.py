"""Decodes a binlog file with the producer's decoder into lines of plain text, in order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from producer.epochs.open_epoch import OpenEpoch, Records
from producer.settings import SkipRule
from relay_store.layout.directory import RelayPosition
from relay_store.read.reader import RelayReader
from schemas.gtid.sets import Flavor
from schemas.tables import TableFilter
from tests.support.binlogs.binlog_rows import rows_of
from tests.support.binlogs.decoder import NOW, new_decoder, run


def decoded_lines(
    root: Path,
    subdir: str,
    file: str,
    flavor: Flavor,
    *,
    skip: Sequence[SkipRule] = (),
    exclude: Sequence[str] = (),
) -> list[str]:
    """Return all rows and DDL statements of one file of a relay directory.

    Args:
        skip, exclude: the producer's rules.

    Raises:
        TailraceError: the error that stops the producer.
    """
    lines: list[str] = []
    decoder = new_decoder(flavor, TableFilter(exclude=exclude), root=root, skip=tuple(skip))

    def take(part: Records) -> None:
        lines.extend(_rows(decoder.state.epoch, part))

    decoder.leave_file_for(subdir, file)
    reader = RelayReader(root, RelayPosition(subdir, file, 4))
    try:
        while (block := reader.read_block()) is not None:
            i = 0
            while i < len(block.data):
                i = run(decoder, block.data, i, block.pos, take)
                # It stops behind a DDL, and before one that needs an epoch of its own.
                ended = decoder.end_epoch(NOW)
                if ended.ddl is not None:
                    lines.append(f"DDL {ended.ddl.kind}: {ended.ddl.statement}")
                lines += _rows(ended, ended.records)
    finally:
        reader.close()
    return lines


def _rows(epoch: OpenEpoch, records: Records) -> list[str]:
    lines = []
    for row in rows_of(epoch, records):
        record = row.avro()
        images = [
            json.dumps(record[side], default=_plain, ensure_ascii=False) for side in ("before", "after")
        ]
        lines.append(f"{row.op} {row.structure.name} {record['source']['gtid']} {images[0]} -> {images[1]}")
    return lines


def _plain(value: Any) -> str:
    return "0x" + value.hex() if isinstance(value, bytes) else str(value)
