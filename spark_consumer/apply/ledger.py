"""Uses the downstream's GTIDs as a ledger of what the channel has applied; needed for DDL, which commits implicitly.

On MySQL every slice and every DDL, on MariaDB every DDL runs under the next number of the channel's own GTID source.
The numbers grow and the last one is part of the position, so after a crash the DDL has happened if the number after the
position's is among the executed ones. It depends on the server:

- MySQL with ``gtid_mode=ON``: ``gtid_next`` before, ``gtid_executed`` after.
- MariaDB with its binlog on: ``gtid_domain_id`` and ``gtid_seq_no`` before, ``gtid_binlog_pos`` after. Only DDL
  has a number there: a transaction that writes to a sequence, or to a table without transactions, is logged as several
  groups and would use the numbers of later statements.
- Otherwise (``Ledger``) the objects decide (``spark_consumer.apply.ddl.outcome``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pymysql
import structlog

from spark_consumer.epochs.position import Position
from spark_consumer.target.session import Session, error_number, message_of

_DENIED = frozenset({1227, 1045, 1142, 1238})
# MariaDB in strict mode: the number is already used, as after a crash after a DDL. So numbers can be set.
_USED = 1950
_log = structlog.get_logger()


class Ledger:
    """Sets and checks the channel's numbers. The base class is for servers where they cannot be set."""

    #: whether ``is_executed`` is known for each DDL
    is_proof = False

    def set_number(self, session: Session, number: int) -> None:
        """Set the ledger number of the session's next DDL."""

    def set_transaction_number(self, session: Session, number: int) -> None:
        """Set the ledger number of the session's next transaction."""

    def skip(self, session: Session, numbers: range) -> None:
        """Mark unused numbers as used."""

    def reset(self, session: Session) -> None:
        """Reset the session to automatic numbering."""

    def is_executed(self, session: Session, number: int) -> bool:
        """Whether the server has executed something under this number."""
        return False


@contextmanager
def numbered_transaction(session: Session, ledger: Ledger, number: int) -> Iterator[None]:
    """Open a transaction under a number of the ledger. The block commits it; an exception rolls it back."""
    ledger.set_transaction_number(session, number)
    try:
        session.execute("BEGIN")
        yield
    except BaseException:
        with suppress(pymysql.MySQLError, OSError):
            session.execute("ROLLBACK")
        raise
    finally:
        with suppress(pymysql.MySQLError, OSError):
            ledger.reset(session)


class MysqlLedger(Ledger):
    """GTIDs ``<ledger uuid>:<number>``."""

    is_proof = True

    def __init__(self, source: str) -> None:
        self._source = source

    def set_number(self, session: Session, number: int) -> None:
        session.execute(f"SET SESSION gtid_next = '{self._source}:{number}'")

    def set_transaction_number(self, session: Session, number: int) -> None:
        self.set_number(session, number)

    def skip(self, session: Session, numbers: range) -> None:
        for number in numbers:
            self.set_number(session, number)
            # An empty transaction uses its GTID; the server ignores one whose GTID is already used.
            session.execute("BEGIN")
            session.execute("COMMIT")
        self.reset(session)

    def reset(self, session: Session) -> None:
        session.execute("SET SESSION gtid_next = 'AUTOMATIC'")

    def is_executed(self, session: Session, number: int) -> bool:
        gtid = f"{self._source}:{number}"
        return bool(session.value("SELECT GTID_SUBSET(%s, @@GLOBAL.gtid_executed)", (gtid,)))


class MariadbLedger(Ledger):
    """GTIDs ``<ledger domain>-<server>-<number>``."""

    is_proof = True

    def __init__(self, domain: int) -> None:
        self._domain = domain

    def set_number(self, session: Session, number: int) -> None:
        # Two statements, because the server checks the number against the current domain.
        session.execute(f"SET SESSION gtid_domain_id = {self._domain}")
        session.execute(f"SET SESSION gtid_seq_no = {number}")

    def reset(self, session: Session) -> None:
        session.execute("SET SESSION gtid_seq_no = 0")
        session.execute("SET SESSION gtid_domain_id = DEFAULT")

    def is_executed(self, session: Session, number: int) -> bool:
        executed = str(session.value("SELECT @@GLOBAL.gtid_binlog_pos") or "")
        for gtid in executed.split(","):
            parts = gtid.strip().split("-")
            if len(parts) == 3 and int(parts[0]) == self._domain:
                return int(parts[2]) >= number
        return False


def choose_ledger(session: Session, position: Position) -> Ledger:
    """Choose the ledger by trying to set a number."""
    ledger: Ledger
    if session.flavor == "mariadb":
        on = bool(session.value("SELECT @@GLOBAL.log_bin"))
        ledger = MariadbLedger(position.ledger_domain)
    else:
        on = session.value("SELECT @@GLOBAL.gtid_mode") == "ON"
        ledger = MysqlLedger(position.ledger_uuid)
    if not on:
        return Ledger()
    try:
        # Setting a number and resetting it has no lasting effect on either server.
        ledger.set_number(session, position.ledger_seq + 1)
        # MySQL reserves the number until the rollback.
        session.execute("ROLLBACK")
        ledger.reset(session)
    except pymysql.MySQLError as error:
        if error_number(error) == _USED:
            ledger.reset(session)
            return ledger
        if error_number(error) not in _DENIED:
            raise
        _log.warning("ledger_not_permitted", reason=message_of(error), fallback="the objects")
        return Ledger()
    return ledger
