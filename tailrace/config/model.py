"""The one model of the configuration file: sections, fields, defaults, and what each value may be.

The fields of [consumer] and [ddl] stand in the packages that use them (``ConsumerSettings``, ``DdlOptions``), with
default, check and meaning; here they become sections. The file is TOML with kebab-case names. Everything that speaks
about the configuration comes from this model: the reader (``config.file``), the texts of
``tailrace config show|example`` (``config.text``), and the environment variables ``TAILRACE_<SECTION>_<FIELD>``,
which win over the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from schemas.access.server_url import ServerUrl
from schemas.errors import ConfigError, TailraceError
from schemas.settings import Duration, Size, Span, parse_size
from schemas.tables import TableFilter
from spark_consumer.rules.channel import NAME as CHANNEL_NAME
from spark_consumer.rules.config import ConsumerSettings
from spark_consumer.rules.ddl_options import DdlOptions
from spark_consumer.rules.event_filter import EventRule
from spark_consumer.rules.expressions.filter import ExpressionRule
from spark_consumer.rules.route import Route, Router

MIN_PART_SIZE = 4096  # bytes
#: what the url of a folder of change files begins with
FILES = "parquet:"
# As librdkafka reads them; the host may be an address of IPv6 in brackets.
_BROKER = re.compile(r"(?:\w+://)?(?:\[[0-9A-Fa-f:.]+\]|[^\s:,/\[\]]+)(?::(\d{1,5}))?")


def kebab(name: str) -> str:
    """A field's name as the file has it; ``schema_`` is `schema`, which pydantic has a use for."""
    return name.removesuffix("_").replace("_", "-")


def _server_url(text: str) -> str:
    try:
        ServerUrl.parse(text)
    except TailraceError as error:
        raise ValueError(f"{error.what}{'. ' + error.hint if error.hint else ''}") from None
    return text


def _target_url(text: str) -> str:
    if not text.startswith(FILES):
        return _server_url(text)
    if not Path(text.removeprefix(FILES)).is_absolute():
        raise ValueError(f"a folder of change files is named by its whole path: {FILES}/data/changes")
    return text


def _part_size(size: int) -> int:
    if size != 0 and size < MIN_PART_SIZE:
        raise ValueError(f"0, or at least {MIN_PART_SIZE} bytes")
    return size


def _registry_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1)
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment:
        raise ValueError("a schema registry is named as http://host:port or https://user:password@host")
    return text


def _pattern(text: str) -> str:
    try:
        TableFilter([text])
    except TailraceError as error:
        raise ValueError(f"{error.hint}") from None
    return text


def flatten_spark(value: object, prefix: str = "spark") -> dict[str, str]:
    """Spark properties of a TOML table, where ``spark.executor.memory`` nests and a quoted name does not."""
    if not isinstance(value, dict):
        raise ValueError('Spark properties are a table, such as spark.executor.memory = "2g"')
    flat: dict[str, str] = {}
    for key, item in value.items():
        name = key if key.startswith("spark.") else f"{prefix}.{key}"
        if isinstance(item, dict):
            flat |= flatten_spark(item, name)
        else:
            flat[name] = str(item).lower() if isinstance(item, bool) else str(item)
    return flat


PartSize = Annotated[int, BeforeValidator(parse_size), AfterValidator(_part_size)]
Url = Annotated[str, AfterValidator(_server_url)]
Pattern = Annotated[str, AfterValidator(_pattern)]


class Section(BaseModel):
    """What all sections share: kebab-case in the file, no unknown fields."""

    model_config = ConfigDict(
        extra="forbid", alias_generator=kebab, populate_by_name=True, frozen=True, hide_input_in_errors=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _whole(cls, value: object) -> object:
        # Files, servers and Kafka all take it for the end of a text.
        if isinstance(value, str) and "\0" in value:
            raise ValueError("there is a NUL character in it")
        return value


class Server(Section):
    """A MySQL or MariaDB server: where it is and how to log in."""

    url: Url = Field(repr=False, description="mysql://user[:password]@host[:port]/[?parameters]")
    password: SecretStr | None = Field(default=None, description="the password, instead of in the url")
    password_file: Path | None = Field(default=None, description="a file that holds only the password")


class Source(Server):
    """The upstream server, whose binlog is replicated."""

    url: Url = Field(
        repr=False,
        description="the upstream, mysql:// or mariadb://; `tailrace check` says which rights its user needs",
        examples=["mysql://replicator@127.0.0.1:3306"],
    )
    server_id: int | None = Field(
        default=None,
        ge=1,
        le=2**32 - 1,
        examples=[7001],
        description="replica id, unique among the upstream's replicas; default: derived from host and prefix",
    )
    start: Literal["earliest", "current"] = Field(
        default="earliest",
        description="where a producer without a relay log begins: the oldest binlog, or now",
    )


class Relay(Section):
    """The relay log: the upstream's binlog on the producer's own disk."""

    dir: Path = Field(default=Path("relay"), description="folder of the relay log; relative to this file")
    relay_binlog_gtid: str = Field(
        default="",
        examples=["3e11fa47-71ca-11e1-9e33-c80aa9429562:1-23"],
        description="a new relay log begins behind this GTID set; takes precedence over source.start",
    )
    relay_binlog_name: str = Field(
        default="",
        examples=["mysql-bin.000005"],
        description="a new relay log begins with this binlog file, if the upstream writes no GTIDs",
    )
    max_file_size: PartSize = Field(
        default=0,
        description="bytes at which a relay file ends behind a transaction and goes on in another part;"
        " 0: files are the upstream's own",
    )
    sync_relay_log: int = Field(
        default=10_000,
        ge=0,
        description="fsync after so many transactions, and whenever the upstream pauses; 1: after each; 0: when the"
        " operating system likes. Nothing is published before it is on disk, whatever it is",
    )
    relay_log_recovery: bool = Field(
        default=False, description="at start, discard what is not published yet and fetch it again"
    )


class Purge(Section):
    """When relay files are deleted: what any of the rules names, unless the publisher or a reader needs it."""

    interval: int = Field(
        default=3600, ge=0, description="seconds between two purges in the background; 0: only on a full disk"
    )
    expires: float = Field(
        default=0,
        ge=0,
        allow_inf_nan=False,
        description="hours since a file was last updated; 0: no such rule",
    )
    remain_space: float = Field(
        default=15,
        ge=0,
        allow_inf_nan=False,
        description="GB (2^30 bytes) to be kept free on the disk, oldest files first; 0: no such rule",
    )
    passed: bool = Field(
        default=False,
        description="delete a file as soon as the publisher, all channels and other readers have passed it",
    )


class Kafka(Section):
    """The epoch log."""

    bootstrap_servers: str = Field(
        default="127.0.0.1:9092", min_length=1, description="host:port, comma-separated"
    )
    prefix: str = Field(
        default="tailrace",
        # It is also a folder's name.
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,199}$",
        description="topics are <prefix>.rows, .epochs, .schemas and .tracked",
    )
    partitions: int = Field(
        default=4, ge=1, le=10_000, description="partitions of <prefix>.rows; fixed once the topic exists"
    )

    schema_registry_url: Annotated[str, AfterValidator(_registry_url)] | None = Field(
        default=None,
        repr=False,
        examples=["http://127.0.0.1:8081"],
        description="http[s]://[user:password@]host:port of a schema registry: rows are then in Confluent's format",
    )

    security_protocol: Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"] = Field(
        default="plaintext", description="whether the brokers encrypt (ssl) and ask for a login (sasl)"
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        default="SCRAM-SHA-512", description="the SASL mechanism of the login"
    )
    sasl_username: str = Field(default="", examples=["tailrace"], description="the user name of the login")
    sasl_password: SecretStr | None = Field(default=None, description="the password of sasl-username")
    sasl_password_file: Path | None = Field(default=None, description="a file that holds only the password")
    ssl_ca: Path | None = Field(
        default=None, description="PEM file of the authorities to trust; default: the system's"
    )
    ssl_certificate: Path | None = Field(
        default=None, description="PEM file of the client's certificate, for brokers that require one"
    )
    ssl_key: Path | None = Field(default=None, description="PEM file of its key, in PKCS #8")
    ssl_key_password: SecretStr | None = Field(
        default=None, description="the password of an encrypted ssl-key"
    )

    @model_validator(mode="after")
    def _complete(self) -> Kafka:
        if self.security_protocol.startswith("sasl"):
            if not self.sasl_username or (self.sasl_password is None and self.sasl_password_file is None):
                raise ValueError(f"{self.security_protocol} needs sasl-username and sasl-password(-file)")
        elif self.sasl_username:
            raise ValueError("sasl-username needs security-protocol sasl_ssl or sasl_plaintext")
        if (self.ssl_certificate is None) != (self.ssl_key is None):
            raise ValueError("ssl-certificate and ssl-key belong together")
        return self

    @field_validator("bootstrap_servers", mode="before")
    @classmethod
    def _join(cls, value: object) -> object:
        return ",".join(map(str, value)) if isinstance(value, list) else value

    @field_validator("bootstrap_servers")
    @classmethod
    def _addresses(cls, value: str) -> str:
        for one in list(filter(None, map(str.strip, value.split(",")))) or [value]:
            found = _BROKER.fullmatch(one)
            if found is None or not 0 < int(found[1] or 1) < 1 << 16:
                raise ValueError(f"{one} is not host:port")
        return value


class Epoch(Section):
    """When a run of upstream transactions becomes one epoch: whichever limit is met first."""

    max_rows: int = Field(default=20_000, ge=1, description="rows")
    max_bytes: Size = Field(default=16 << 20, description="bytes of rows, as a number or such as 16MiB")
    max_delay: Duration = Field(
        default=0.2, description="how long a transaction may wait for others: 200ms, 1s, or seconds"
    )


class Target(Server):
    """The downstream server, which becomes equal to the upstream, or a folder that gets every change."""

    url: Annotated[str, AfterValidator(_target_url)] = Field(
        repr=False,
        description="the downstream, mysql:// or mariadb://; or parquet:/folder for change files, docs/REPLAY.md",
        examples=["mysql://applier@127.0.0.1:3307"],
    )


# mypy takes a model for a dataclass, and does not see that ours are frozen.
class Consumer(Section, ConsumerSettings):  # type: ignore[misc]
    """The Structured Streaming job."""

    spark: Annotated[dict[str, str], BeforeValidator(flatten_spark)] = Field(
        default_factory=dict,
        examples=[{"spark.driver.memory": "1g"}],
        description="Spark properties; quote the name where one property's name begins another's",
    )


class Tables(Section):
    """Which tables are replicated. Patterns are <database>.<table>, with * and ? as wildcards."""

    include: tuple[Pattern, ...] = Field(
        default=(), description="patterns of tables to replicate; empty: all", examples=[["shop.*"]]
    )
    exclude: tuple[Pattern, ...] = Field(
        default=(), description="patterns of tables to leave out", examples=[["shop.tmp_*"]]
    )


class Filter(Section):
    """A rule of the binlog event filter: which kinds of events go through."""

    schema_pattern: str = Field(
        min_length=1, description="schemas, with * and ? as wildcards", examples=["shop"]
    )
    table_pattern: str | None = Field(
        default=None,
        min_length=1,
        description="tables; without it the rule holds for the schema's own DDL and all its tables",
        examples=["log_*"],
    )
    events: tuple[str, ...] = Field(
        default=(),
        description="insert, update, delete, create table, …, all, all dml, all ddl, none, none dml, none ddl",
        examples=[["delete", "truncate table", "drop table"]],
    )
    sql_pattern: tuple[str, ...] = Field(
        default=(),
        description="regular expressions over the text of DDL",
        examples=[["^DROP\\s+PROCEDURE"]],
    )
    action: Literal["Do", "Ignore"] = Field(
        description="Ignore drops the events named, Do all others of these tables", examples=["Ignore"]
    )

    @model_validator(mode="after")
    def _usable(self) -> Filter:
        _checked(lambda: EventRule(self.schema_pattern, self.action, None, self.events, self.sql_pattern))
        return self


class RouteRule(Section):
    """A rule of the table router: the downstream's names of schemas and tables."""

    schema_pattern: str = Field(
        min_length=1, description="schemas, with * and ? as wildcards", examples=["shop_*"]
    )
    table_pattern: str | None = Field(
        default=None,
        min_length=1,
        description="tables; without it the rule moves whole schemas",
        examples=["orders_*"],
    )
    target_schema: str = Field(min_length=1, description="the schema downstream", examples=["shop"])
    target_table: str | None = Field(
        default=None,
        min_length=1,
        description="the table downstream; without it tables keep their names",
        examples=["orders"],
    )

    @model_validator(mode="after")
    def _usable(self) -> RouteRule:
        _checked(lambda: Router((self.route,)))
        return self

    @property
    def route(self) -> Route:
        return Route(self.schema_pattern, self.target_schema, self.table_pattern, self.target_table)


class Expression(Section):
    """A rule of the expression filter: the rows of a table that are left out because an expression is true."""

    schema_: str = Field(min_length=1, description="the schema upstream", examples=["shop"])
    table: str = Field(min_length=1, description="the table upstream", examples=["orders"])
    insert_value_expr: str | None = Field(
        default=None,
        description="over the new row of an INSERT",
        examples=["state = 'draft' AND total < 0.5"],
    )
    update_old_value_expr: str | None = Field(
        default=None, description="over the old row of an UPDATE", examples=["state = 'draft'"]
    )
    update_new_value_expr: str | None = Field(
        default=None,
        description="over its new row; with the one before: left out if both are true",
        examples=["state = 'draft'"],
    )
    delete_value_expr: str | None = Field(
        default=None, description="over the row of a DELETE", examples=["state IS NULL OR id % 10 <> 0"]
    )

    @model_validator(mode="after")
    def _usable(self) -> Expression:
        _checked(lambda: self.rule)
        if all(text is None for name, text in self if name.endswith("_expr")):
            raise ValueError("a rule without an expression leaves nothing out")
        return self

    @property
    def rule(self) -> ExpressionRule:
        return ExpressionRule(
            self.schema_,
            self.table,
            self.insert_value_expr,
            self.update_old_value_expr,
            self.update_new_value_expr,
            self.delete_value_expr,
        )


class Ddl(Section, DdlOptions):  # type: ignore[misc]
    """DDL on other things than tables, and online schema changes; see docs/DDL.md."""

    @model_validator(mode="after")
    def _usable(self) -> Ddl:
        _checked(lambda: DdlOptions(**dict(self)))
        return self


class Skip(Section):
    """A rule for what cannot be replicated and is passed over, counted, instead of stopping the producer."""

    schema_pattern: str = Field(
        min_length=1, description="schemas, with * and ? as wildcards", examples=["shop"]
    )
    table_pattern: str = Field(
        min_length=1, description="tables, with * and ? as wildcards", examples=["log_*"]
    )
    events: tuple[Literal["statement", "image"], ...] = Field(
        min_length=1,
        description="statement: DML logged as text; image: rows whose image lacks what is needed",
        examples=[["statement", "image"]],
    )


class Channel(Section):
    """What a channel has of its own; each field replaces the whole field of the same name outside."""

    target: Target | None = None
    tables: Tables | None = None
    filters: tuple[Filter, ...] | None = None
    routes: tuple[RouteRule, ...] | None = None
    expression_filter: tuple[Expression, ...] | None = None
    ddl: Ddl | None = None
    max_batch_rows: int | None = Field(default=None, ge=1)
    max_batch_bytes: Size | None = None
    max_batch_delay: Span | None = None
    retry_time: Span | None = None
    pause_time: Span | None = None
    compact: bool | None = None
    multiple_rows: bool | None = None
    statement_rows: int | None = Field(default=None, ge=1)
    consistency: Literal["batch", "worker"] | None = None
    worker_count: int | None = Field(default=None, ge=1, le=256)
    causality: Literal["rows", "tables"] | None = None
    safe_mode: bool | None = None
    safe_mode_duration: Span | None = None


def _checked(make: Callable[[], object]) -> None:
    try:
        make()
    except TailraceError as error:
        raise ValueError(f"{error.what}. {error.hint}") from None


class Config(BaseSettings):
    """Tailrace's configuration."""

    model_config = SettingsConfigDict(
        env_prefix="TAILRACE_",
        env_nested_delimiter="_",
        env_nested_max_split=1,
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    source: Source | None = None
    relay: Relay = Relay()
    purge: Purge = Purge()
    kafka: Kafka = Kafka()
    epoch: Epoch = Epoch()
    target: Target | None = None
    consumer: Consumer = Consumer()
    tables: Tables = Tables()
    filters: tuple[Filter, ...] = ()
    routes: tuple[RouteRule, ...] = ()
    expression_filter: tuple[Expression, ...] = ()
    ddl: Ddl = Ddl()
    skip: tuple[Skip, ...] = ()
    channel: dict[Annotated[str, Field(pattern=CHANNEL_NAME)], Channel] = {}

    def for_channel(self, name: str) -> Config:
        """The configuration as it holds for one channel: what ``[channel.NAME]`` says instead of the rest.

        Raises ConfigError for what cannot be a channel's name.
        """
        if not re.fullmatch(CHANNEL_NAME, name):
            raise ConfigError(
                "TR103",
                f"{name!r} cannot be a channel's name",
                hint="a name has letters, digits and _ . -, 64 at most, and begins with none of the last two",
            )
        own = self.channel.get(name)
        if own is None:
            return self
        said = {field: value for field, value in own if value is not None}
        outer = {field: value for field, value in said.items() if field in type(self).model_fields}
        consumer = {field: value for field, value in said.items() if field not in outer}
        return self.model_copy(update={**outer, "consumer": self.consumer.model_copy(update=consumer)})

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], *_: Any, **sources: PydanticBaseSettingsSource
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment wins over the file, whose content comes in as arguments."""
        return sources["env_settings"], sources["init_settings"]
