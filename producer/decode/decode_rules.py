"""What of a binlog becomes records, what is passed over, and where to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from producer.decode.row_decoder import SchemaName
from producer.epochs.open_epoch import EpochLimits
from producer.settings import Skippable, SkipRule
from schemas.ddl.kinds import ClassifiedStatement
from schemas.errors import DecodeError, Where
from schemas.gtid.sets import Flavor, GtidSet
from schemas.tables import TableFilter
from schemas.wire.avro_schema import fingerprint_of

log = structlog.get_logger()


def _no_rows(db: str, table: str) -> bool:
    return False


def _no_ddl(statement: ClassifiedStatement) -> bool:
    return False


@dataclass(frozen=True)
class LeftOut:
    """What is left out of the log because of copies, as of now.

    Attributes:
        rows: whether a table's rows are left out until its copy begins.
        ddl: whether a DDL is, since the log does not have what it changes.
    """

    rows: Callable[[str, str], bool] = _no_rows
    ddl: Callable[[ClassifiedStatement], bool] = _no_ddl


@dataclass(frozen=True)
class DecodeRules:
    """What the operator wants of a binlog.

    Attributes:
        tables: those that are replicated.
        accounts: whether statements on accounts, which may hold passwords, are published.
        skip: rules for events that cannot be replicated and are skipped.
        schema_name: what names a structure's schema on the wire.
        stop_behind: stop exactly behind this GTID set.
    """

    flavor: Flavor
    tables: TableFilter
    limits: EpochLimits
    accounts: bool = False
    skip: tuple[SkipRule, ...] = ()
    schema_name: SchemaName = fingerprint_of
    stop_behind: GtidSet | None = None


class Skipping:
    """Passes over what cannot be replicated, if a rule says so; each use is counted, and the first one reported."""

    def __init__(self, rules: Iterable[SkipRule] = ()) -> None:
        self._rules = tuple(rules)
        self._reported: set[tuple[str, str, str]] = set()

    def passes_over(
        self, kind: Skippable, tables: Iterable[tuple[str, str]], error: DecodeError, where: Where
    ) -> tuple[tuple[str, str, str], ...]:
        """Return the counter keys if a rule skips an event of these tables; otherwise raise ``error``."""
        names = list(dict.fromkeys(tables))
        if not names or not all(any(rule.allows(*name, kind) for rule in self._rules) for name in names):
            raise error
        counted = tuple((*name, kind) for name in names)
        for db, table, _ in counted:
            if (db, table, kind) not in self._reported:
                self._reported.add((db, table, kind))
                log.warning(
                    "skipping", table=f"{db}.{table}", kind=kind, where=str(where), reason=error.message
                )
        return counted
