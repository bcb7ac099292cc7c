"""What one run of the consumer is told."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from schemas.access.kafka_security import OPEN, KafkaSecurity
from schemas.access.secrets import TARGET_PASSWORD
from schemas.access.server_url import ServerUrl
from spark_consumer.rules.channel import ChannelKey
from spark_consumer.rules.ddl_options import DdlOptions
from spark_consumer.rules.event_filter import EventRule
from spark_consumer.rules.expressions.filter import ExpressionRule
from spark_consumer.rules.route import Route

#: what stops a run: anything with ``is_set`` and ``wait``
StopEvent = threading.Event


@dataclass(frozen=True)
class ConsumerConfig:
    """One channel's settings.

    Attributes:
        bootstrap_servers: Kafka, ``host:port,host:port``.
        kafka_security: what these ask for.
        prefix: topics are ``<prefix>.rows``, ``.epochs`` and ``.schemas``.
        target: the downstream server.
        files: the folder of change files that is written instead.
        channel: its name; with the prefix it is the key of the position in ``tailrace.relay_log_info``.
        checkpoint_dir: parent of the channels' Spark checkpoints, a cache.
        max_batch_rows: rows of one downstream transaction; one epoch at least.
        max_batch_bytes: bytes of binlog in one of them; one epoch at least.
        max_batch_delay: seconds for which a batch that is not full waits for more epochs.
        retry_time: seconds for which a lost downstream or Kafka is waited for.
        pause_time: seconds that a stop leaves the batch in hand.
        include: ``database.table`` patterns with ``*`` and ``?``; empty means all.
        exclude: patterns of tables to leave out, stronger than ``include``.
        filters: which kinds of events of which tables go through.
        routes: the downstream's names of the upstream's schemas and tables.
        expressions: which rows are left out by their values.
        compact: whether the changes of a row in one downstream transaction become one.
        multiple_rows: whether changes of several rows become one statement.
        statement_rows: the most rows that one statement writes or removes.
        workers: connections that write a slice side by side; 1 for one transaction.
        causality: what their rows are kept together by: ``rows`` that conflict, or whole ``tables``.
        safe_mode: whether a row may be there, or gone, already; see ``spark_consumer.plan.safe_mode``.
        safe_mode_duration: seconds after the start in which it is so anyway.
        ddl: what becomes of DDL on views, stored programs and accounts, and of online schema changes.
        start: where a channel without a position begins, see ``epochs.start``; one that has begun somewhere
            else is refused, unless this is None.
        until: return exactly at this place; ``spark_consumer.epochs.start`` knows the forms.
        until_caught_up: return once everything that the log held at the start is applied.
        stop_at_gtid: return exactly behind this GTID set.
        spark_conf: Spark properties, stronger than ours.
        jars: Spark's Kafka connector and what it needs.
        class_archive: what ``spark_consumer.job.class_archive`` made, to start the JVM in half the time.
        upstream_folds: whether the patterns are in lower case, as all the upstream's names are.
        folded: where the downstream has all names in lower case: the upstream's tables that are known at the start;
            None where it tells cases apart. See ``spark_consumer.epochs.letter_case``.
    """

    bootstrap_servers: str
    prefix: str
    target: ServerUrl
    channel: str = "main"
    checkpoint_dir: Path = Path("checkpoint")
    max_batch_rows: int = 200_000
    max_batch_bytes: int = 128 << 20
    max_batch_delay: float = 0.0
    retry_time: float = 600.0
    pause_time: float = 10.0
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    filters: tuple[EventRule, ...] = ()
    routes: tuple[Route, ...] = ()
    expressions: tuple[ExpressionRule, ...] = ()
    compact: bool = True
    multiple_rows: bool = True
    statement_rows: int = 2_000
    workers: int = 1
    causality: Literal["rows", "tables"] = "rows"
    safe_mode: bool = False
    safe_mode_duration: float = 0.0
    ddl: DdlOptions = field(default_factory=DdlOptions)
    start: str | None = None
    until: str | None = None
    until_caught_up: bool = False
    stop_at_gtid: str | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    jars: tuple[Path, ...] = ()
    class_archive: Path | None = None
    files: Path | None = None
    kafka_security: KafkaSecurity = OPEN
    upstream_folds: bool = False
    folded: tuple[tuple[str, str], ...] | None = None

    @property
    def key(self) -> ChannelKey:
        """Whose rows on the downstream are the channel's."""
        return ChannelKey(self.prefix, self.channel)

    @property
    def secrets(self) -> dict[str, str]:
        """The passwords of target and Kafka by the variables that pickles name them by (``schemas.access.secrets``)."""
        target = {TARGET_PASSWORD: self.target.password} if self.target.password else {}
        return {**target, **self.kafka_security.environment()}

    @property
    def epochs_topic(self) -> str:
        return f"{self.prefix}.epochs"

    @property
    def rows_topic(self) -> str:
        return f"{self.prefix}.rows"

    @property
    def schemas_topic(self) -> str:
        return f"{self.prefix}.schemas"

    @property
    def channel_dir(self) -> Path:
        """This channel's own folder below the checkpoint folder, where other pipelines may have theirs."""
        return self.checkpoint_dir / self.channel / self.prefix
