"""Writes epochs with made-up rows in the producer's format, without an upstream."""

from __future__ import annotations

import io
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import fastavro
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from schemas.structure import Column, TableStructure
from schemas.wire.avro_schema import KEY_CHANGE, avro_name, envelope, row_schema
from schemas.wire.epoch import (
    DIGEST_MODULUS,
    EpochCommitted,
    OffsetRange,
    SchemaChanged,
    StructureVersion,
    TableChanged,
    TableTouched,
    encode_structure_version,
)
from schemas.wire.rows import key_prefix

UUID = "00000000-0000-0000-0000-00000000cafe"
Image = dict[str, Any]


def integer(name: str, *, nullable: bool = False) -> Column:
    """Return an INT column."""
    return Column(name, "int", 3, 0, nullable)


def text(name: str, *, length: int = 60, nullable: bool = False) -> Column:
    """Return a VARCHAR column in utf8mb4."""
    return Column(name, f"varchar({length})", 15, length * 4, nullable, charset="utf8mb4")


@dataclass(frozen=True)
class Change:
    """One row's change; ``flags`` are those of the rows event."""

    structure: TableStructure
    op: str
    before: Image | None = None
    after: Image | None = None
    flags: int = 0


def insert(structure: TableStructure, after: Image, flags: int = 0) -> Change:
    return Change(structure, "c", None, after, flags)


def update(structure: TableStructure, before: Image, after: Image, flags: int = 0) -> Change:
    return Change(structure, "u", before, after, flags)


def delete(structure: TableStructure, before: Image, flags: int = 0) -> Change:
    return Change(structure, "d", before, None, flags)


def read(structure: TableStructure, after: Image) -> Change:
    """Return a row that a copy has read."""
    return Change(structure, "r", None, after)


@lru_cache
def _schemas(structure: TableStructure) -> tuple[Any, Any]:
    whole: Any = fastavro.parse_schema(envelope(structure))
    fields = {f["name"]: f["type"] for f in envelope(structure)["fields"][1]["type"][1]["fields"]}
    keys = [fastavro.parse_schema(fields[avro_name(name)]) for name in structure.key]
    return whole, keys


def _encoded(schema: Any, datum: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, datum)
    return out.getvalue()


def row_key(structure: TableStructure, image: Image) -> bytes:
    """Return the Kafka key of a row."""
    _, keys = _schemas(structure)
    parts = [_encoded(schema, image[name]) for schema, name in zip(keys, structure.key, strict=True)]
    return key_prefix(structure) + b"".join(parts)


def _avro(image: Image | None) -> Image | None:
    return None if image is None else {avro_name(name): value for name, value in image.items()}


def row_value(change: Change, epoch: int, seq: int, gtid: str | None, pos: int = 4) -> bytes:
    """Return the Kafka value of a row."""
    structure = change.structure
    source = {
        "seq": seq,
        "epoch": epoch,
        "flags": change.flags,
        "db": structure.db,
        "table": structure.table,
        "server_id": 1,
        "gtid": gtid,
        "file": "mysql-bin.000001",
        "pos": pos,
        "ts_ms": 0,
    }
    images = {"after": _avro(change.after), "before": _avro(change.before)}
    record = {"op": change.op, **images, "source": source, "ts_ms": 0}
    return row_schema(structure).header + _encoded(_schemas(structure)[0], record)


#: key, value and headers of a row's record
Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]


@dataclass
class FakeTopic:
    """The topics of one prefix, and the end of the log."""

    bootstrap: str
    prefix: str
    partitions: int = 4
    next_epoch: int = 0
    transactions: int = 0
    known: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        topics = {"rows": self.partitions, "epochs": 1, "schemas": 1}
        new = [NewTopic(f"{self.prefix}.{name}", count, 1) for name, count in topics.items()]
        for future in admin.create_topics(new).values():
            future.result()
        self._producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": self.prefix,
                "linger.ms": 20,
                "batch.size": 1 << 20,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        self._producer.init_transactions(30)
        self.epoch()

    @property
    def gtids(self) -> str:
        """The executed set after the last epoch."""
        return f"{UUID}:1-{self.transactions}" if self.transactions else ""

    @contextmanager
    def open_rows(self, rows: int) -> Iterator[None]:
        """Have records in the rows topic that are not committed, and that are aborted at the block's end."""
        self._producer.begin_transaction()
        for number in range(rows):
            self._producer.produce(
                f"{self.prefix}.rows", b"of an open epoch", partition=number % self.partitions
            )
        self._producer.flush()
        yield
        self._producer.abort_transaction(30)

    def ddl(self, statement: str, kind: str, *tables: TableChanged, **settings: Any) -> EpochCommitted:
        """Write an epoch with one DDL."""
        defaults: dict[str, Any] = {"default_db": "", "source_flavor": "mysql", "timestamp": 1_700_000_000}
        changed = SchemaChanged(statement=statement, kind=kind, tables=tables, **{**defaults, **settings})
        return self.epoch(ddl=changed)

    def epoch(
        self,
        *changes: Change,
        ddl: SchemaChanged | None = None,
        transactions: int = 1,
        spoil: Callable[[EpochCommitted], EpochCommitted] = lambda record: record,
        spoil_row: Callable[[Record], Record] = lambda record: record,
    ) -> EpochCommitted:
        """Write one epoch, with the changes divided among its transactions.

        ``spoil`` changes its record and ``spoil_row`` its rows' records, for tests of damaged logs.
        """
        number = self.next_epoch
        first = self.transactions + 1
        if changes or ddl:
            self.transactions += transactions
        gtid = f"{UUID}:{self.transactions}" if self.transactions else None
        self._producer.begin_transaction()
        split = [(half, n) for n, change in enumerate(changes) for half in halves([change])]
        names = [f"{UUID}:{first + n * transactions // len(changes)}" for _, n in split]
        values, offsets = self._write_rows([half for half, _ in split], number, names, spoil_row)
        now = int(time.time() * 1000)
        counts: dict[TableStructure, list[int]] = {}
        for change, _ in split:
            # Both halves of a key-changing UPDATE count as updates.
            column = 1 if change.flags & KEY_CHANGE else "cud".index(change.op)
            counts.setdefault(change.structure, [0, 0, 0])[column] += 1
        record = EpochCommitted(
            epoch=number,
            first_gtid=f"{UUID}:{first}" if changes or ddl else None,
            last_gtid=gtid if changes or ddl else None,
            executed_gtids=self.gtids,
            source_id=UUID,
            source_file="mysql-bin.000001",
            source_pos=1000 + number,
            relay_dir=f"{UUID}.000001",
            relay_file="mysql-bin.000001",
            relay_pos=1000 + number,
            ranges=tuple(OffsetRange(p, o[0], o[1]) for p, o in sorted(offsets.items())),
            tables=tuple(
                TableTouched(s.db, s.table, row_schema(s).fingerprint.hex(), *n) for s, n in counts.items()
            ),
            structures=tuple(v for s in counts if (v := self._version(s, number))),
            ddl=ddl,
            rows=len(values),
            transactions=transactions if changes or ddl else 0,
            digest=sum(zlib.crc32(value or b"") for value in values) % DIGEST_MODULUS,
            first_commit_ms=now,
            last_commit_ms=now,
            published_ms=now,
        )
        for version in record.structures:
            self._producer.produce(
                f"{self.prefix}.schemas", encode_structure_version(version), version.topic_key, partition=0
            )
        record = spoil(record)
        self._producer.produce(f"{self.prefix}.epochs", record.encode(), b"epoch", partition=0)
        self._producer.commit_transaction(30)
        self.next_epoch += 1
        return record

    def _write_rows(
        self,
        changes: Sequence[Change],
        epoch: int,
        gtids: Sequence[str],
        spoil: Callable[[Record], Record],
    ) -> tuple[list[bytes | None], dict[int, list[int]]]:
        offsets: dict[int, list[int]] = {}

        def delivered(error: Any, message: Message) -> None:
            assert error is None, error
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            span = offsets.setdefault(partition, [offset, offset + 1])
            span[0], span[1] = min(span[0], offset), max(span[1], offset + 1)

        values: list[bytes | None] = []
        for seq, change in enumerate(changes):
            key = row_key(change.structure, change.after or change.before or {})
            partition = zlib.crc32(key) % self.partitions
            sent, value, headers = spoil((key, row_value(change, epoch, seq, gtids[seq]), []))
            values.append(value)
            self._producer.produce(
                f"{self.prefix}.rows", value, sent, partition, on_delivery=delivered, headers=headers
            )
            if seq % 1000 == 0:
                self._producer.poll(0)
        self._producer.flush(60)
        return values, offsets

    def strange(
        self, name: str, value: bytes | None, key: bytes | None = b"epoch", partition: int = 0
    ) -> None:
        """Write a record that is not from the producer to the end of a topic."""
        other = Producer({"bootstrap.servers": self.bootstrap})
        other.produce(f"{self.prefix}.{name}", value, key, partition)
        other.flush(30)

    def _version(self, structure: TableStructure, epoch: int) -> StructureVersion | None:
        schema = row_schema(structure)
        fingerprint = schema.fingerprint.hex()
        if fingerprint in self.known:
            return None
        self.known.add(fingerprint)
        return StructureVersion(
            epoch, structure.db, structure.table, fingerprint, structure.to_json(), schema.text
        )


def halves(changes: Sequence[Change]) -> list[Change]:
    """Return the changes with each UPDATE of a key as two halves."""
    split: list[Change] = []
    for change in changes:
        structure, before, after = change.structure, change.before, change.after
        moved = before and after and structure.key and row_key(structure, before) != row_key(structure, after)
        if moved:
            flags = change.flags | KEY_CHANGE
            split.append(replace(change, op="d", after=None, flags=flags))
            split.append(replace(change, op="c", before=None, flags=flags))
        else:
            split.append(change)
    return split
