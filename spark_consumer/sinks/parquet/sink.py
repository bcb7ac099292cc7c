"""The sink for change files: a slice is a batch of files, which the position file commits."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.errors import ConfigError, DownstreamError, TailraceError
from schemas.structure import TableStructure
from schemas.tables import QualifiedName
from schemas.wire.epoch import SchemaChanged
from schemas.wire.rows import value_header, widened
from spark_consumer.ddl.translate import DdlRules
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.position import ChannelStart, Position
from spark_consumer.epochs.slices import Slice
from spark_consumer.epochs.start import channel_start, check_began, check_log
from spark_consumer.plan.counters import NOTHING_COUNTED, Applied, RowCounts
from spark_consumer.plan.plan import ApplyMode, SlicePlan, TablePlan, structures_of
from spark_consumer.plan.statements import Limits
from spark_consumer.rows.results import ArrowRows, Result
from spark_consumer.rows.slice_rows import SliceRows, verify
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.rules.event_filter import DML
from spark_consumer.rules.route import Router
from spark_consumer.sinks.parquet.changes import changes, file_columns
from spark_consumer.sinks.parquet.folder import (
    METADATA_DIR,
    Folder,
    directory_name,
    paused_since,
    read,
    refuse_without_position,
)


@dataclass(frozen=True)
class PreparedFiles:
    """A slice whose rows were read and verified.

    Attributes:
        streams: each table's rows as Arrow streams, in no order.
        row_counts: the counts of the stages.
    """

    slice_: Slice
    streams: Mapping[TablePlan, Sequence[bytes]]
    row_counts: RowCounts = NOTHING_COUNTED


class ParquetSink:
    """Writes a channel's changes into a folder of its own, which it locks until it is closed.

    Raises DownstreamError: TR680 to TR683, an error of the folder.
    """

    def __init__(self, config: ConsumerConfig, folder: Folder, content: dict[str, Any]) -> None:
        self._config = config
        self._rules = config.rules
        # DDL is written with the upstream's names, so routes cannot make it fail.
        self._ddl = DdlRules(self._rules.tables, self._rules.events, Router(()), config.ddl)
        self._folder, self._content = folder, content
        self._rows: SliceRows | None = None
        self.position = position_of(content)

    @classmethod
    def open(cls, config: ConsumerConfig, root: Path, first: ChannelStart | None = None) -> ParquetSink:
        """Lock the folder, and fence an earlier writer. Raises ConfigError, DownstreamError.

        Args:
            first: where a channel without a position starts; without it such a folder is an error.
        """
        if config.expressions:
            raise ConfigError(
                "TR136",
                "expression-filter is not supported for a folder target",
                hint="remove expression-filter from the channel; filters and routes are supported",
            )
        folder = Folder(root)
        folder.open()
        try:
            sink = cls(config, folder, _content(root, config, first))
            token = sink.position.fencing_token + 1
            sink._keep(replace(sink.position, fencing_token=token), consistent=False)
        except BaseException:
            folder.close()
            raise
        return sink

    def resume(self, rows: SliceRows) -> None:
        self._rows = rows

    def plan(self, slice_: Slice, structures: Mapping[str, TableStructure]) -> Callable[[], PreparedFiles]:
        plan = self._plan_tables(structures_of(slice_, structures), slice_.absent)
        return partial(self._read, slice_, plan)

    def _plan_tables(
        self, structures: Mapping[str, TableStructure], absent: Collection[QualifiedName]
    ) -> SlicePlan:
        tables = []
        for fingerprint, structure in sorted(structures.items()):
            name = structure.db, structure.table
            dropped = self._rules.events.dropped_dml(*name)
            wanted = self._rules.tables.allows(*name) and len(dropped) < len(DML) and name not in absent
            tables.append(
                TablePlan(
                    widened(value_header(bytes.fromhex(fingerprint))),
                    structure,
                    ApplyMode.ORDERED if wanted else ApplyMode.SKIP,
                    self._rules.router.table(*name),
                    dropped=dropped,
                )
            )
        return SlicePlan(tuple(tables), Limits(self._config.statement_rows))

    def _read(self, slice_: Slice, plan: SlicePlan) -> PreparedFiles:
        assert self._rows is not None
        results = self._rows.results(slice_, partial(changes, replace(plan, window=slice_.window)))
        verify(slice_, results)
        return PreparedFiles(slice_, streams_of(plan, results), RowCounts.of_plan(slice_, plan))

    def apply(self, prepared: PreparedFiles) -> Applied:
        slice_, before = prepared.slice_, self.position
        if slice_.is_applied(before):
            return Applied(0, prepared.row_counts)
        slice_.check_next(before)
        number = before.ledger_seq + 1
        files = self._stage(prepared, number)
        self._keep(replace(slice_.position_after(before), ledger_seq=number), consistent=False, files=files)
        return Applied(len(files), prepared.row_counts)

    def _stage(self, prepared: PreparedFiles, number: int) -> dict[str, str]:
        """Write the batch's files; return their final names."""
        names: list[str] = []
        listed: list[dict[str, Any]] = []
        for table, streams in sorted(prepared.streams.items(), key=lambda item: item[0].header):
            content = _in_order(table, streams)
            db, name = map(directory_name, table.target_name)
            digest = table.header.hex()[4:] if table.header[0] else table.header.hex()
            path = f"{db}/{name}/{number:012}-{digest}.parquet"
            with self._folder.staging(len(names)) as staged:
                pq.write_table(content, staged, compression="zstd", store_schema=False)
            names.append(path)
            listed.append({"file": path, "table": table.name, "rows": content.num_rows})
        slice_ = prepared.slice_
        records = [logged.record for logged in slice_.epochs]
        # The start of a copy changes no table.
        ddl = slice_.ddl if records[0].copy is None else None
        ddl = ddl if ddl is not None and self._ddl.is_replicated(ddl, lambda: ()) else None
        if ddl is not None:
            self._stage_json(
                names, f"{METADATA_DIR}/schema_changes/{number:012}.json", _change(prepared, ddl)
            )
        if any(record.transactions or record.rows for record in records):
            batch = {
                "number": number,
                "first_epoch": slice_.first.epoch,
                "last_epoch": slice_.last.epoch,
                "part": list(slice_.window) if slice_.window else None,
                "first_gtid": next((record.first_gtid for record in records if record.first_gtid), None),
                "last_gtid": next((r.last_gtid for r in reversed(records) if r.last_gtid), None),
                "executed_gtid_set": slice_.position_after(self.position).executed_gtids,
                "transactions": sum(record.transactions for record in records),
                "rows": slice_.rows,
                "digest": slice_.digest,
                "files": listed,
            }
            self._stage_json(names, f"{METADATA_DIR}/batches/{number:012}.json", batch)
        return {str(staged): name for staged, name in enumerate(names)}

    def _stage_json(self, names: list[str], name: str, content: Mapping[str, Any]) -> None:
        with self._folder.staging(len(names)) as staged:
            staged.write_text(json.dumps(content, ensure_ascii=False, indent=1))
        names.append(name)

    def paused_since(self) -> str | None:
        return paused_since(self._folder.root)

    def move_to(self, position: Position) -> None:
        self._keep(position, consistent=False)

    def abort(self) -> None:
        """Do nothing: this sink never waits for a server."""

    def record_end(self, error: TailraceError | None = None) -> None:
        if error is None:
            self._keep(self.position, consistent=True)

    def close(self) -> None:
        self._folder.close()

    def _keep(self, position: Position, *, consistent: bool, files: Mapping[str, str] | None = None) -> None:
        content = {**self._content, "consistent": consistent, "position": asdict(position)}
        self._folder.commit(content, files or {})
        self._content, self.position = content, position


def open_files(config: ConsumerConfig, root: Path, log: LogReader) -> ParquetSink:
    """Open the channel's sink; a folder without a position starts at the configuration's start."""
    found = read(root)
    if found is not None:
        _check_owner(root, config, found)
        check_log(config.key, position_of(found), log.last_epoch())
        check_began(config, found["began_at"])
        return ParquetSink.open(config, root)
    refuse_without_position(root)
    return ParquetSink.open(config, root, channel_start(config, log))


def _content(root: Path, config: ConsumerConfig, first: ChannelStart | None) -> dict[str, Any]:
    found = read(root)
    if found is None:
        assert first is not None
        owner = {"channel": config.channel, "prefix": config.prefix}
        began = {"began_at": first.start, "began_behind": first.behind, "began_whole": first.whole}
        return {**owner, **began, "position": asdict(Position.first(first))}
    _check_owner(root, config, found)
    return found


def _check_owner(root: Path, config: ConsumerConfig, found: Mapping[str, Any]) -> None:
    if (found.get("prefix"), found.get("channel")) != config.key:
        raise DownstreamError(
            "TR683",
            f"{root} belongs to channel {found.get('channel')} of {found.get('prefix')}",
            hint="each channel needs a folder of its own",
        )


def position_of(content: Mapping[str, Any]) -> Position:
    """Return the position in a position file. Raises DownstreamError TR682."""
    try:
        return Position(**content["position"])
    except (LookupError, TypeError) as error:
        raise DownstreamError(
            "TR682", f"the position file has no position: {error}", hint="restore the folder from a copy"
        ) from error


def streams_of(plan: SlicePlan, results: Iterable[Result]) -> dict[TablePlan, list[bytes]]:
    """Return each table's rows from the results."""
    found: dict[TablePlan, list[bytes]] = {}
    for one in results:
        if isinstance(one, ArrowRows):
            found.setdefault(plan.tables[one.table], []).append(one.stream)
    return found


def _in_order(table: TablePlan, streams: Sequence[bytes]) -> pa.Table:
    """Return a table's rows of a batch in the upstream's order."""
    schema = file_columns(table.structure).schema
    batches = [batch for stream in streams for batch in pa.ipc.open_stream(stream)]
    return pa.Table.from_batches(batches, schema).sort_by([("epoch", "ascending"), ("seq", "ascending")])


def _change(prepared: PreparedFiles, ddl: SchemaChanged) -> dict[str, Any]:
    record = prepared.slice_.first
    return {
        "epoch": record.epoch,
        "gtid": record.last_gtid,
        "committed_at_ms": record.last_commit_ms,
        "kind": ddl.kind,
        "default_schema": ddl.default_db,
        "statement": ddl.statement,
        "tables": [asdict(table) for table in ddl.tables],
    }
