"""Applies a list of steps as epochs of one channel, without Kafka and Spark.

A step is ``{"ddl": …, "kind": …, "tables": […]}`` or ``{"rows": [[sql, count], …]}``. Steps that the position
says are applied are left out, as the consumer does.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from schemas.epoch import SchemaChanged, TableChanged
from schemas.server_url import ServerUrl
from schemas.structure import TableStructure
from spark_consumer import position as positions
from spark_consumer.apply import Applier
from spark_consumer.config import ConsumerConfig
from spark_consumer.merge import Statement
from spark_consumer.plan import Mode, TablePlan
from spark_consumer.prepare import Prepared
from spark_consumer.session import connect
from spark_consumer.slices import LoggedEpoch, Slice
from support.fake_topic import integer
from support.records import epoch_record

_TABLE = TablePlan(b"", TableStructure("d", "t", (integer("id"),), ("id",)), Mode.COMPACT, ("id",))


def open_applier(url: str, channel: str) -> Applier:
    """The channel's writer, with a position before everything if it has none."""
    config = ConsumerConfig("", "p", ServerUrl.parse(url), channel=channel, checkpoint_dir=Path())
    session = connect(config.target)
    positions.install(session)
    if positions.read(session, channel) is None:
        positions.create(session, channel, epoch=-1, epochs_offset=-1, gtids="")
    return Applier(config, session, positions.take_over(session, channel))


def prepared(epoch: int, step: dict[str, Any]) -> Prepared:
    """A step as a slice."""
    record = epoch_record(epoch, transactions=1, executed=f"0-1-{epoch + 1}")
    if "ddl" in step:
        tables = tuple(TableChanged(*names) for names in step["tables"])
        settings = step.get("settings", {})
        ddl = SchemaChanged(
            step["ddl"], step.get("db", ""), step["kind"], tables, "mysql", 1_700_000_000, **settings
        )
        record = replace(record, ddl=ddl)
    statements = [(_TABLE, Statement(sql.encode(), count)) for sql, count in step.get("rows", [])]
    return Prepared(Slice((LoggedEpoch(record, epoch),)), inserts=statements)


def apply_steps(applier: Applier, steps: list[dict[str, Any]]) -> None:
    """Apply what the position says is not applied."""
    for epoch, step in enumerate(steps):
        if epoch > applier.position.epoch:
            applier.apply(prepared(epoch, step))
