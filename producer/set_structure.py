"""Publishes a table's structure that an operator specifies, as an epoch of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from producer.kafka.epoch_log import EpochLog
from producer.mirror.start import check_history
from producer.run import ProducerConfig
from producer.structures.forms import predicted
from producer.structures.interpret import created as created_table
from producer.structures.store import BinlogPosition, Later, encode_entry, loaded_entry, topic_key
from producer.upstream.connect import describe
from relay_store.layout.directory import file_number
from relay_store.write.writer import RelayWriter
from schemas.ddl.column_types import DdlContext, in_charset
from schemas.ddl.cursor import Unparsable
from schemas.ddl.lexer import Flavor, LexError
from schemas.ddl.table_definition import ColumnDefinition, TableDefinition
from schemas.errors import ConfigError, Where
from schemas.letter_case import lowered
from schemas.tables import QualifiedName
from schemas.wire.avro_schema import row_schema
from schemas.wire.epoch import EpochCommitted, StructureVersion


def set_structure(
    config: ProducerConfig, name: QualifiedName, file: Path, at: tuple[str, int] | None
) -> EpochCommitted:
    """Set a table's structure from the producer's position on, or from a later position of the upstream's binlog.

    Args:
        file: a file with the CREATE TABLE statement.
        at: binlog file and position; None for the producer's position.

    Returns:
        the published epoch.

    Raises:
        ConfigError: TR112, the file has no valid CREATE TABLE, or there is no log yet.
        RelayError: TR301, a producer is running on the relay directory.
        UpstreamError, LogError: the upstream or Kafka cannot be read or written.
    """
    upstream = describe(config.source)
    flavor = upstream.flavor
    if upstream.folds:
        name = (lowered(name[0]), lowered(name[1]))
    table = _table(file, name, flavor)
    with closing(RelayWriter.open(config.relay.dir)):
        log = EpochLog(config.bootstrap_servers, config.prefix, config.partitions, config.kafka_security)
        state = log.open()
        last = state.last_epoch
        if last is None:
            raise ConfigError("TR112", "there is no log yet", hint="start `tailrace produce` once")
        check_history(config.source, upstream, last, f"the epoch log of {config.prefix}")
        position = BinlogPosition(last.source_id, file_number(at[0]), at[1]) if at else None
        here = BinlogPosition(last.source_id, file_number(last.source_file), last.source_pos)
        if position is not None and here.reached(position):
            position = None
        records = _structure_records(state.tracked, name, table, position)
        published = position is None and not config.schema_registry_url
        versions = _versions(last.epoch + 1, name, table, flavor) if published else ()
        log.begin()
        return log.commit(lambda ranges, digest, runs: _epoch(last, versions), records)


def _table(file: Path, name: QualifiedName, flavor: Flavor) -> TableDefinition:
    hint = "write the CREATE TABLE statement as SHOW CREATE TABLE prints it, with character sets"
    try:
        return created_table(file.read_text(), DdlContext(flavor, name[0], 0, True))
    except (OSError, UnicodeDecodeError, Unparsable, LexError) as error:
        raise ConfigError(
            "TR112", f"{file}: {error}", where=Where(table=".".join(name)), hint=hint
        ) from error


def _structure_records(
    stored: Mapping[bytes, bytes],
    name: QualifiedName,
    table: TableDefinition,
    position: BinlogPosition | None,
) -> tuple[tuple[bytes, bytes], ...]:
    """The records that state a table's structure.

    Args:
        stored: the records as they are.
        position: valid from here on; None: from the end of the log.
    """
    database = stored.get(topic_key(name[0]))
    table = _with_default(table, json.loads(database) if database else None)
    old = stored.get(topic_key(*name))
    now, later = loaded_entry(old) if old else (None, None)
    if position is None:
        record = encode_entry(table, later)
    else:
        record = encode_entry(now, Later(position, position, table))
    return ((topic_key(*name), record),)


def _with_default(table: TableDefinition, charset: str | None) -> TableDefinition:
    """What names no character set is in that of its database."""
    if table.charset is not None or charset is None:
        return table

    def column(old: ColumnDefinition) -> ColumnDefinition:
        return in_charset(replace(old, charset=charset)) if old.charset is None else old

    return replace(table.with_columns(column), charset=charset)


def _versions(
    epoch: int, name: QualifiedName, table: TableDefinition, flavor: Flavor
) -> tuple[StructureVersion, ...]:
    structure = predicted(*name, table, flavor)
    if structure is None:
        return ()
    schema = row_schema(structure)
    return (StructureVersion(epoch, *name, schema.fingerprint.hex(), structure.to_json(), schema.text),)


def _epoch(last: EpochCommitted, versions: tuple[StructureVersion, ...]) -> EpochCommitted:
    """Return an epoch without transactions, at the position where the last one ended."""
    return replace(
        last,
        epoch=last.epoch + 1,
        first_gtid=None,
        last_gtid=None,
        ranges=(),
        tables=(),
        structures=versions,
        ddl=None,
        rows=0,
        transactions=0,
        digest=0,
        published_ms=time.time_ns() // 1_000_000,
    )
