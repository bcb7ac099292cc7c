"""The sections of the configuration that the producer's parts are handed: each field with default, check, meaning."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from schemas.access.server_url import ServerUrl
from schemas.errors import ConfigError
from schemas.letter_case import lowered
from schemas.settings import Duration, Size, Span, parse_size
from schemas.tables import compile_pattern

MIN_PART_SIZE = 4096  # bytes

#: where a relay log begins: at the upstream's oldest binlog, or at its present end, with or without a copy of tables
Start = Literal["copy", "earliest", "current"]


def _part_size(size: int) -> int:
    if size != 0 and size < MIN_PART_SIZE:
        raise ValueError(f"0, or at least {MIN_PART_SIZE} bytes")
    return size


@dataclass(frozen=True, kw_only=True)
class RelaySettings:
    """The fields of ``[relay]``."""

    dir: Annotated[Path, Field(description="folder of the relay log; relative to this file")] = Path("relay")
    relay_binlog_gtid: Annotated[
        str,
        Field(
            examples=["3e11fa47-71ca-11e1-9e33-c80aa9429562:1-23"],
            description="start a new relay log after this GTID set; takes precedence over source.start",
        ),
    ] = ""
    relay_binlog_name: Annotated[
        str,
        Field(
            examples=["mysql-bin.000005"],
            description="start a new relay log with this binlog file, if the upstream writes no GTIDs",
        ),
    ] = ""
    max_file_size: Annotated[
        int,
        BeforeValidator(parse_size),
        AfterValidator(_part_size),
        Field(
            description="bytes after which a relay file ends at a transaction and continues in another part;"
            " 0: same files as the upstream"
        ),
    ] = 0
    sync_relay_log: Annotated[
        int,
        Field(
            ge=0,
            description="fsync after this many transactions and when the upstream pauses; 1: after each; 0: leave it to"
            " the operating system. In each case transactions are published only when they are on disk",
        ),
    ] = 10_000
    relay_log_recovery: Annotated[
        bool, Field(description="at start, discard unpublished events and fetch them again")
    ] = False


@dataclass(frozen=True)
class EpochSettings:
    """The fields of ``[epoch]``: when an epoch ends, at the next transaction boundary.

    The delay, in seconds, counts from when the epoch before was sealed; so after a pause the first transaction goes
    out at once, and under load there are no more epochs than this allows.
    """

    max_rows: Annotated[int, Field(ge=1, description="rows after which an epoch ends")] = 20_000
    max_bytes: Annotated[
        Size, Field(description="bytes of binlog after which an epoch ends, as a number or like 16MiB")
    ] = 16 << 20
    max_delay: Annotated[
        Duration, Field(description="how long a transaction may wait for others: 200ms, 1s, or seconds")
    ] = 0.2


def replica_url(source: ServerUrl, address: str) -> ServerUrl:
    """The url of a replica, ``host`` or ``host:port``, with the source's account. Raises ConfigError TR150."""
    url = ServerUrl.parse(f"mysql://{address}/")
    params = {name: value for name, value in source.params.items() if name != "unix-socket"}
    return replace(source, host=url.host, port=url.port, params=params)


def _check_replica(text: str) -> str:
    with suppress(ConfigError):
        url = ServerUrl.parse(f"mysql://{text}/")
        if text.lower() in (url.host, f"{url.host}:{url.port}", f"[{url.host}]", f"[{url.host}]:{url.port}"):
            return text
    raise ValueError("a replica is host or host:port")


@dataclass(frozen=True)
class CopySettings:
    """The fields of ``[copy]``: how tables are copied into the log."""

    connections: Annotated[
        int, Field(ge=1, le=64, description="connections to the upstream that read side by side")
    ] = 2
    chunk_rows: Annotated[
        int,
        Field(ge=1, description="rows that are read at a time; fewer if they are large, or it takes long"),
    ] = 50_000
    max_rows_per_s: Annotated[
        int,
        Field(
            ge=0,
            description="rows that all connections together read in a second; 0: as many as they can. A table that has"
            " to be read at one position is read as fast as possible",
        ),
    ] = 0
    max_threads_running: Annotated[
        int,
        Field(
            ge=0,
            description="nothing is read while the upstream's Threads_running is above this; it includes the copy's own"
            " connections; 0: it is not looked at",
        ),
    ] = 0
    read_from: Annotated[
        str,
        AfterValidator(lambda text: text and _check_replica(text)),
        Field(
            description="a replica of the upstream, host or host:port, whose rows are read instead; it has all of the"
            " upstream's rows and no others, and the upstream's account",
            examples=["db2:3306"],
        ),
    ] = ""
    replicas: Annotated[
        tuple[Annotated[str, AfterValidator(_check_replica)], ...],
        Field(
            description="replicas of the upstream, host or host:port: nothing is read while one of them is more than"
            " max-replica-lag behind. The upstream's account must be there too, with REPLICATION CLIENT, on MariaDB"
            " SLAVE MONITOR",
            examples=[["db2:3306"]],
        ),
    ] = ()
    max_replica_lag: Annotated[
        Duration, Field(description="how far the replicas may be behind, as 200ms, 1s, or seconds")
    ] = 5.0
    every: Annotated[
        Span,
        Field(
            description="how often all tables are copied for new channels, as 24h or 7d, so that topics need not be"
            " kept for ever; channels that run pass over these copies; 0: never",
        ),
    ] = 0.0


#: a statement that changes rows by its text; a rows event whose images lack what is needed
Skippable = Literal["statement", "image"]


@dataclass(frozen=True)
class SkipRule:
    """One rule of ``[[skip]]``: what is passed over of which tables."""

    schema_pattern: Annotated[
        str, Field(min_length=1, description="schemas, with * and ? as wildcards", examples=["shop"])
    ]
    table_pattern: Annotated[
        str, Field(min_length=1, description="tables, with * and ? as wildcards", examples=["log_*"])
    ]
    events: Annotated[
        tuple[Skippable, ...],
        Field(
            min_length=1,
            description="statement: DML logged as text; image: rows whose image lacks what is needed",
            examples=[["statement", "image"]],
        ),
    ]

    def in_lower_case(self) -> SkipRule:
        """The rule for a server that has all names in lower case."""
        return replace(
            self, schema_pattern=lowered(self.schema_pattern), table_pattern=lowered(self.table_pattern)
        )

    def allows(self, db: str, table: str, kind: Skippable) -> bool:
        """Whether such an event of a table is passed over."""
        patterns = ((self.schema_pattern, db), (self.table_pattern, table))
        return kind in self.events and all(compile_pattern(p).fullmatch(name) for p, name in patterns)
