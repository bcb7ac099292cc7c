"""Carries out what a statement does to the open epoch and to the transaction that it stands in."""

from __future__ import annotations

from producer.decode.decode_rules import DecodeRules
from producer.decode.logged_statement import (
    Effect,
    LoggedStatement,
    effect_of,
    is_replicated,
    not_logged,
    read_statement,
    tables_not_logged,
)
from producer.decode.schema_changes import SchemaChanges
from producer.decode.skipping import Skipping
from producer.decode.transaction import Savepoints, Transaction, savepoint_name
from producer.epochs.open_epoch import OpenEpoch
from producer.structures.store import ReadPosition
from schemas.errors import DecodeError, Where

_ROLLED_BACK = (
    "compare the tables concerned with the upstream's behind this transaction; copy them anew and start behind this "
    "position"
)
_TOO_MANY = (
    "a transaction of more rows than are held back was not committed, or rolled back to a savepoint: copy the tables "
    "concerned anew and start behind this position"
)


class Statements:
    """Takes statements in.

    Args:
        skipping: what may be passed over.
        schema_changes: carries DDL out.
    """

    def __init__(self, rules: DecodeRules, skipping: Skipping, schema_changes: SchemaChanges) -> None:
        self._rules, self._skipping, self._schema_changes = rules, skipping, schema_changes

    def take_in(
        self, event: bytes, checksum: int, epoch: OpenEpoch, transaction: Transaction, here: ReadPosition
    ) -> bool:
        """Take in a QUERY event that frames nothing.

        Args:
            checksum: bytes of it, at the event's end.
            here: where the event is.

        Returns False for a DDL that must wait until the open epoch is sealed.

        Raises:
            DecodeError: it cannot be replicated.
        """
        tables = self._rules.tables
        found = read_statement(event, checksum, self._rules.flavor, folds=tables.folds)
        effect = effect_of(found, accounts=self._rules.accounts)
        if effect is Effect.TRANSACTION:
            _roll_back(found.statement.kind, found.query.statement, epoch, transaction)
        elif effect is Effect.DDL:
            return not is_replicated(found.statement, tables) or self._ddl(found, epoch, transaction, here)
        elif effect is Effect.NOT_LOGGED:
            self._pass_over(found, transaction, here)
        return True

    def _ddl(
        self, found: LoggedStatement, epoch: OpenEpoch, transaction: Transaction, here: ReadPosition
    ) -> bool:
        if epoch.seq > transaction.first or epoch.ddl is not None:
            raise DecodeError("TR404", f"{found.statement.kind} behind row changes of the same transaction")
        if not epoch.empty:
            return False
        epoch.ddl = self._schema_changes.carry_out(found, here)
        return True

    def _pass_over(self, found: LoggedStatement, transaction: Transaction, here: ReadPosition) -> None:
        """A statement whose effect is not in the log: pass it over if the rules say so, else stop."""
        tables = self._rules.tables
        names = tables_not_logged(found, self._rules.flavor, folds=tables.folds)
        if found.moves_files and not any(tables.allows(*name) for name in names):
            return
        where = Where(transaction.gtid, here.relay.file, here.relay.pos)
        transaction.skipped += self._skipping.passes_over("statement", names, not_logged(found), where)


def _roll_back(kind: str, text: str, epoch: OpenEpoch, transaction: Transaction) -> None:
    """A savepoint is remembered; what was rolled back did not happen.

    Rows of tables without transactions, which would stay, are never among them: servers log those in groups of
    their own. Source: MySQL sql/log_event.cc, Rows_log_event; MariaDB sql/log.cc, use_trans_cache.
    """
    if kind == "SAVEPOINT":
        transaction.savepoints = transaction.savepoints or Savepoints()
        transaction.savepoints.add(savepoint_name(text), epoch.seq)
    elif kind in ("ROLLBACK", "ROLLBACK TO") and epoch.seq > transaction.first:
        kept: int | None = transaction.first
        if kind == "ROLLBACK TO":
            savepoints = transaction.savepoints or Savepoints()
            kept = savepoints.find(savepoint_name(text))
        if kept is None or epoch.ddl is not None:
            raise DecodeError(
                "TR407", f"rows are rolled back, and it is not sure which: {text[:200]}", hint=_ROLLED_BACK
            )
        take_back(epoch, epoch.seq - kept)


def take_back(epoch: OpenEpoch, rows: int) -> None:
    """The open epoch's last rows did not happen.

    Raises:
        DecodeError: TR415, they were handed out already.
    """
    if rows > len(epoch.records):
        raise DecodeError(
            "TR415", "rows did not take place after all, and were handed on already", hint=_TOO_MANY
        )
    epoch.drop_last(rows)
