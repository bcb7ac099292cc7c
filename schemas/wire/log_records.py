"""Decodes and checks records of the log's topics; errors have topic, partition and offset.

Only the producer writes these topics, but any user with write access to Kafka can write anything there, and the
values become parts of paths, offsets, code and SQL. So every record is read by these functions:

- ``read_epoch`` and ``read_version``: a record's bytes are exactly one value, and each field has an allowed value;
- ``structure_of``: a structure has the record's fingerprint;
- ``EpochChain``: an epoch can follow the one before it;
- ``epochs_of``, ``last_epoch_of``, ``versions_of``: all of these, over the records of a topic.
"""

from __future__ import annotations

import json
import re
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

from schemas import names
from schemas.ddl.classify import classify
from schemas.ddl.kinds import Category
from schemas.ddl.lexer import FLAVORS, Flavor
from schemas.errors import DecodeError, LogError, Where
from schemas.gtid.sets import GtidSet, flavor_of, parse_gtid_set
from schemas.structure import TableStructure
from schemas.wire.avro_schema import avro_name, row_schema
from schemas.wire.epoch import (
    BEGIN,
    COPY_STEPS,
    DIGEST_MODULUS,
    EPOCH_KEY,
    INCOMPLETE,
    NEW_CHANNELS,
    ROWS,
    CopyStep,
    EpochCommitted,
    OffsetRange,
    OtherSchema,
    PreparedTransaction,
    SchemaChanged,
    StructureVersion,
    TableTouched,
    decode_structure_version,
)

if TYPE_CHECKING:
    from schemas.access.topic import Record

#: the hint of errors about records that the producer cannot have written
FOREIGN = "only the producer may write to the prefix's topics: find out who else can; nothing of the record was applied"
#: the hint of an error about a record with another schema
OTHER_VERSION = (
    "run the version that wrote this log, or start a new log with this one; nothing of the record was applied"
)
_HEX = re.compile(r"[0-9a-f]{16}|[0-9a-f]{8}")
_XID = re.compile(r"X'[0-9a-f]*',X'[0-9a-f]*',[0-9]{1,10}")
_NUMBER = re.compile(r"[0-9]{1,20}")
_PAIRS = re.compile(r"[0-9]{1,5}=[0-9]{1,5}(,[0-9]{1,5}=[0-9]{1,5})*")
_WORDS = re.compile(r"[^\0]{0,512}", re.DOTALL)
# Other settings are not used.
_SETTINGS = {
    **dict.fromkeys(
        (
            *("lc_time_names", "microseconds", "default_collation_for_utf8mb4", "sql_require_primary_key"),
            *("default_table_encryption", "auto_increment_increment", "auto_increment_offset"),
            "innodb_strict_mode",
        ),
        _NUMBER,
    ),
    **dict.fromkeys(("invoker_user", "invoker_host"), _WORDS),
    "character_set_collations": _PAIRS,
    "default_storage_engine": re.compile(r"\w{1,64}"),
}
_LATEST_MS = 253_402_300_799_999  # the end of the year 9999
_FIRST_POSITION = 4
# Characters. Servers allow 64; a TABLE_MAP can have up to 255 bytes.
_LONGEST_NAME = 255
# Servers allow keys of 3,072 bytes; a literal may have several characters for each.
_LONGEST_BOUND = 1 << 16
_KEY_COLUMNS = 32


@dataclass(frozen=True)
class At:
    """The position of a record."""

    topic: str
    offset: int
    partition: int = 0

    def __str__(self) -> str:
        return f"topic {self.topic}, partition {self.partition}, offset {self.offset}"


@dataclass(frozen=True)
class LoggedVersion(StructureVersion):
    """A structure's record of ``<prefix>.schemas``, and its position."""

    at: At = At("", -1)


def no_record(at: At | None, what: str, why: object, where: Where = Where()) -> LogError:  # noqa: B008
    """Build the error TR568 for a record that the producer of this version cannot have written."""
    place = f"{at}: " if at else ""
    hint = OTHER_VERSION if isinstance(why, OtherSchema) else FOREIGN
    return LogError("TR568", f"{place}{what}: {str(why)[:500] or type(why).__name__}", where=where, hint=hint)


def read_epoch(value: bytes | None, at: At, key: bytes | None = EPOCH_KEY) -> EpochCommitted:
    """Read and check a record of the epochs topic. Raises LogError TR568."""
    epoch: EpochCommitted | None = None
    try:
        if not value or key != EPOCH_KEY:
            raise ValueError("it is empty" if not value else f"its key is {key!r}")
        epoch = EpochCommitted.decode(value)
        _check_epoch(epoch)
    except UNFIT as error:
        where = Where() if epoch is None else Where(epoch=epoch.epoch)
        raise no_record(at, "the record is not an epoch", error, where) from error
    return epoch


def read_version(value: bytes | None, at: At, key: bytes | None) -> LoggedVersion:
    """Read and check a record of the schemas topic; its structure is checked on use, by ``structure_of``.

    Raises LogError TR568.
    """
    try:
        if not value:
            raise ValueError("it is empty")
        found = decode_structure_version(value)
        if key != found.topic_key:
            raise ValueError(f"its key is {key!r}")
        _check_version(found)
    except UNFIT as error:
        raise no_record(at, "the record is not a table's structure", error) from error
    return LoggedVersion(**{field.name: getattr(found, field.name) for field in fields(found)}, at=at)


def check_names(versions: Iterable[LoggedVersion]) -> list[LoggedVersion]:
    """Check that each fingerprint belongs to one structure; returns the versions. Raises LogError TR568."""
    found = list(versions)
    known: dict[str, LoggedVersion] = {}
    for version in found:
        first = known.setdefault(version.fingerprint, version)
        if first.structure != version.structure:
            why = f"{version.fingerprint} belongs to another one at offset {first.at.offset}"
            raise no_record(version.at, f"a structure of {version.db}.{version.table}", why)
    return found


#: exceptions of reading bytes that are not a record, and of impossible values
UNFIT = (
    ValueError,
    LookupError,
    TypeError,
    EOFError,
    StopIteration,
    OverflowError,
    RecursionError,
    struct.error,
    DecodeError,
)


def structure_of(version: StructureVersion, at: At | None = None) -> TableStructure:
    """Read the structure of a record, and check it by its fingerprint, if that is not an id of a registry.

    Args:
        at: the position of the epoch's record that contains it; a ``LoggedVersion`` has its own.

    Raises:
        LogError: TR568.
    """
    try:
        return _structure(
            version.db, version.table, version.fingerprint, version.structure, version.avro_schema
        )
    except UNFIT as error:
        at = version.at if isinstance(version, LoggedVersion) else at
        where = Where(table=f"{version.db}.{version.table}", epoch=version.epoch)
        raise no_record(at, f"the structure {version.fingerprint} is not valid", error, where) from error


#: reads a structure's text, as ``TableStructure.from_json``; the same tables are in most epochs, and what is compiled
#: for a structure is found sooner by the same object
parsed_structure = lru_cache(maxsize=4096)(TableStructure.from_json)


@lru_cache(maxsize=4096)
def _structure(db: str, table: str, fingerprint: str, text: str, avro_schema: str) -> TableStructure:
    structure = parsed_structure(text)
    if (structure.db, structure.table) != (db, table):
        raise ValueError(f"it is of {structure.name}")
    schema = row_schema(structure)
    if schema.text != avro_schema:
        raise ValueError("its Avro schema belongs to another structure")
    if len(fingerprint) == _LONG_NAME and schema.fingerprint.hex() != fingerprint:
        raise ValueError(f"its fingerprint is {schema.fingerprint.hex()}")
    return structure


_LONG_NAME = 16  # hexadecimal digits of a fingerprint


# fields ---------------------------------------------------------------------------------------------


def _check_version(version: StructureVersion) -> None:
    _need(version.epoch >= 0, "its epoch is negative")
    _check_table(version.db, version.table)
    _check_fingerprint(version.fingerprint)
    digest = blake2b(version.structure.encode(), digest_size=8).hexdigest()
    namespace = f"{avro_name(version.db)}.{avro_name(version.table)}.s{digest}"
    head = f'{{"type":"record","name":"Envelope","namespace":{json.dumps(namespace)},'
    _need(version.avro_schema.startswith(head), "structure and Avro schema are not of one table")


def _check_epoch(epoch: EpochCommitted) -> None:
    _need(epoch.epoch >= 0, "its number is negative")
    _check_place(epoch)
    executed = _set(epoch.executed_gtids, flavor_of(epoch.executed_gtids, epoch.last_gtid or ""))
    for gtid in filter(None, (epoch.first_gtid, epoch.last_gtid)):
        _need(executed.contains(gtid), f"{gtid[:100]} is not in what it says is executed")
    for moment in (epoch.first_commit_ms, epoch.last_commit_ms, epoch.published_ms, epoch.complete_ms):
        _need(0 <= moment <= _LATEST_MS, f"{moment} is no time")
    _need(0 <= epoch.digest < DIGEST_MODULUS, f"{epoch.digest} is no digest")
    _check_counts(epoch)
    for version in epoch.structures:
        _check_version(version)
        _need(
            version.epoch == epoch.epoch, f"the structure of {version.db}.{version.table} is another epoch's"
        )
    if epoch.ddl is not None:
        _check_ddl(epoch.ddl)
    _check_copy(epoch)
    if epoch.complete is not None:
        _need(names.is_uuid(epoch.complete.copy), f"{epoch.complete.copy[:100]!r} is no id of a copy")
        is_empty = not epoch.transactions and not epoch.rows and epoch.ddl is None and epoch.copy is None
        _need(is_empty, "it is where a complete copy begins or ends, and has changes")
    if epoch.for_new_channels:
        _need(not epoch.transactions, "it is of a copy for new channels, and has transactions")
    begins = epoch.log_begins
    is_begin = epoch.epoch == 0 and len(begins or "") <= _LONGEST_NAME and (begins or "").isprintable()
    _need(begins is None or is_begin, f"it says that the log begins there: {(begins or '')[:100]!r}")
    for prepared in epoch.prepared:
        _check_prepared(prepared)
    for skipped in epoch.skipped:
        _check_table(skipped.db, skipped.table)
        _need(skipped.events > 0 and skipped.kind.isprintable(), "it skipped what cannot be")


def _check_place(epoch: EpochCommitted) -> None:
    names.server_uuid(epoch.source_id)
    source, number = names.binlog_file(epoch.source_file)
    file, same, offset = names.relay_file(epoch.relay_file)
    _need((file, same) == (source, number), f"{epoch.relay_file} is no part of {source}")
    _need(epoch.relay_pos >= _FIRST_POSITION, f"its relay position is {epoch.relay_pos}")
    _need(epoch.source_pos == epoch.relay_pos + offset, "its two positions are not one")
    _need(names.relay_subdir(epoch.relay_dir)[0] == epoch.source_id, f"{epoch.relay_dir} is another server's")
    ids = (*filter(None, (epoch.log_id,)), *epoch.origins)
    _need(all(map(names.is_uuid, ids)), "it comes from a log or a server whose id is no UUID")


def _check_counts(epoch: EpochCommitted) -> None:
    for table in epoch.tables:
        _check_table(table.db, table.table)
        _check_fingerprint(table.fingerprint)
        counts = (table.inserts, table.updates, table.deletes, table.reads)
        _need(min(counts) >= 0, f"it has {counts} rows of {table.db}.{table.table}")
    _need(epoch.transactions >= 0, f"it has {epoch.transactions} transactions")
    _check_ranges(epoch.ranges)
    _need(epoch.rows >= 0, f"it has {epoch.rows} rows")
    if epoch.runs:
        _check_runs(epoch)


def _check_ranges(ranges: Iterable[OffsetRange]) -> None:
    before = OffsetRange(-1, 0, 0)
    for part in ranges:
        _need(
            part.partition > before.partition, f"partition {part.partition} is there twice, or out of order"
        )
        _need(
            0 <= part.start < part.end,
            f"its offsets of partition {part.partition} are {part.start} to {part.end}",
        )
        before = part


def _check_runs(epoch: EpochCommitted) -> None:
    ends = {part.partition: part.start for part in epoch.ranges}
    for run in epoch.runs:
        _check_ranges(run.ranges)
        records = sum(part.end - part.start for part in run.ranges)
        _need(0 < run.rows <= records, f"it has a run of {run.rows} rows at {records} offsets")
        for part in run.ranges:
            _need(
                ends.get(part.partition) == part.start,
                f"a run of its rows begins at offset {part.start} of partition {part.partition}",
            )
            ends[part.partition] = part.end
    all_of_it = {part.partition: part.end for part in epoch.ranges}, epoch.rows, epoch.digest
    rows, digest = (sum(getattr(run, name) for run in epoch.runs) for name in ("rows", "digest"))
    _need((ends, rows, digest % DIGEST_MODULUS) == all_of_it, "the runs of its rows are not all of them")


def _check_copy(epoch: EpochCommitted) -> None:
    copy, ddl = epoch.copy, epoch.ddl
    if copy is None:
        _need(not any(table.reads for table in epoch.tables), "it has rows of a copy, and is not a copy's")
    else:
        _check_copy_step(copy)
        _need(
            not (epoch.transactions or epoch.first_gtid or epoch.last_gtid),
            "it has transactions, and is a copy's",
        )
        _need(
            bool(ddl) == (copy.step == BEGIN), f"it is the step {copy.step} of a copy with another statement"
        )
        if ddl is not None:
            one = [(table.db, table.table) for table in ddl.tables] == [(copy.db, copy.table)]
            _need(one and ddl.kind == "CREATE TABLE", "a copy begins with the statement of another table")
        for table in epoch.tables:
            _need(
                copy.step == ROWS and table.rows == table.reads and _lacks_rows(table, epoch),
                f"it has other rows of {table.db}.{table.table} than a copy's step {copy.step} can have",
            )
            _need(
                (table.db, table.table) == (copy.db, copy.table), "it has rows of another table than its copy"
            )
    states = {(table.db, table.table): (table.incomplete, table.new_channels) for table in epoch.tables}
    for table in epoch.tables:
        _need(table.new_channels in ("", *NEW_CHANNELS), f"a table of it is {table.new_channels[:40]!r}")
        _need(not (table.incomplete and table.new_channels), "two copies of a table of it run")
        is_one = states[table.db, table.table] == (table.incomplete, table.new_channels)
        _need(is_one, "a table of it is incomplete and is not")


def _lacks_rows(table: TableTouched, epoch: EpochCommitted) -> bool:
    """Whether a copy's epoch says that its table is incomplete for those who apply it."""
    return table.new_channels == INCOMPLETE if epoch.for_new_channels else table.incomplete


def _check_copy_step(copy: CopyStep) -> None:
    _need(names.is_uuid(copy.copy), f"{copy.copy[:100]!r} is no id of a copy")
    _check_table(copy.db, copy.table)
    _need(copy.step in COPY_STEPS, f"{copy.step[:40]!r} is no step of a copy")
    _need(copy.upstream_rows >= 0, f"a copy of {copy.upstream_rows} rows begins")
    for bound in (copy.lower, copy.upper):
        if bound is not None:
            _need(copy.step == ROWS, f"the step {copy.step} of a copy has keys")
            _check_bound(bound)


def _check_bound(bound: str) -> None:
    _need(len(bound) <= _LONGEST_BOUND, f"a chunk ends at a key of {len(bound)} characters")
    literals = json.loads(bound)
    fits = isinstance(literals, list) and 0 < len(literals) <= _KEY_COLUMNS
    _need(fits and all(isinstance(one, str) and one for one in literals), f"{bound[:100]!r} is no key")


def check_rows(epoch: EpochCommitted, offset: int | None = None) -> None:
    """Check that an epoch's offsets can contain its rows; ``offset`` is its own. Raises LogError TR554."""
    of_tables = sum(table.rows for table in epoch.tables)
    records = sum(part.end - part.start for part in epoch.ranges)
    if epoch.rows != of_tables:
        why = f"its tables have {of_tables} rows, and it {epoch.rows}"
    elif epoch.rows > records or bool(epoch.ranges) != bool(epoch.rows) or (not epoch.rows and epoch.digest):
        why = f"{epoch.rows} rows with the digest {epoch.digest} cannot lie at {records} offsets"
    else:
        return
    at = "" if offset is None else f", at offset {offset} of the epochs topic"
    raise LogError("TR554", f"epoch {epoch.epoch}{at}: {why}", where=Where(epoch=epoch.epoch), hint=FOREIGN)


def _check_ddl(ddl: SchemaChanged) -> None:
    _need(ddl.source_flavor in FLAVORS, f"{ddl.source_flavor[:40]!r} is no kind of server")
    _need(0 <= ddl.timestamp <= _LATEST_MS, f"{ddl.timestamp} is no time")
    _need(ddl.sql_mode is None or ddl.sql_mode >= 0, f"{ddl.sql_mode} is no sql_mode")
    for collation in (ddl.charset_client, ddl.collation_connection, ddl.collation_server):
        _need(collation is None or 0 <= collation < 1 << 16, f"{collation} is no collation")
    zone = ddl.time_zone or ""
    _need(len(zone) <= _LONGEST_NAME and (zone.isprintable()), f"{zone[:40]!r} is no time zone")
    for name, value in ddl.settings:
        fits = _SETTINGS.get(name, _WORDS).fullmatch(value) is not None
        _need(fits, f"the setting {name[:40]!r} is {value[:40]!r}")
    for table in ddl.tables:
        _check_name(table.db, empty=True)
        _check_name(table.table, empty=True)
        for renamed in (table.renamed_to_db, table.renamed_to):
            _need(renamed is None or len(renamed) <= _LONGEST_NAME, "a table is renamed to what is no name")
    _check_name(ddl.default_db, empty=True)
    flavor = ddl.source_flavor
    found = classify(ddl.statement, ddl.default_db, flavor, sql_mode=ddl.mode)
    is_ddl = found.category in (Category.DDL, Category.OBJECT)
    _need(is_ddl and found.kind == ddl.kind, f"its statement is no {ddl.kind[:40]}")
    named, said = (
        [(t.db, t.table, t.renamed_to_db or t.db, t.renamed_to) for t in one.tables] for one in (ddl, found)
    )
    _need(named == said, "its statement is on other tables")


def _check_prepared(prepared: PreparedTransaction) -> None:
    _need(_XID.fullmatch(prepared.xid) is not None, f"{prepared.xid[:100]!r} is no XID")
    if prepared.gtid is not None:
        _set(prepared.gtid, flavor_of(prepared.gtid))
    names.relay_subdir(prepared.relay_dir)
    names.relay_file(prepared.relay_file)
    _need(_FIRST_POSITION <= prepared.relay_pos < prepared.relay_end, f"{prepared.xid} lies nowhere")


def _check_table(db: str, table: str) -> None:
    _check_name(db)
    _check_name(table)


def _check_name(name: str, *, empty: bool = False) -> None:
    fits = (empty or bool(name)) and len(name) <= _LONGEST_NAME and "\0" not in name
    _need(fits, f"{name[:100]!r} is no name")


def _check_fingerprint(text: str) -> None:
    _need(_HEX.fullmatch(text) is not None, f"{text[:40]!r} is no fingerprint")


def _need(fits: bool, what: str) -> None:
    if not fits:
        raise ValueError(what)


@lru_cache(maxsize=64)
def _set(text: str, flavor: Flavor) -> GtidSet:
    return parse_gtid_set(text, flavor)


# sequences of records -------------------------------------------------------------------------------


class EpochChain:
    """Epochs in the order of the log, each compared with those before it.

    Args:
        topic: of the epochs.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._last: EpochCommitted | None = None
        self._offset = -1
        self._ends: dict[int, int] = {}

    def add(self, epoch: EpochCommitted, offset: int) -> None:
        """Add the next epoch.

        Raises:
            LogError: TR551 one is missing; TR567 it contradicts them.
        """
        if self._last is not None:
            if epoch.epoch > self._last.epoch + 1:
                raise missing(self._last.epoch + 1, epoch.epoch)
            try:
                self._follows(self._last, epoch)
            except ValueError as error:
                raise LogError(
                    "TR567",
                    f"{At(self._topic, offset)}: epoch {epoch.epoch} cannot follow epoch {self._last.epoch} at"
                    f" offset {self._offset}: {error}",
                    where=Where(epoch=epoch.epoch),
                    hint=FOREIGN,
                ) from error
        self._last, self._offset = epoch, offset
        self._ends |= {part.partition: part.end for part in epoch.ranges}

    def _follows(self, last: EpochCommitted, epoch: EpochCommitted) -> None:
        _need(epoch.epoch == last.epoch + 1, "its number exists already")
        _need(epoch.log_id == last.log_id, "it belongs to another log")
        for part in epoch.ranges:
            end = self._ends.get(part.partition, 0)
            _need(
                part.start >= end,
                f"its rows of partition {part.partition} start at offset {part.start}, but earlier ones end at {end}",
            )
        if epoch.executed_gtids != last.executed_gtids:
            _need(epoch.copy is None, "it is a copy's, and executes transactions")
            flavor = flavor_of(epoch.executed_gtids, last.executed_gtids)
            now, before = _set(epoch.executed_gtids, flavor), _set(last.executed_gtids, flavor)
            _need(now.contains(before), f"{str(before.minus(now))[:200]} is no longer executed")
        # An epoch without transactions may be at the present position of a relay log that was created again.
        if epoch.relay_dir == last.relay_dir and epoch.transactions:
            here, there = ((*names.relay_file(one.relay_file)[1:], one.relay_pos) for one in (epoch, last))
            _need(here >= there, f"it ends at {epoch.relay_file}:{epoch.relay_pos}, before that one")


def epochs_of(records: Iterable[Record], topic: str) -> Iterator[tuple[int, EpochCommitted]]:
    """Yield offset and epoch of each record of an epochs topic.

    Raises LogError: TR568 a record is not an epoch; TR551 and TR567 it cannot follow the one before it.
    """
    chain = EpochChain(topic)
    for offset, key, value in records:
        epoch = read_epoch(value, At(topic, offset), key)
        chain.add(epoch, offset)
        yield offset, epoch


def last_epoch_of(
    read: Callable[[int], Iterable[Record]], topic: str, low: int, high: int
) -> tuple[int, EpochCommitted] | None:
    """Return offset and epoch of the last record between two offsets; ``read`` reads the records from an offset on."""
    # Transaction markers use offsets, so the last record is a little before the end.
    step = 8
    while high > low:
        start = max(low, high - step)
        if found := deque(epochs_of(read(start), topic), maxlen=1):
            return found[0]
        if start == low:
            break
        step *= 8
    return None


def versions_of(records: Iterable[Record], topic: str) -> list[LoggedVersion]:
    """Read the structures of a schemas topic, in its order. Raises LogError TR568."""
    return check_names(read_version(value, At(topic, offset), key) for offset, key, value in records)


def missing(number: int, found: int) -> LogError:
    """Build the error TR551 for a missing epoch."""
    return LogError(
        "TR551",
        f"epoch {number} is missing: the log continues with epoch {found}",
        where=Where(epoch=number),
        hint="the log was truncated or belongs to another producer; restore it, or load the tables again",
        another_start=True,
    )
