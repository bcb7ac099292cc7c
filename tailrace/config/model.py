"""The model of the configuration file: sections, fields, defaults, and allowed values.

Most fields are defined in the packages that use them, with default, check and meaning (``RelaySettings``,
``ConsumerSettings``, ``EventRule``, …); here they become sections. The file is TOML with kebab-case names. The
reader (``tailrace.config.file``), the texts of ``tailrace config show|example`` (``tailrace.config.text``) and the
environment variables ``TAILRACE_<SECTION>_<FIELD>``, which override the file, all follow this model.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_type_hints
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from producer.settings import CopySettings, EpochSettings, RelaySettings, SkipRule, Start
from relay_store.purge.purge import PurgeRules
from schemas.access.server_url import ServerUrl
from schemas.errors import ConfigError, TailraceError
from schemas.settings import Span
from schemas.tables import TableFilter
from spark_consumer.rules.channel import NAME as CHANNEL_NAME
from spark_consumer.rules.config import ConsumerSettings
from spark_consumer.rules.ddl_options import DdlOptions
from spark_consumer.rules.event_filter import EventRule
from spark_consumer.rules.expressions.filter import ExpressionRule
from spark_consumer.rules.route import Route, Router
from tailrace.config.listen import ListenAddress, listen_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

#: the start of the url of a folder of change files
FILES = "parquet:"
# The addresses that librdkafka accepts; an IPv6 address is in brackets.
_BROKER = re.compile(r"(?:\w+://)?(?:\[[0-9A-Fa-f:.]+\]|[^\s:,/\[\]]+)(?::(\d{1,5}))?")


def kebab(name: str) -> str:
    """Return a field's name in the file. The field ``schema_`` is `schema` there, a name that pydantic reserves."""
    return name.removesuffix("_").replace("_", "-")


def _server_url(text: str) -> str:
    try:
        ServerUrl.parse(text)
    except TailraceError as error:
        raise ValueError(f"{error.message}{'. ' + error.hint if error.hint else ''}") from None
    return text


def _target_url(text: str) -> str:
    if not text.startswith(FILES):
        return _server_url(text)
    if not Path(text.removeprefix(FILES)).is_absolute():
        raise ValueError(f"write the absolute path of a folder of change files, such as {FILES}/data/changes")
    return text


def _registry_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1)
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment:
        raise ValueError(
            "write the url of a schema registry as http://host:port or https://user:password@host"
        )
    return text


def _address(text: str) -> str:
    return str(ListenAddress.parse(text))


def _pattern(text: str) -> str:
    try:
        TableFilter([text])
    except TailraceError as error:
        raise ValueError(f"{error.hint}") from None
    return text


def flatten_spark(value: object, prefix: str = "spark") -> dict[str, str]:
    """Return a TOML table of Spark properties, in which dotted names may be nested, as flat names."""
    if not isinstance(value, dict):
        raise ValueError('write Spark properties as a table, such as spark.executor.memory = "2g"')
    flat: dict[str, str] = {}
    for key, item in value.items():
        name = key if key.startswith("spark.") else f"{prefix}.{key}"
        if isinstance(item, dict):
            flat |= flatten_spark(item, name)
        else:
            flat[name] = str(item).lower() if isinstance(item, bool) else str(item)
    return flat


Url = Annotated[str, AfterValidator(_server_url)]
Pattern = Annotated[str, AfterValidator(_pattern)]
T = TypeVar("T", bound="DataclassInstance")


class Section(BaseModel):
    """The base of all sections: kebab-case names in the file, no unknown fields."""

    model_config = ConfigDict(
        extra="forbid", alias_generator=kebab, populate_by_name=True, frozen=True, hide_input_in_errors=True
    )

    def plain(self, kind: type[T]) -> T:
        """Return the section as the dataclass of the package that uses it. Raises ConfigError."""
        own = type(self).model_fields
        return kind(**{one.name: getattr(self, one.name) for one in fields(kind) if one.name in own})

    @field_validator("*", mode="before")
    @classmethod
    def _whole(cls, value: object) -> object:
        # Files, servers and Kafka treat it as the end of a text.
        if isinstance(value, str) and "\0" in value:
            raise ValueError("it contains a NUL character")
        return value


class Server(Section):
    """A MySQL or MariaDB server: its address and login."""

    url: Url = Field(repr=False, description="mysql://user[:password]@host[:port]/[?parameters]")
    password: SecretStr | None = Field(default=None, description="the password, instead of in the url")
    password_file: Path | None = Field(default=None, description="a file that contains only the password")


class Source(Server):
    """The upstream server, whose binlog is replicated."""

    url: Url = Field(
        repr=False,
        description="the upstream, mysql:// or mariadb://; `tailrace check` lists the rights that its user needs",
        examples=["mysql://replicator@127.0.0.1:3306"],
    )
    server_id: int | None = Field(
        default=None,
        ge=1,
        le=2**32 - 1,
        examples=[7001],
        description="replica id, unique among the upstream's replicas; default: derived from host and prefix",
    )
    start: Start = Field(
        default="copy",
        description="where a producer without a relay log starts: copy: at the present end, with a copy of all tables;"
        " earliest: at the oldest binlog, which must be the first one; current: at the present end",
    )


# mypy treats models as dataclasses, and does not see that these are frozen.
class Relay(Section, RelaySettings):  # type: ignore[misc]
    """The relay log: the upstream's binlog on the producer's own disk."""


class Purge(Section, PurgeRules):  # type: ignore[misc]
    """Rules for deleting relay files. Files that the publisher or a reader needs are kept."""


class Kafka(Section):
    """The epoch log."""

    bootstrap_servers: str = Field(
        default="127.0.0.1:9092", min_length=1, description="host:port, comma-separated"
    )
    prefix: str = Field(
        default="tailrace",
        # It is also the name of a folder.
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
        default="plaintext", description="whether the brokers use encryption (ssl) and require a login (sasl)"
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        default="SCRAM-SHA-512", description="the SASL mechanism of the login"
    )
    sasl_username: str = Field(default="", examples=["tailrace"], description="the user name of the login")
    sasl_password: SecretStr | None = Field(default=None, description="the password of sasl-username")
    sasl_password_file: Path | None = Field(
        default=None, description="a file that contains only the password"
    )
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
            raise ValueError("ssl-certificate and ssl-key must be set together")
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


class Copy(Section, CopySettings):  # type: ignore[misc]
    """Copies of the upstream's tables into the epoch log."""


class Epoch(Section, EpochSettings):  # type: ignore[misc]
    """Limits of an epoch, a series of upstream transactions. The first limit that is reached ends it."""


class Target(Server):
    """The downstream: a server that becomes equal to the upstream, or a folder for change files."""

    url: Annotated[str, AfterValidator(_target_url)] = Field(
        repr=False,
        description="the downstream, mysql:// or mariadb://; or parquet:/folder for change files, see docs/REPLAY.md",
        examples=["mysql://applier@127.0.0.1:3307"],
    )


class Consumer(Section, ConsumerSettings):  # type: ignore[misc]
    """The consumer, a Structured Streaming job."""

    spark: Annotated[dict[str, str], BeforeValidator(flatten_spark)] = Field(
        default_factory=dict,
        examples=[{"spark.driver.memory": "1g"}],
        description="Spark properties; quote a name that is the start of another one",
    )


class Validate(Section):
    """`tailrace validate --follow`, which validates a channel's rows without end."""

    every: Span = Field(
        default=86_400, description="how often all rows of a table are validated again: 90m, 24h"
    )


class Serve(Section):
    """`tailrace serve`, the page of the pipeline; see docs/SERVE.md."""

    listen: Annotated[str, AfterValidator(_address)] = Field(
        default="127.0.0.1:8686", description="where the page listens, host:port"
    )
    token: SecretStr | None = Field(
        default=None, description="what reading and actions ask for; default: a file with a random one"
    )
    token_file: Path | None = Field(default=None, description="a file that contains only the token")
    read_without_token: bool = Field(
        default=False, description="whether all users of this machine may read the page, rows included"
    )
    actions_file: Path = Field(
        default=Path("serve/actions.jsonl"),
        description="where each action is recorded; the random token is in its folder",
    )


class Metrics(Section):
    """Metrics for Prometheus, /healthz and /readyz; see docs/METRICS.md."""

    listen: Annotated[str, AfterValidator(listen_text)] = Field(
        default="127.0.0.1:9464",
        description="where the producer listens, host:port; each channel's consumer takes one of the next ports;"
        " empty or off: nothing listens",
    )
    token: SecretStr | None = Field(
        default=None,
        description="what /metrics asks for (Authorization: Bearer); default: a file with a random one",
    )
    token_file: Path | None = Field(default=None, description="a file that contains only the token")

    @model_validator(mode="after")
    def _protected(self) -> Metrics:
        is_open = not (self.token and self.token.get_secret_value()) and self.token_file is None
        if self.listen and is_open and not ListenAddress.parse(self.listen).is_loopback:
            raise ValueError(f"{self.listen} can be reached by others: it needs token or token-file")
        return self


class Tables(Section):
    """Which tables are replicated. Patterns are <database>.<table>, with * and ? as wildcards."""

    include: tuple[Pattern, ...] = Field(
        default=(), description="patterns of tables to replicate; empty: all", examples=[["shop.*"]]
    )
    exclude: tuple[Pattern, ...] = Field(
        default=(), description="patterns of tables to leave out", examples=[["shop.tmp_*"]]
    )


class Filter(Section, EventRule):  # type: ignore[misc]
    """A rule of the binlog event filter: which kinds of events are applied."""

    @model_validator(mode="after")
    def _usable(self) -> Filter:
        _checked(lambda: self.plain(EventRule))
        return self


class RouteRule(Section, Route):  # type: ignore[misc]
    """A rule of the table router: the downstream's names of schemas and tables."""

    @model_validator(mode="after")
    def _usable(self) -> RouteRule:
        _checked(lambda: Router((self.plain(Route),)))
        return self


class Expression(Section, ExpressionRule):  # type: ignore[misc]
    """A rule of the expression filter: the rows of a table that are left out because an expression is true."""

    @model_validator(mode="after")
    def _usable(self) -> Expression:
        _checked(lambda: self.plain(ExpressionRule))
        if all(text is None for name, text in self if name.endswith("_expr")):
            raise ValueError("a rule needs an expression")
        return self


class Ddl(Section, DdlOptions):  # type: ignore[misc]
    """DDL on other objects than tables, and online schema changes; see docs/DDL.md."""

    @model_validator(mode="after")
    def _usable(self) -> Ddl:
        _checked(lambda: self.plain(DdlOptions))
        return self


class Skip(Section, SkipRule):  # type: ignore[misc]
    """A rule for events that cannot be replicated: they are left out and counted instead of stopping the producer."""


_COMMON = ("channel", "checkpoint_dir")  # the same for all channels
_SETTINGS: dict[str, Any] = get_type_hints(ConsumerSettings, include_extras=True)
_own: dict[str, Any] = {name: (kind | None, None) for name, kind in _SETTINGS.items() if name not in _COMMON}
_OwnSettings: Any = create_model("_OwnSettings", __base__=Section, **_own)


class Channel(_OwnSettings):  # type: ignore[misc]
    """A channel's own settings: fields of [consumer], and these; each replaces the common one."""

    target: Target | None = None
    tables: Tables | None = None
    filters: tuple[Filter, ...] | None = None
    routes: tuple[RouteRule, ...] | None = None
    expression_filter: tuple[Expression, ...] | None = None
    ddl: Ddl | None = None


def _checked(make: Callable[[], object]) -> None:
    try:
        make()
    except TailraceError as error:
        raise ValueError(f"{error.message}. {error.hint}") from None


class Config(BaseSettings):
    """Tailrace's configuration."""

    model_config = SettingsConfigDict(
        env_prefix="TAILRACE_",
        env_prefix_target="all",
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
    # Pydantic's models have a method `copy`.
    copies: Copy = Field(default=Copy(), alias="copy")
    target: Target | None = None
    consumer: Consumer = Consumer()
    # Pydantic's models have a method `validate` too.
    validation: Validate = Field(default=Validate(), alias="validate")
    serve: Serve = Serve()
    metrics: Metrics = Metrics()
    tables: Tables = Tables()
    filters: tuple[Filter, ...] = ()
    routes: tuple[RouteRule, ...] = ()
    expression_filter: tuple[Expression, ...] = ()
    ddl: Ddl = Ddl()
    skip: tuple[Skip, ...] = ()
    channel: dict[Annotated[str, Field(pattern=CHANNEL_NAME)], Channel] = {}

    def for_channel(self, name: str) -> Config:
        """Return the configuration with a channel's own settings in place of the common ones.

        Raises ConfigError TR103 for an invalid name.
        """
        if not re.fullmatch(CHANNEL_NAME, name):
            raise ConfigError(
                "TR103",
                f"{name!r} is not a valid channel name",
                hint="use at most 64 letters, digits and _ . -; the first must not be . or -",
            )
        own = self.channel.get(name)
        if own is None:
            return self
        settings = {field: value for field, value in own if value is not None}
        outer = {field: value for field, value in settings.items() if field in type(self).model_fields}
        consumer = {field: value for field, value in settings.items() if field not in outer}
        return self.model_copy(update={**outer, "consumer": self.consumer.model_copy(update=consumer)})

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], *_: Any, **sources: PydanticBaseSettingsSource
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Let the environment override the file, whose content is passed as arguments."""
        return sources["env_settings"], sources["init_settings"]
