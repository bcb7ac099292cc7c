"""Applies an upstream's binlog to a downstream without relay log, Kafka and Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from zlib import crc32

from compose.databases import Database
from producer.epochs.open_epoch import OpenEpoch, Records
from schemas.structure import TableStructure
from schemas.tables import TableFilter
from schemas.wire.epoch import EpochCommitted, TableChanged
from spark_consumer.epochs.slices import LoggedEpoch, Slice
from spark_consumer.sinks.server import ServerSink
from tailrace.recover.applied_log import RecordRows
from tests.support.applying.apply_steps import open_channel_sink
from tests.support.binlogs.decoder import NOW, new_decoder, run
from tests.support.epochs.records import epoch_record
from tests.support.processes.child import in_child

_MAGIC = 4
#: an epoch's record as it goes through the log, and its rows
Epoch = tuple[EpochCommitted, Records]


def epochs_since(
    server: Database,
    begin: tuple[str, int],
    tables: TableFilter | None = None,
    *,
    accounts: bool = False,
    number: int = 0,
) -> list[Epoch]:
    """Return the events after ``begin``, in the same file, as epochs from ``number`` on, encoded and decoded once."""
    file, at = begin
    data = (server.data / file).read_bytes()
    decoder = new_decoder(
        server.flavor,
        tables,
        root=server.data,
        accounts=accounts,
        engine_of=lambda change: _engine(server, change.tables[0]),
        number=number,
    )
    size = int.from_bytes(data[_MAGIC + 9 : _MAGIC + 13], "little")
    decoder.leave_file_for("", file)
    decoder.read_format(data[_MAGIC : _MAGIC + size], "", file)
    found: list[Epoch] = []
    while at < len(data):
        parts: list[Records] = []
        at = run(decoder, data, at, 0, parts.append)
        rows = _joined([*parts, decoder.state.epoch.records])
        found.append((_record(decoder.state.epoch, rows), rows))
        if decoder.state.in_group:
            at = decoder.state.group_start.pos
            decoder.state.groups.scanner.reset()
        decoder.end_epoch(NOW)
    return found


def _engine(server: Database, table: TableChanged) -> str | None:
    found = server.execute(
        f"SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = '{table.db}'"
        f" AND TABLE_NAME = '{table.table}'"
    )
    return found[0][0] if found else None


def _joined(parts: Sequence[Records]) -> Records:
    rows = Records()
    for part in parts:
        rows.keys += part.keys
        rows.values += part.values
        rows.headers |= part.headers
    return rows


def _record(epoch: OpenEpoch, rows: Records) -> EpochCommitted:
    made = epoch_record(
        epoch.number,
        rows=len(rows),
        ddl=epoch.ddl,
        executed=f"0-1-{epoch.number + 1}",
        transactions=epoch.transactions,
        tables=epoch.tables_touched((), {}),
        structures=tuple(epoch.structures),
    )
    made = replace(made, digest=sum(map(crc32, rows.values)))
    return EpochCommitted.decode(made.encode())


class Channel:
    """One channel of a downstream.

    Args:
        options: fields of ``ConsumerConfig``.
    """

    def __init__(self, target: Database, name: str, user: str = "tailrace", **options: Any) -> None:
        self._url, self._name, self._options = target.url(user), name, options

    def apply(self, epochs: Sequence[Epoch]) -> ServerSink:
        """Apply the epochs after the channel's position."""
        rows = RecordRows()
        sink, _ = open_channel_sink(self._url, self._name, rows, **self._options)
        structures: dict[str, TableStructure] = {}
        for number, (record, rows.records) in enumerate(epochs):
            structures |= {v.fingerprint: TableStructure.from_json(v.structure) for v in record.structures}
            if number > sink.position.epoch:
                sink.apply(sink.plan(Slice((LoggedEpoch(record, number),)), structures)())
        return sink

    def apply_until_it_dies(self, epochs: Sequence[Epoch], crash_at: str) -> int:
        """Apply in a child that dies at a crash point. Return its signal, 0 if it survived, -1 for an error."""
        return in_child(lambda: self.apply(epochs), crash_at)


def definitions(server: Database, *databases: str) -> dict[str, Any]:
    """Return SHOW CREATE of all objects in the databases, and the rows of their tables."""
    found: dict[str, Any] = {}
    with server.connect() as connection, connection.cursor() as cursor:

        def rows(query: str) -> list[Any]:
            cursor.execute(query)
            return list(cursor.fetchall())

        for db in databases:
            found[db] = rows(f"SHOW CREATE DATABASE `{db}`")
            for name, kind in rows(f"SHOW FULL TABLES FROM `{db}`"):
                full = f"`{db}`.`{name}`"
                found[full] = rows(f"SHOW CREATE TABLE {full}")
                if kind in ("BASE TABLE", "SYSTEM VERSIONED"):
                    found[f"rows of {full}"] = sorted(map(repr, rows(f"SELECT * FROM {full}")))
            programs = (
                f"SELECT ROUTINE_TYPE, ROUTINE_NAME FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = '{db}'"
                f" UNION ALL SELECT 'EVENT', EVENT_NAME FROM information_schema.EVENTS WHERE EVENT_SCHEMA = '{db}'"
            )
            for kind, name in rows(programs):
                found[f"{kind} {db}.{name}"] = rows(f"SHOW CREATE {kind} `{db}`.`{name}`")
    return found
