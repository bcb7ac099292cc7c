"""Old state, new code: what the first format's release has stored is read by this one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from relay_store.check.verify import verify
from relay_store.layout import directory as layout
from relay_store.layout.directory import Owner, RelayPosition
from relay_store.layout.readers import read_readers
from relay_store.write.writer import RelayWriter
from schemas.wire.log_records import epochs_of, structure_of, versions_of
from spark_consumer.apply.tables import channel_tables
from tests.support.paths import GOLDEN

STATE = GOLDEN / "state" / "1"
END = RelayPosition("4d617269-6144-4200-0000-000000000001.000001", "mysql-bin.000001", 936)


def _records(topic: str) -> Iterator[tuple[int, bytes, bytes]]:
    for offset, key, value in json.loads((STATE / "topics.json").read_text())[topic]:
        yield offset, bytes.fromhex(key), bytes.fromhex(value)


def test_the_relay_directory_goes_on_where_it_was(tmp_path: Path) -> None:
    root = tmp_path / "relay"
    shutil.copytree(STATE / "relay", root)
    assert layout.check_owner(root, "shop") == Owner("shop", "38362146-9cc9-4e81-b1f1-d2f7518dc7ee")
    start = layout.read_start(root)
    assert start is not None
    assert (start.file, start.pos, start.log_begins) == (END.file, END.pos, "copy")
    assert {reader.name: reader.position for reader in read_readers(root)} == {
        "publisher": END,
        "channel-main": END,
    }
    assert verify(root).sound
    writer = RelayWriter.open(root)
    assert (writer.position, writer.executed_gtids) == (END, "0-1-3")
    writer.close()


def test_the_log_is_read() -> None:
    epochs = [epoch for _, epoch in epochs_of(_records("shop.epochs"), "shop.epochs")]
    assert [epoch.epoch for epoch in epochs] == list(range(7))
    assert sum(epoch.rows for epoch in epochs) == 3
    [version] = versions_of(_records("shop.schemas"), "shop.schemas")
    assert [column.name for column in structure_of(version).columns] == ["id", "note"]


def test_the_downstreams_tables_are_those_of_their_format() -> None:
    # `install` only creates tables that are missing, so a change of one needs a new format and a conversion.
    stored = (GOLDEN / "state" / str(channel_tables.FORMAT) / "tables.sql").read_text()
    present = {table.strip() for table in channel_tables._TABLES.values()}
    assert set(stored.removesuffix(";\n").split(";\n")) <= present
