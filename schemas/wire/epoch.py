"""The epoch log's records: the information that a consumer needs to apply a run of complete transactions."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from typing import Any

import fastavro
from zlib_ng.zlib_ng import crc32

from schemas.ddl.kinds import family
from schemas.ddl.lexer import Flavor
from schemas.structure import has_full_images
from schemas.wire.avro_schema import read_record, schema_fingerprint
from schemas.wire.rows import SINGLE_OBJECT, schema_name, value_header


class OtherSchema(ValueError):
    """A record has another schema than the one that this version writes and reads."""


class LogRecord:
    """The format of one topic's records: the Avro specification's single-object encoding with one schema.

    Attributes:
        header: the ten bytes before every record: marker and the schema's fingerprint.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        self.header = value_header(schema_fingerprint(schema))
        self._schema = fastavro.parse_schema(schema)

    def encode(self, record: dict[str, Any]) -> bytes:
        """Encode a record."""
        out = io.BytesIO()
        out.write(self.header)
        fastavro.schemaless_writer(out, self._schema, record)
        return out.getvalue()

    def decode(self, data: bytes) -> Any:
        """Decode what ``encode`` wrote.

        Raises:
            OtherSchema: the record has another schema.
            ValueError, LookupError, EOFError, TypeError: the bytes are not one record.
        """
        if not data.startswith(self.header):
            found = data[: len(self.header)]
            if not found.startswith(SINGLE_OBJECT) or len(found) < len(self.header):
                raise ValueError("it does not start with the header of a schema")
            raise OtherSchema(
                f"its schema has the fingerprint {schema_name(found).hex()}, and this version of Tailrace reads"
                f" {schema_name(self.header).hex()}: producer and readers must have the same version"
            )
        return read_record(self._schema, data[len(self.header) :])


_SCHEMA: dict[str, Any] = json.loads((files("schemas") / "epoch.avsc").read_text())
#: the records of ``<prefix>.epochs``
EPOCH_RECORD = LogRecord(_SCHEMA)
#: the records of ``<prefix>.schemas``
STRUCTURE_RECORD = LogRecord(
    next(field["type"]["items"] for field in _SCHEMA["fields"] if field["name"] == "structures")
    | {"namespace": _SCHEMA["namespace"]}
)

#: `log_begins` of a log with everything that was ever written upstream
ORIGIN = "origin"
#: `log_begins` of a log that begins with a copy of all tables
COPY = "copy"
#: the key of all records of the epochs topic
EPOCH_KEY = b"epoch"
#: digests are sums of CRC-32 values modulo this number
DIGEST_MODULUS = 1 << 63


def digest_of(values: Iterable[bytes]) -> int:
    """Return the digest of rows' values, before the modulo operation with ``DIGEST_MODULUS``."""
    return sum(map(crc32, values))


@dataclass(frozen=True)
class OffsetRange:
    """The offsets ``[start, end)`` of one partition of the rows topic, with gaps at transaction markers."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class RowRun:
    """Consecutive rows of an epoch. The fields are described in ``epoch.avsc``."""

    rows: int
    digest: int
    ranges: tuple[OffsetRange, ...]


#: what a channel that began with a copy for new channels has of a table while that copy runs: nothing, or some rows
ABSENT, INCOMPLETE = NEW_CHANNELS = ("absent", "incomplete")


@dataclass(frozen=True)
class TableTouched:
    """The numbers of one table's rows in an epoch.

    Attributes:
        reads: rows that a copy read; they are not in ``inserts``.
        incomplete: a copy of the table runs, so rows of it may be missing downstream.
        new_channels: what a channel has of the table that began with the copy for new channels that runs: ``ABSENT``
            or ``INCOMPLETE``; empty if none runs, or such a channel has what all have.
    """

    db: str
    table: str
    fingerprint: str
    inserts: int
    updates: int
    deletes: int
    reads: int = 0
    incomplete: bool = field(default=False, kw_only=True)
    new_channels: str = field(default="", kw_only=True)

    @property
    def rows(self) -> int:
        """The number of all of them."""
        return self.inserts + self.updates + self.deletes + self.reads


@dataclass(frozen=True)
class StructureVersion:
    """A structure of a table, valid from ``epoch`` until the table's next version."""

    epoch: int
    db: str
    table: str
    fingerprint: str
    structure: str
    avro_schema: str

    @property
    def topic_key(self) -> bytes:
        """The key in ``<prefix>.schemas``; each version has its own, so compaction never removes one."""
        # If images lack columns, one epoch may have several versions.
        which = "" if has_full_images(self.structure) else f"#{self.fingerprint}"
        return f"{self.db}.{self.table}@{self.epoch}{which}".encode()


@dataclass(frozen=True)
class TableChanged:
    """One table of a DDL statement; ``renamed_to`` is set for RENAME."""

    db: str
    table: str
    renamed_to_db: str | None = None
    renamed_to: str | None = None
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True)
class SchemaChanged:
    """A DDL statement with the upstream session's settings that change its meaning.

    Attributes:
        settings: more of them, by the names of the server's variables and as text; only those that the event
            has. Collations are ids; ``microseconds`` belong to ``timestamp``.
    """

    statement: str
    default_db: str
    kind: str
    tables: tuple[TableChanged, ...]
    source_flavor: Flavor
    timestamp: int
    sql_mode: int | None = None
    charset_client: int | None = None
    collation_connection: int | None = None
    collation_server: int | None = None
    time_zone: str | None = None
    explicit_defaults_for_timestamp: bool | None = None
    foreign_key_checks: bool = True
    unique_checks: bool = True
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def mode(self) -> int:
        """The bits of ``sql_mode``; 0 if the event has none."""
        return self.sql_mode or 0

    @property
    def shown(self) -> str:
        """The statement for logs and audit; only the kind for statements on accounts, which may contain passwords."""
        return self.kind if family(self.kind) == "accounts" else self.statement


@dataclass(frozen=True)
class PreparedTransaction:
    """A prepared, undecided XA transaction, and its position in the relay log: ``[relay_pos, relay_end)``."""

    xid: str
    gtid: str | None
    relay_dir: str
    relay_file: str
    relay_pos: int
    relay_end: int


@dataclass(frozen=True)
class Skipped:
    """Events of one table that could not be replicated, and that a rule of the producer skipped."""

    db: str
    table: str
    kind: str
    events: int


#: the steps of a copy, in their order; ``rows`` may occur any number of times
BEGIN, ROWS, END = COPY_STEPS = ("begin", "rows", "end")


@dataclass(frozen=True)
class CopyStep:
    """The step of a table's copy that an epoch is. The fields are described in ``epoch.avsc``."""

    copy: str
    db: str
    table: str
    step: str
    again: bool = False
    lower: str | None = None
    upper: str | None = None
    upstream_rows: int = 0


@dataclass(frozen=True)
class CompleteCopy:
    """A copy of everything begins or has come to its end. The fields are described in ``epoch.avsc``."""

    copy: str
    ended: bool


def operations_of(epochs: Iterable[EpochCommitted]) -> Counter[str]:
    """Return the numbers of rows by what happened to them: insert, update, delete, copy."""
    found: Counter[str] = Counter()
    for table in (table for epoch in epochs for table in epoch.tables):
        found["insert"] += table.inserts
        found["update"] += table.updates
        found["delete"] += table.deletes
        found["copy"] += table.reads
    return found


@dataclass(frozen=True)
class EpochCommitted:
    """One epoch. The fields are described in ``epoch.avsc``. Positions are the end of the epoch."""

    epoch: int
    first_gtid: str | None
    last_gtid: str | None
    executed_gtids: str
    source_id: str
    source_file: str
    source_pos: int
    relay_dir: str
    relay_file: str
    relay_pos: int
    ranges: tuple[OffsetRange, ...]
    tables: tuple[TableTouched, ...]
    structures: tuple[StructureVersion, ...]
    ddl: SchemaChanged | None
    rows: int
    transactions: int
    digest: int
    first_commit_ms: int
    last_commit_ms: int
    published_ms: int
    prepared: tuple[PreparedTransaction, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    names_in_lower_case: bool = False
    log_id: str = ""
    origins: tuple[str, ...] = ()
    log_begins: str | None = None
    copy: CopyStep | None = None
    copying: bool = False
    complete: CompleteCopy | None = None
    for_new_channels: bool = False
    complete_ms: int = 0
    runs: tuple[RowRun, ...] = ()

    @property
    def is_quiet(self) -> bool:
        """Whether it only says until when the log is complete."""
        content = self.transactions, self.rows, self.ddl, self.copy, self.complete, self.structures
        return self.complete_ms > 0 and not any(content)

    @property
    def ends_copy(self) -> bool:
        """Whether a complete copy has come to its end here."""
        return self.complete is not None and self.complete.ended

    def encode(self) -> bytes:
        """Encode its record in the epochs topic."""
        settings = dict(self.ddl.settings) if self.ddl else {}
        return EPOCH_RECORD.encode(_plain(self) | {"ddl_settings": settings})

    @classmethod
    def decode(cls, data: bytes) -> EpochCommitted:
        """Decode what ``encode`` wrote. The values of the fields are checked in ``schemas.wire.log_records``.

        Raises:
            OtherSchema: the record has another schema.
            ValueError, LookupError, EOFError, TypeError: the bytes are not one epoch.
        """
        record = EPOCH_RECORD.decode(data)
        record["ranges"] = tuple(OffsetRange(**r) for r in record["ranges"])
        record["tables"] = tuple(TableTouched(**t) for t in record["tables"])
        record["structures"] = tuple(StructureVersion(**s) for s in record["structures"])
        settings = tuple(record.pop("ddl_settings").items())
        if record["ddl"] is not None:
            ddl = record["ddl"] | {"settings": settings}
            ddl["tables"] = tuple(TableChanged(**t) for t in ddl["tables"])
            record["ddl"] = SchemaChanged(**ddl)
        record["prepared"] = tuple(PreparedTransaction(**p) for p in record["prepared"])
        record["origins"] = tuple(record["origins"])
        record["skipped"] = tuple(Skipped(**s) for s in record["skipped"])
        record["runs"] = tuple(
            RowRun(r["rows"], r["digest"], tuple(OffsetRange(**part) for part in r["ranges"]))
            for r in record["runs"]
        )
        if record["copy"] is not None:
            record["copy"] = CopyStep(**record["copy"])
        if record["complete"] is not None:
            record["complete"] = CompleteCopy(**record["complete"])
        return cls(**record)


def _plain(value: Any) -> Any:
    """Records as dictionaries, in a fifth of the time of ``asdict``, which copies each value."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(one) for name, one in vars(value).items()}
    return value


def encode_structure_version(version: StructureVersion) -> bytes:
    """Encode a version's record in ``<prefix>.schemas``."""
    return STRUCTURE_RECORD.encode(asdict(version))


def decode_structure_version(data: bytes) -> StructureVersion:
    """Decode a record of ``<prefix>.schemas``. Raises like ``EpochCommitted.decode``."""
    version = StructureVersion(**STRUCTURE_RECORD.decode(data))
    # The last field is a text, and fastavro accepts one that is too short.
    if encode_structure_version(version) != data:
        raise ValueError("it has a wrong length")
    return version
