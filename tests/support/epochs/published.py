"""Reads the epoch log with a ``read_committed`` consumer, and checks it against the format's guarantees."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from zlib import crc32

from confluent_kafka import Consumer, Message, TopicPartition

from relay_store.layout.directory import RelayPosition, subdir_serial
from schemas.structure import TableStructure
from schemas.wire.epoch import DIGEST_MODULUS, EpochCommitted
from tests.support.binlogs.binlog_rows import Row

Image = dict[str, Any]


@dataclass(frozen=True)
class Published:
    """The whole log: its epochs in order, and each epoch's rows by their number."""

    epochs: list[EpochCommitted]
    rows: list[list[Row]]

    @property
    def all_rows(self) -> list[Row]:
        """Return all rows in the upstream's order."""
        return [row for rows in self.rows for row in rows]

    def tables(self) -> dict[str, dict[bytes, Image]]:
        """Return the content of each table with a key after all rows."""
        tables: dict[str, dict[bytes, Image]] = {}
        for row in self.all_rows:
            table = tables.setdefault(row.structure.table, {})
            image = row.avro()
            if row.op != "c":
                assert table.pop(row.key) == image["before"]
            if row.op != "d":
                assert row.key not in table
                table[row.key] = image["after"]
        return tables


def count_rows(bootstrap: str, prefix: str) -> int:
    """Count the visible rows without reading them; assert that they are as many as the epochs say."""
    records, rows = _settled(bootstrap, prefix)
    assert sum(EpochCommitted.decode(record).rows for record in records) == len(rows)
    return len(rows)


def read_published(bootstrap: str, prefix: str) -> Published:
    """Read the log; assert that epochs are contiguous, rows are in one range each, and counts and digests right."""
    records, row_messages = _settled(bootstrap, prefix)
    epochs = [EpochCommitted.decode(record) for record in records]
    assert [e.epoch for e in epochs] == list(range(len(epochs)))
    for before, after in pairwise(epochs):
        # A new relay log starts at 1 again.
        if (
            subdir_serial(before.relay_dir) < subdir_serial(after.relay_dir)
            or before.relay_dir == after.relay_dir
        ):
            places = [RelayPosition(e.relay_dir, e.relay_file, e.relay_pos) for e in (before, after)]
            assert places[0].order <= places[1].order
    structures = {
        bytes.fromhex(v.fingerprint): TableStructure.from_json(v.structure)
        for e in epochs
        for v in e.structures
    }
    by_partition: dict[int, dict[int, Message]] = {}
    for message in row_messages:
        by_partition.setdefault(message.partition(), {})[message.offset()] = message
    rows = [_rows_of(epoch, by_partition, structures) for epoch in epochs]
    assert not any(by_partition.values()), "rows outside of every epoch's ranges"
    return Published(epochs, rows)


def _settled(bootstrap: str, prefix: str) -> tuple[list[bytes], list[Message]]:
    """Return the epoch records, and the messages that the rows topic had with exactly these epochs."""
    before: list[bytes] = []
    while True:
        rows = read_topic(bootstrap, f"{prefix}.rows")
        after = [m.value() for m in read_topic(bootstrap, f"{prefix}.epochs")]
        if before == after:
            return after, rows
        before = after


def _rows_of(
    epoch: EpochCommitted,
    by_partition: dict[int, dict[int, Message]],
    structures: dict[bytes, TableStructure],
) -> list[Row]:
    messages = []
    for part in epoch.ranges:
        offsets = by_partition.get(part.partition, {})
        inside = [offset for offset in range(part.start, part.end) if offset in offsets]
        assert inside[0] == part.start
        assert inside[-1] == part.end - 1
        messages += [offsets.pop(offset) for offset in inside]
    assert len(messages) == epoch.rows
    assert sum(crc32(m.value()) for m in messages) % DIGEST_MODULUS == epoch.digest
    numbered = {}
    seqs: dict[tuple[int, int], int] = {}
    for m in messages:
        row = Row(structures[m.value()[2:10]], m.key(), m.value(), tuple(m.headers() or ()))
        source = row.avro()["source"]
        assert source["epoch"] == epoch.epoch
        numbered[source["seq"]] = row
        seqs[m.partition() or 0, m.offset() or 0] = source["seq"]
    assert sorted(numbered) == list(range(epoch.rows))
    counted = sum(t.rows for t in epoch.tables)
    assert counted == epoch.rows
    begin = 0
    for run in epoch.runs:
        within = [(part.partition, offset) for part in run.ranges for offset in range(part.start, part.end)]
        assert sorted(seqs[place] for place in within) == list(range(begin, begin + run.rows))
        values = (numbered[seqs[place]].value for place in within)
        assert sum(map(crc32, values)) % DIGEST_MODULUS == run.digest
        begin += run.rows
    assert begin in (0, epoch.rows)
    return [numbered[seq] for seq in range(epoch.rows)]


def read_topic(bootstrap: str, topic: str) -> list[Message]:
    """Return all committed messages of a topic, none if it does not exist."""
    consumer: Any = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "tests",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        found = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in found])
        messages: list[Message] = []
        ends = 0
        while ends < len(found):
            message = consumer.poll(30)
            assert message is not None, f"{topic} ends at an open transaction"
            if message.error():
                ends += 1
            else:
                messages.append(message)
        return messages
    finally:
        consumer.close()
