"""The tree of all errors. Each has what happened, where, what to do, and whether a retry can help.

TailraceError
├── ConfigError        TR1xx  the configuration file, a flag, an environment variable
├── UpstreamError      TR2xx  the source server: unreachable, purged, wrong settings
├── RelayError         TR3xx  the relay log on disk: incomplete, damaged, locked, disk full
├── DecodeError        TR4xx  a binlog event that cannot be decoded without guessing
├── LogError           TR5xx  the epoch log in Kafka: unreachable, fenced, gap, lost records
├── DownstreamError    TR6xx  the target server: refused statement, unexpected row count, fenced
└── StackError         TR7xx  the embedded servers of demo and tests, and fetched jars
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, Self


class ExitCode(IntEnum):
    """Exit codes of every command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    PREFLIGHT = 3
    DIVERGED = 4
    DAMAGED = 5
    STOPPED = 6
    BEHIND = 7
    #: an error that may pass: another start of the same command may succeed (EX_TEMPFAIL of sysexits.h)
    MAY_PASS = 75


#: number of a DDL within its epoch; rows count from 0
DDL = -1
#: for ``TailraceError.applied``
NOTHING_APPLIED = "nothing of this batch was applied"


class EventId(NamedTuple):
    """Identifies a row change or DDL of the log by its epoch and its number in the epoch."""

    epoch: int
    seq: int

    def __str__(self) -> str:
        return f"{self.epoch}:{'ddl' if self.seq == DDL else self.seq}"


@dataclass(frozen=True)
class Where:
    """Where an error happened; every part is optional."""

    gtid: str | None = None
    file: str | None = None
    position: int | None = None
    table: str | None = None
    epoch: int | None = None
    event: EventId | None = None
    relay: str | None = None

    def __str__(self) -> str:
        parts = []
        if self.file is not None:
            parts.append(self.file if self.position is None else f"{self.file}:{self.position}")
        if self.gtid:
            parts.append(f"gtid {self.gtid}")
        if self.table:
            parts.append(f"table {self.table}")
        if self.epoch is not None:
            parts.append(f"epoch {self.epoch}")
        if self.event is not None:
            parts.append(f"event {self.event}")
        if self.relay:
            parts.append(f"epoch ends in the relay log at {self.relay}")
        return ", ".join(parts)


NOWHERE = Where()


class TailraceError(Exception):
    """Base of all errors that reach an operator.

    Args:
        code: stable, documented identifier such as ``TR402``.
        what: what happened, in one sentence, without passwords.
        where: GTID, file:position, table, epoch, as far as known.
        hint: what the operator can do about it.
        retryable: whether retrying may succeed without a change.
        another_start: whether another start of the program may succeed although this run cannot wait for that: for a
            lock whose holder is about to end, a failed Kafka client, a log that has changed.
        applied: how much of the current batch is applied, as a part of a sentence; "" without a batch.
    """

    exit_code: ExitCode = ExitCode.FAILED

    def __init__(
        self,
        code: str,
        message: str,
        *,
        where: Where = NOWHERE,
        hint: str = "",
        retryable: bool = False,
        another_start: bool = False,
        applied: str = "",
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.where = where
        self.hint = hint
        self.retryable = retryable
        self.another_start = another_start
        self.applied = applied

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors travel between processes, and some of the classes have arguments of their own.
        return _unpickled, (type(self), self.args), self.__dict__

    def but(self, **changes: Any) -> Self:
        """Return a copy with other attributes, such as ``where`` or ``hint``."""
        changed = type(self).__new__(type(self), *self.args)
        changed.__dict__.update(self.__dict__ | changes)
        changed.args = (changed.code, changed.message)
        return changed

    @property
    def advice(self) -> str:
        """The hint, and how much is applied."""
        return "; ".join(filter(None, (self.hint, self.applied)))

    def __str__(self) -> str:
        place = str(self.where)
        text = f"{self.code}: {self.message}"
        if place:
            text += f" [{place}]"
        if self.advice:
            text += f" Hint: {self.advice}"
        return text

    def as_dict(self) -> dict[str, object]:
        """Return the error as fields for structured logs and ``--json`` output."""
        return {
            "code": self.code,
            "what": self.message,
            "where": str(self.where),
            "hint": self.advice,
            "retryable": self.retryable,
        }


def _unpickled(kind: type[TailraceError], args: tuple[Any, ...]) -> TailraceError:
    return kind.__new__(kind, *args)


class ConfigError(TailraceError):
    """A configuration value that cannot be used."""

    exit_code = ExitCode.USAGE


class UpstreamError(TailraceError):
    """The source server refused, disappeared, or is not configured for row replication."""


class RelayError(TailraceError):
    """The relay log on disk is damaged or cannot be written."""


class DecodeError(TailraceError):
    """A binlog event that cannot be decoded without guessing."""


class LogError(TailraceError):
    """The epoch log in Kafka is unreachable, fenced, or incomplete."""


class DownstreamError(TailraceError):
    """The target server refused a statement, or the effect of a statement does not match the log.

    Args:
        statement: the statement, with long values shortened.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        where: Where = NOWHERE,
        hint: str = "",
        retryable: bool = False,
        another_start: bool = False,
        applied: str = "",
        statement: str | None = None,
    ) -> None:
        super().__init__(
            code,
            message,
            where=where,
            hint=hint,
            retryable=retryable,
            another_start=another_start,
            applied=applied,
        )
        self.statement = statement


class StackError(TailraceError):
    """An embedded server, or a downloaded program or jar, is not available."""
