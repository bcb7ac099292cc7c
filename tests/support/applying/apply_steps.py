"""Applies a list of steps as epochs of one channel, without Kafka and Spark.

A step is ``{"ddl": …, "kind": …, "tables": […]}`` or ``{"rows": [[sql, count], …]}``. Steps before the channel's
position are left out, as in the consumer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from schemas.access.server_url import ServerUrl
from schemas.errors import Where
from schemas.structure import TableStructure
from schemas.wire.avro_schema import KEY_CHANGE, row_schema
from schemas.wire.epoch import SchemaChanged, StructureVersion, TableChanged, TableTouched
from spark_consumer.apply.applier import Applier, read_state
from spark_consumer.apply.ddl.run import LoggedTables
from spark_consumer.apply.prepared import PreparedRows, Writes, sort_results
from spark_consumer.apply.tables import channel_tables, position_store
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.position import BEFORE_ALL, ChannelStart
from spark_consumer.epochs.slices import LoggedEpoch, Slice
from spark_consumer.plan.plan import ApplyMode, TablePlan, plan_slice, targets_of
from spark_consumer.plan.statements import Limits, Statement
from spark_consumer.rows.render import render
from spark_consumer.rows.slice_rows import RangeRows, SliceRows
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.sinks.server import ServerSink
from spark_consumer.target.session import connect
from spark_consumer.target.tables import TargetCatalog
from tailrace.assemble.sink import server_sink
from tests.support.epochs.fake_topic import Change, halves, integer, row_key, row_value
from tests.support.epochs.records import epoch_record

Versions = Callable[[int], Sequence[StructureVersion]]
_TABLE = TablePlan(
    b"", TableStructure("d", "t", (integer("id"),), ("id",)), ApplyMode.COMPACT, ("d", "t"), ("id",)
)


def open_applier(url: str, channel: str, versions: Versions | None = None, **rules: Any) -> Applier:
    """The channel's writer, with a position before everything if it has none; the log has shown no tables."""
    return open_channel(url, channel, versions, **rules)[0]


def open_channel(
    url: str, channel: str, versions: Versions | None = None, **rules: Any
) -> tuple[Applier, ConsumerConfig]:
    """Open the applier with the channel's configuration."""
    sink, config = open_channel_sink(url, channel, None, versions, **rules)
    return sink._applier, config


def open_channel_sink(
    url: str, channel: str, rows: SliceRows | None = None, versions: Versions | None = None, **rules: Any
) -> tuple[ServerSink, ConsumerConfig]:
    """Open the channel's sink with its configuration."""
    config = ConsumerConfig("", "p", ServerUrl.parse(url), channel=channel, checkpoint_dir=Path(), **rules)
    session = connect(config.target)
    channel_tables.install(session)
    if position_store.read(session, config.key) is None:
        position_store.create(session, config.key, ChannelStart(BEFORE_ALL, None, "earliest"))
    position = position_store.take_over(session, config.key)
    logged, state = LoggedTables(lambda epoch: set(), versions), read_state(session, config.key, position)
    return server_sink(LogReader(config), logged, rows, None, config, session, state), config


def prepared(epoch: int, step: dict[str, Any]) -> PreparedRows:
    """Return a step as a slice."""
    record = epoch_record(epoch, transactions=1, executed=f"0-1-{epoch + 1}")
    if "ddl" in step:
        tables = tuple(TableChanged(*names) for names in step["tables"])
        settings = step.get("settings", {})
        ddl = SchemaChanged(
            step["ddl"], step.get("db", ""), step["kind"], tables, "mysql", 1_700_000_000, **settings
        )
        record = replace(record, ddl=ddl)
    statements = tuple((_TABLE, Statement(sql.encode(), count)) for sql, count in step.get("rows", []))
    return PreparedRows(Slice((LoggedEpoch(record, epoch),)), Writes(inserts=statements))


def apply_rows(applier: Applier, config: ConsumerConfig, *changes: Change) -> PreparedRows:
    """Apply changes as the next epoch, planned and rendered as the job does, in one partition."""
    made = prepared_rows(applier, config, *changes)
    applier.apply(made)
    return made


def prepared_rows(applier: Applier, config: ConsumerConfig, *changes: Change) -> PreparedRows:
    """Return changes as the next epoch, planned with the downstream's present tables."""
    return prepared_epochs(applier, config, [changes])


def prepared_epochs(
    applier: Applier, config: ConsumerConfig, epochs: Sequence[Sequence[Change]]
) -> PreparedRows:
    """Return the next epochs as one slice; each epoch is a transaction."""
    rules, first = config.rules, applier.position.epoch + 1
    each = [halves(changes) for changes in epochs]
    structures = {row_schema(c.structure).fingerprint.hex(): c.structure for one in each for c in one}
    targets = TargetCatalog().load(applier.session, targets_of(structures, rules).values())
    plan = plan_slice(
        structures,
        targets,
        rules,
        Limits(2_000),
        Where(),
        safe=config.safe_mode,
        unfinished=applier.downstream.unfinished,
    )
    logged, keys, values = [], [], []
    for epoch, changes in enumerate(each, first):
        gtid = f"0-1-{epoch + 1}"
        counts: dict[TableStructure, list[int]] = {}
        for change in changes:
            column = 1 if change.flags & KEY_CHANGE else "cud".index(change.op)
            counts.setdefault(change.structure, [0, 0, 0])[column] += 1
        tables = tuple(
            TableTouched(s.db, s.table, row_schema(s).fingerprint.hex(), *n) for s, n in counts.items()
        )
        record = epoch_record(epoch, rows=len(changes), transactions=1, executed=gtid, tables=tables)
        logged.append(LoggedEpoch(record, epoch))
        keys += [row_key(c.structure, c.after or c.before or {}) for c in changes]
        values += [row_value(c, epoch, seq, gtid) for seq, c in enumerate(changes)]
    return sort_results(Slice(tuple(logged)), plan, list(render(plan, RangeRows(keys, values))))


def apply_steps(applier: Applier, steps: list[dict[str, Any]]) -> None:
    """Apply the steps after the channel's position."""
    for epoch, step in enumerate(steps):
        if epoch > applier.position.epoch:
            applier.apply(prepared(epoch, step))
