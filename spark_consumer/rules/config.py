"""Settings of one consumer run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from schemas.access.kafka_security import OPEN, KafkaSecurity
from schemas.access.secrets import TARGET_PASSWORD
from schemas.access.server_url import ServerUrl
from schemas.settings import Size, Span
from schemas.tables import TableFilter
from spark_consumer.rules.channel import NAME as CHANNEL_NAME
from spark_consumer.rules.channel import ChannelKey
from spark_consumer.rules.ddl_options import DdlOptions
from spark_consumer.rules.event_filter import EventFilter, EventRule
from spark_consumer.rules.expressions.filter import ExpressionRule
from spark_consumer.rules.route import Route, Router
from spark_consumer.rules.rules import Rules
from spark_consumer.rules.scope import Scope


@dataclass(frozen=True)
class LogAddress:
    """The address of an epoch log.

    Attributes:
        bootstrap_servers: Kafka's addresses, ``host:port,host:port``.
        prefix: the topics are ``<prefix>.rows``, ``.epochs``, ``.schemas`` and ``.tracked``.
        kafka_security: the settings for Kafka's login and encryption.
    """

    bootstrap_servers: str
    prefix: str
    kafka_security: KafkaSecurity = field(default=OPEN, kw_only=True)

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
    def tracked_topic(self) -> str:
        return f"{self.prefix}.tracked"


@dataclass(frozen=True, kw_only=True)
class ConsumerSettings:
    """The fields of ``[consumer]`` without Spark's, with their defaults, checks and descriptions. Times are seconds."""

    channel: Annotated[
        str,
        Field(
            pattern=CHANNEL_NAME,
            description="name of the channel's position in tailrace.relay_log_info; other prefixes may use it too",
        ),
    ] = "main"
    checkpoint_dir: Annotated[
        Path,
        Field(
            description="folder of Spark's checkpoints, with a folder for each channel; a cache, safe to delete"
        ),
    ] = Path("checkpoint")
    max_batch_rows: Annotated[
        int, Field(ge=1, description="the most rows of a downstream transaction, unless one epoch has more")
    ] = 200_000
    max_batch_bytes: Annotated[
        Size,
        Field(description="the most bytes of binlog of a downstream transaction, unless one epoch has more"),
    ] = 128 << 20
    max_batch_delay: Annotated[
        Span, Field(description="how long a batch that is not full waits for more epochs; 0: not at all")
    ] = 0
    retry_time: Annotated[
        Span, Field(description="how long to wait for a lost downstream or Kafka: 90s, 10m, 24h")
    ] = 600
    pause_time: Annotated[
        Span,
        Field(
            description="how long the current batch may continue after SIGTERM; otherwise the next start applies it"
        ),
    ] = 10
    compact: Annotated[
        bool, Field(description="merge the changes of a row in a downstream transaction into one")
    ] = True
    multiple_rows: Annotated[bool, Field(description="write several rows with one statement")] = True
    statement_rows: Annotated[int, Field(ge=1, description="the most rows of a statement")] = 2_000
    consistency: Annotated[
        Literal["batch", "worker"],
        Field(
            description="batch: one transaction writes a batch; worker: several connections do, conflicting"
            " rows together"
        ),
    ] = "batch"
    worker_count: Annotated[
        int,
        Field(
            ge=1,
            le=256,
            description="number of connections that write, if consistency is worker; and that insert rows of copies",
        ),
    ] = 4
    causality: Annotated[
        Literal["rows", "tables"],
        Field(
            description="what one worker must write together: rows that share a unique value, or whole tables"
        ),
    ] = "rows"
    direct: Annotated[
        bool,
        Field(
            description="apply epochs in the consumer's own process as they arrive, before Spark has started and"
            " between its batches; not with a max-batch-delay or change files"
        ),
    ] = True
    safe_mode: Annotated[
        bool,
        Field(description="tolerate rows that already exist or are already deleted; see docs/PIPELINE.md"),
    ] = False
    safe_mode_duration: Annotated[
        Span, Field(description="how long to use safe mode after each start: 90s, 5m")
    ] = 0

    @property
    def workers(self) -> int:
        """The number of connections that write a slice in parallel; 1 if one transaction writes it."""
        return self.worker_count if self.consistency == "worker" else 1


@dataclass(frozen=True)
class ConsumerConfig(ConsumerSettings, LogAddress):
    """One channel's settings: those of ``[consumer]``, its log, its target, its rules, and the options of one run.

    Attributes:
        target: the downstream server.
        files: the folder of change files that is written instead.
        include: ``database.table`` patterns with ``*`` and ``?``; empty means all.
        exclude: patterns of tables to leave out; they override ``include``.
        filters: which kinds of events of which tables are replicated.
        routes: the downstream's names of the upstream's schemas and tables.
        expressions: which rows are left out because of their values.
        ddl: whether DDL on views, stored programs and accounts is applied, and how online schema changes are.
        start: where a channel without a position starts, see ``spark_consumer.epochs.start``. A channel that has
            started somewhere else is refused, unless this is None.
        until: return exactly at this position; its forms are in ``spark_consumer.epochs.start``.
        until_caught_up: return once everything that the log held at the start is applied.
        stop_at_gtid: return exactly after this GTID set.
        spark_conf: Spark properties that override ours.
        jars: Spark's Kafka connector and what it needs.
        class_archive: the archive of ``spark_consumer.job.class_archive``, with which the JVM starts in half the time.
        upstream_lowers_names: whether the patterns are in lower case, as all the upstream's names are.
        folded: if the downstream stores all names in lower case, the upstream's tables that are known at the start;
            otherwise None. See ``spark_consumer.epochs.letter_case``.
    """

    target: ServerUrl
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    filters: tuple[EventRule, ...] = ()
    routes: tuple[Route, ...] = ()
    expressions: tuple[ExpressionRule, ...] = ()
    ddl: DdlOptions = field(default_factory=DdlOptions)
    start: str | None = None
    until: str | None = None
    until_caught_up: bool = False
    stop_at_gtid: str | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    jars: tuple[Path, ...] = ()
    class_archive: Path | None = None
    files: Path | None = None
    upstream_lowers_names: bool = False
    folded: tuple[tuple[str, str], ...] | None = None

    @cached_property
    def rules(self) -> Rules:
        """The channel's rules. Raises ConfigError for a rule that cannot be used, DownstreamError TR618."""
        return Rules(
            TableFilter(self.include, self.exclude),
            EventFilter(self.filters),
            Router(self.routes, self.folded),
            self.expressions,
            self.compact,
        )

    @cached_property
    def scope(self) -> Scope:
        """Which tables the channel may read and write."""
        return Scope(self.include, self.exclude, self.routes)

    @property
    def applies_directly(self) -> bool:
        """Whether the consumer's own process applies epochs as they arrive."""
        return self.direct and not (self.max_batch_delay or self.files is not None)

    @property
    def key(self) -> ChannelKey:
        """The key of the channel's rows in the downstream's tables."""
        return ChannelKey(self.prefix, self.channel)

    @property
    def secrets(self) -> dict[str, str]:
        """The passwords of target and Kafka by the variable names in pickles (``schemas.access.secrets``)."""
        target = {TARGET_PASSWORD: self.target.password} if self.target.password else {}
        return {**target, **self.kafka_security.environment()}

    @property
    def channel_dir(self) -> Path:
        """This channel's folder in the checkpoint folder, which other pipelines may use too."""
        return self.checkpoint_dir / self.channel / self.prefix
