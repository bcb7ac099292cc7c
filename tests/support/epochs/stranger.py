"""Reads the log with only docs/FORMAT.md, docs/TYPES.md, an Avro library and a Kafka client.

It imports nothing of Tailrace, to prove that the documents are complete.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import fastavro
from confluent_kafka import Consumer, TopicPartition
from fastavro.schema import fingerprint, to_parsing_canonical_form

from tests.support.paths import CHECKOUT

_EPOCH_SCHEMA = json.loads((CHECKOUT / "schemas/epoch.avsc").read_text())
_ITEMS = next(f["type"]["items"] for f in _EPOCH_SCHEMA["fields"] if f["name"] == "structures")
_STRUCTURE_SCHEMA = {**_ITEMS, "namespace": "tailrace"}
EPOCH = fastavro.parse_schema(_EPOCH_SCHEMA)
STRUCTURE = fastavro.parse_schema(_STRUCTURE_SCHEMA)
EPOCH_HEADER, STRUCTURE_HEADER = (
    b"\xc3\x01" + bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))
    for schema in (_EPOCH_SCHEMA, _STRUCTURE_SCHEMA)
)


@dataclass
class Message:
    """One Kafka record."""

    partition: int
    offset: int
    key: bytes
    value: bytes
    headers: dict[str, bytes]


@dataclass
class Change:
    """One row's change, decoded."""

    message: Message
    envelope: dict[str, Any]
    schema: dict[str, Any]
    structure: dict[str, Any]
    key: list[Any]

    @property
    def table(self) -> tuple[str, str]:
        return self.structure["db"], self.structure["table"]


def avro(schema: Any, data: bytes) -> Any:
    """Read one value that must use all bytes."""
    source = io.BytesIO(data)
    found = fastavro.schemaless_reader(source, schema, None)
    assert source.read() == b"", "bytes are left over"
    return found


def behind(header: bytes, data: bytes) -> bytes:
    """What stands behind a header that must be there."""
    assert data.startswith(header), "a record of another schema"
    return data[len(header) :]


def topic(bootstrap: str, name: str) -> list[Message]:
    """Return all committed records of a topic; divided rows are not joined yet."""
    consumer: Any = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "stranger",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    partitions = list(consumer.list_topics(name).topics[name].partitions)
    consumer.assign([TopicPartition(name, p, 0) for p in partitions])
    found: list[Message] = []
    ended = 0
    while ended < len(partitions):
        m = consumer.poll(30)
        assert m is not None
        if m.error():
            ended += 1
            continue
        found.append(Message(m.partition(), m.offset(), m.key(), m.value(), dict(m.headers() or ())))
    consumer.close()
    return found


def whole(messages: list[Message]) -> Iterator[Message]:
    """Yield the rows of one partition in order, with joined parts. A joined row has the offset of its last part."""
    parts: list[Message] = []
    for message in messages:
        number, count = map(int, message.headers.get("tailrace.part", b"1/1").split(b"/"))
        assert number == len(parts) + 1
        assert all(part.key == message.key for part in parts)
        parts.append(message)
        if number == count:
            value = b"".join(part.value for part in parts)
            yield Message(message.partition, message.offset, message.key, value, message.headers)
            parts = []
    assert not parts


class Log:
    """The whole log of one prefix, checked against the format's guarantees."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.epochs = [
            avro(EPOCH, behind(EPOCH_HEADER, m.value)) for m in topic(bootstrap, f"{prefix}.epochs")
        ]
        self.structures = {}
        for message in topic(bootstrap, f"{prefix}.schemas"):
            version = avro(STRUCTURE, behind(STRUCTURE_HEADER, message.value))
            assert message.key.decode() == f"{version['db']}.{version['table']}@{version['epoch']}"
            self.structures[version["fingerprint"]] = version
        self._parsed: dict[str, Any] = {}
        self._rows = topic(bootstrap, f"{prefix}.rows")
        assert [epoch["epoch"] for epoch in self.epochs] == list(range(len(self.epochs)))

    def changes(self) -> list[list[Change]]:
        """Yield each epoch's changes in the upstream's order."""
        by_partition: dict[int, list[Message]] = {}
        for message in self._rows:
            by_partition.setdefault(message.partition, []).append(message)
        found = [self._epoch(epoch, by_partition) for epoch in self.epochs]
        assert not any(by_partition.values()), "records outside of all ranges"
        return found

    def _epoch(self, epoch: dict[str, Any], by_partition: dict[int, list[Message]]) -> list[Change]:
        changes: list[Change] = []
        for part in epoch["ranges"]:
            waiting = by_partition[part["partition"]]
            inside = [m for m in waiting if part["start"] <= m.offset < part["end"]]
            assert (inside[0].offset, inside[-1].offset) == (part["start"], part["end"] - 1)
            assert waiting[: len(inside)] == inside
            del waiting[: len(inside)]
            one = [self._change(message) for message in whole(inside)]
            assert one == sorted(one, key=lambda change: change.envelope["source"]["seq"])
            changes += one
        assert len(changes) == epoch["rows"]
        assert sum(zlib.crc32(c.message.value) for c in changes) % 2**63 == epoch["digest"]
        changes.sort(key=lambda change: change.envelope["source"]["seq"])
        assert [c.envelope["source"]["seq"] for c in changes] == list(range(epoch["rows"]))
        assert {c.envelope["source"]["epoch"] for c in changes} <= {epoch["epoch"]}
        self._check_counts(epoch, changes)
        self._check_moves(changes)
        return changes

    def _change(self, message: Message) -> Change:
        value = message.value
        if value[0] == 0:
            name, body = value[1:5].hex(), value[5:]
        else:
            assert value[:2] == b"\xc3\x01"
            name, body = value[2:10].hex(), value[10:]
        version = self.structures[name]
        schema, structure = json.loads(version["avro_schema"]), json.loads(version["structure"])
        if name not in self._parsed:
            row = next(f for f in schema["fields"] if f["name"] == "after")["type"][1]
            types = {field["mysql.name"]: field["type"] for field in row["fields"]}
            parts = ["string", "string", *(types[column] for column in structure["key"])]
            fields = [{"name": f"part{i}", "type": kind} for i, kind in enumerate(parts)]
            key = fastavro.parse_schema({"type": "record", "name": "Key", "fields": fields})
            self._parsed[name] = (fastavro.parse_schema(schema), row, key)
        parsed, row, key = self._parsed[name]
        envelope = avro(parsed, body)
        assert chr(body[1]) == envelope["op"]
        assert body[2] == (0 if envelope["after"] is None else 2)
        db, table, *values = avro(key, message.key).values()
        source = envelope["source"]
        assert (db, table) == (source["db"], source["table"]) == (structure["db"], structure["table"])
        image = envelope["before"] if envelope["op"] == "d" else envelope["after"]
        by_name = dict(zip((f["mysql.name"] for f in row["fields"]), image.values(), strict=True))
        assert values == [by_name[column] for column in structure["key"]]
        return Change(message, envelope, row, structure, values)

    @staticmethod
    def _check_counts(epoch: dict[str, Any], changes: list[Change]) -> None:
        counted: dict[tuple[str, str], list[int]] = {}
        for change in changes:
            moved = change.envelope["source"]["flags"] & 0x10000
            column = 1 if moved else "cudr".index(change.envelope["op"])
            counted.setdefault(change.table, [0, 0, 0, 0])[column] += 1
        said: dict[tuple[str, str], list[int]] = {}
        for t in epoch["tables"]:
            counts = said.setdefault((t["db"], t["table"]), [0, 0, 0, 0])
            for i, kind in enumerate(("inserts", "updates", "deletes", "reads")):
                counts[i] += t[kind]
        assert counted == said

    @staticmethod
    def _check_moves(changes: list[Change]) -> None:
        for number, change in enumerate(changes):
            new = change.message.headers.get("__debezium.newkey")
            moved = change.envelope["source"]["flags"] & 0x10000
            if new is not None:
                other = changes[number + 1].message
                assert change.envelope["op"] == "d"
                assert (other.key, other.headers["__debezium.oldkey"]) == (new, change.message.key)
            assert bool(moved) == any(name.startswith("__debezium.") for name in change.message.headers)


def murmur2(key: bytes) -> int:
    """Kafka's hash of a key."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(key)) & mask
    whole_words = len(key) // 4 * 4
    for i in range(0, whole_words, 4):
        k = int.from_bytes(key[i : i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if rest := key[whole_words:]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def comparable(kind: str, value: Any) -> Any:
    """Return a value in the form in which the server returns ``expression``; ``kind`` is ``mysql.type``."""
    base = kind.split("(")[0].split(" ")[0]
    if value is None:
        return None
    if base == "bit":
        return str(int.from_bytes(value, "big"))
    if base == "json" and isinstance(value, dict):
        return value["text"]
    if base in ("float", "double"):
        return float(value)
    if base == "decimal" or kind == "bigint unsigned":
        return f"{value:f}"
    if base.endswith(("int", "year")):
        return str(value)
    if isinstance(value, bytes):
        return f"bytes {value.hex().upper()}"
    return value


def expression(column: str, field: dict[str, Any], value: Any) -> str:
    """Return the SQL expression whose value has the form of ``comparable``."""
    base = field["mysql.type"].split("(")[0].split(" ")[0]
    if value is None:
        return column
    if base in ("float", "double"):
        return f"{column} + 0"
    if base == "bit":
        return f"CAST({column} + 0 AS CHAR)"
    if isinstance(value, bytes):
        return f"CONCAT('bytes ', HEX({column}))"
    return f"CAST({column} AS CHAR CHARACTER SET utf8mb4)"
