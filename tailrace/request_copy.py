"""Asks the producer of this machine for copies of tables; ``producer.copy.requests`` describes the request."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from producer.copy.requests import CopyRequest, is_waiting, write_request
from producer.copy.state import Step, load
from producer.copy.upstream_reader import UpstreamReader
from producer.kafka.epoch_log import EpochLog
from producer.run import ProducerConfig
from producer.upstream.connect import connected, describe, query
from relay_store.layout.directory import check_here
from schemas.counted import counted
from schemas.errors import ConfigError
from schemas.letter_case import lowered
from schemas.tables import QualifiedName, TableFilter
from tailrace.service.status_socket import PRODUCER, query_status

_TABLES = (
    "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES"
    " WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED', 'SEQUENCE')"
)
_PATIENCE, _PAUSE = 10.0, 0.1  # seconds


def ask_for_copy(config: ProducerConfig, patterns: Sequence[str]) -> list[str]:
    """Ask for a copy of tables.

    Args:
        patterns: as in ``[tables] include``; none for all tables.

    Returns:
        lines for the operator: what was asked for, and who takes it.

    Raises:
        ConfigError: TR113, no such table is replicated; TR130, an invalid pattern.
        UpstreamError: TR212, a table cannot be copied.
        RelayError: TR340, there is no relay log; TR324, another request waits.
    """
    check_here(config.relay.dir, config.prefix)
    tables = _Tables.read(config)
    found = tables.matching(patterns)
    tables.check(found)
    request = CopyRequest(tuple(map(lowered, patterns)) if tables.folds else tuple(patterns))
    write_request(config.relay.dir, request)
    what = f"asked for a copy of {counted(len(found), 'table')}: {_listed(found)}"
    return [what, _taker(config, request)]


def cancel_copies(config: ProducerConfig) -> list[str]:
    """Ask for copies that have not begun to be dropped; otherwise as ``ask_for_copy``."""
    check_here(config.relay.dir, config.prefix)
    request = CopyRequest(cancel=True)
    write_request(config.relay.dir, request)
    lines = ["asked to drop the copies that have not begun", _taker(config, request)]
    if not is_waiting(config.relay.dir, request) and (tables := _going_on(config)):
        lines.append(f"these go on, because rows would be missing downstream without them: {_listed(tables)}")
    return lines


@dataclass(frozen=True)
class _Tables:
    """The upstream's tables."""

    config: ProducerConfig
    folds: bool
    names: tuple[QualifiedName, ...]

    @classmethod
    def read(cls, config: ProducerConfig) -> _Tables:
        folds = describe(config.source).folds
        with connected(config.source) as connection:
            names = [(str(db), str(name)) for db, name in query(connection, _TABLES)]
        if folds:
            names = [(lowered(db), lowered(name)) for db, name in names]
        return cls(config, folds, tuple(sorted(names)))

    @property
    def replicated(self) -> TableFilter:
        return TableFilter(self.config.include, self.config.exclude, folds=self.folds)

    def matching(self, patterns: Sequence[str]) -> list[QualifiedName]:
        """The replicated tables that match a pattern. Raises ConfigError TR113 if one matches none."""
        replicated = self.replicated
        for pattern in patterns:
            wanted = TableFilter([pattern], folds=self.folds, fields=("copy", "copy"))
            matched = [name for name in self.names if wanted.allows(*name)]
            if not any(replicated.allows(*name) for name in matched):
                raise ConfigError(
                    "TR113",
                    f"{pattern} is not replicated: [tables] include and exclude leave it out"
                    if matched
                    else f"the upstream has no table {pattern}",
                    hint="nothing was asked for; write tables as in [tables] include: db.table, with * and ?",
                )
        wanted = TableFilter(patterns, folds=self.folds)
        return [name for name in self.names if replicated.allows(*name) and wanted.allows(*name)]

    def check(self, names: Sequence[QualifiedName]) -> None:
        """Raise UpstreamError TR212 if one of these cannot be copied."""
        reader = UpstreamReader(self.config.source, self.replicated, self.config.copy)
        try:
            for name in names:
                reader.check(name)
        finally:
            reader.close()


def _taker(config: ProducerConfig, request: CopyRequest) -> str:
    """Wait a moment for the producer to take a request; returns a line about that."""
    root = config.relay.dir
    if query_status(root, PRODUCER) is None:
        return "no producer runs with this relay directory; the next one to start takes the request"
    deadline = time.monotonic() + _PATIENCE
    while is_waiting(root, request):
        if time.monotonic() > deadline:
            return "the producer takes the request later; it does not while another copy begins"
        time.sleep(_PAUSE)
    return "the producer has taken the request; `tailrace status` shows the copy, and tables that are left out of it"


def _going_on(config: ProducerConfig) -> list[QualifiedName]:
    log = EpochLog(config.bootstrap_servers, config.prefix, config.partitions, config.kafka_security)
    _, copies = load(log.topics.read_state().tracked)
    return sorted(name for name, copy in copies.items() if copy.step is not Step.DONE)


def _listed(names: Sequence[QualifiedName], most: int = 10) -> str:
    shown = ", ".join(".".join(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"
