"""Connections to the upstream, and what the upstream says about itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import pymysql
from pymysql.connections import Connection

from schemas.access.server_login import connect as open_connection
from schemas.access.server_login import login_hint
from schemas.access.server_url import ServerUrl
from schemas.errors import UpstreamError
from schemas.gtid.sets import Flavor, GtidSet, empty_gtid_set, parse_gtid_set
from schemas.names import binlog_file, server_uuid

READ_TIMEOUT = 30.0  # seconds
# Bytes of an answer: far more than GTID sets and lists of files have.
_MAX_ANSWER = 64 << 20
# Access denied (three kinds), no privilege, account locked, password expired: waiting does not heal these.
_DENIED = frozenset({1044, 1045, 1227, 1698, 1862, 1820, 3118, 3955})
# A query was killed, or took longer than max_statement_time.
_INTERRUPTED = frozenset({1317, 1969})
# Raised by answers that no server gives: no row, no number, no GTID set, a name that cannot be one, no time.
_INVALID_ANSWER = (ValueError, LookupError, TypeError, OverflowError)


@dataclass(frozen=True)
class UpstreamInfo:
    """A server as it was at one moment; settings are None where the server has no such variable."""

    flavor: Flavor
    version: str
    server_uuid: str  # made up from the server id on MariaDB, which has none
    server_id: int
    log_bin: bool
    gtid_mode: str | None
    executed: GtidSet
    purged: GtidSet  # of MySQL; empty on MariaDB
    file: str
    position: int
    files: tuple[tuple[str, int], ...]  # the binlog files it still has, oldest first, with their sizes
    binlog_format: str | None
    row_image: str | None
    row_metadata: str | None
    binlog_checksum: str
    folds: bool = False  # names of databases and tables are compared without their letters' cases
    default_engine: str | None = None

    @property
    def has_gtids(self) -> bool:
        """Whether every transaction in its binlogs has a GTID."""
        return self.flavor == "mariadb" or self.gtid_mode == "ON"


def connect(url: ServerUrl, **options: Any) -> Connection[Any]:
    """Open a connection in autocommit mode with a read timeout of READ_TIMEOUT seconds.

    Raises UpstreamError TR201 (retryable) or TR202 (access denied).
    """
    options = {"read_timeout": READ_TIMEOUT, **options}
    try:
        return open_connection(url, **({"max_answer": _MAX_ANSWER} | options))
    except pymysql.err.MySQLError as error:
        raise connection_error(error, url) from error


@contextmanager
def connected(url: ServerUrl, **options: Any) -> Iterator[Connection[Any]]:
    """Open a connection for the ``with`` block, whose errors become UpstreamError; see ``connect``."""
    with closing(connect(url, **options)) as connection, upstream_errors(url):
        yield connection


@contextmanager
def upstream_errors(url: ServerUrl) -> Iterator[None]:
    """Raise errors of the driver and of reading answers as UpstreamError: TR201, TR202, TR209."""
    try:
        yield
    except (pymysql.err.MySQLError, OSError) as error:
        raise connection_error(error, url) from error
    except _INVALID_ANSWER as error:
        raise UpstreamError(
            "TR209",
            f"{url} says of itself what no server says: {error or type(error).__name__}",
            hint="nothing was done with it; see what answers at this address: on a line that is not encrypted, anybody"
            " may",
        ) from error


class LoginRefused(UpstreamError):
    """TR202: the account may not log in, or not do what replication needs."""


def connection_error(error: Exception, url: ServerUrl) -> UpstreamError:
    """Return the error for an error of the driver or socket: TR201 or TR202, with the server's own words."""
    number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = str(error.args[-1]) if error.args else str(error)
    if number in _DENIED:
        hint = "check user and password; replication needs REPLICATION SLAVE and REPLICATION CLIENT"
        hint += " (MariaDB: BINLOG MONITOR)" + login_hint(url, error)
        return LoginRefused("TR202", f"{url} refused: {text}", hint=hint)
    hint = "check that the server is up and can be reached from here"
    return UpstreamError("TR201", f"{url} cannot be reached: {text}", hint=hint, retryable=True)


def describe(url: ServerUrl) -> UpstreamInfo:
    """Read the server information that mirror, `check` and `status` need. Raises UpstreamError."""
    with connected(url) as connection:
        return _describe(connection)


def synthetic_uuid(domain: int, server_id: int) -> str:
    """A stable UUID for a MariaDB server: "MariaDB" in ASCII, then GTID domain and server id in hexadecimal."""
    digits = f"{domain:08x}{server_id:08x}"
    return f"4d617269-6144-4200-{digits[:4]}-{digits[4:]}"


def variable(connection: Connection[Any], name: str) -> str | None:
    """A global variable's value, None if the server does not know it."""
    rows = query(connection, f"SHOW GLOBAL VARIABLES LIKE '{name}'")
    return str(rows[0][1]) if rows else None


def query(connection: Connection[Any], sql: str, arguments: Sequence[Any] = ()) -> Sequence[tuple[Any, ...]]:
    """The rows of a query, into which the driver puts the arguments in quotes.

    Raises pymysql.MySQLError, also if rows may be missing because the query was killed.
    """
    with connection.cursor() as cursor:
        cursor.execute(sql, arguments or None)
        rows: Sequence[tuple[Any, ...]] = cursor.fetchall()
        if cursor.warning_count:
            # MariaDB ends some queries of information_schema with a warning and no rows.
            cursor.execute("SHOW WARNINGS")
            for _, number, text in cursor.fetchall():
                if number in _INTERRUPTED:
                    raise pymysql.err.OperationalError(number, text)
        return rows


def _describe(connection: Connection[Any]) -> UpstreamInfo:
    version = str(query(connection, "SELECT VERSION()")[0][0])
    flavor: Flavor = "mariadb" if "mariadb" in version.lower() else "mysql"
    server_id = int(variable(connection, "server_id") or 0)
    log_bin = variable(connection, "log_bin") == "ON"
    file, position, executed = _current(connection, flavor) if log_bin else ("", 4, "")
    rows = query(connection, "SHOW BINARY LOGS") if log_bin else []
    return UpstreamInfo(
        flavor=flavor,
        version=version,
        server_uuid=server_uuid(
            variable(connection, "server_uuid")
            or synthetic_uuid(int(variable(connection, "gtid_domain_id") or 0), server_id)
        ),
        server_id=server_id,
        log_bin=log_bin,
        gtid_mode=variable(connection, "gtid_mode"),
        executed=parse_gtid_set(executed, flavor),
        purged=parse_gtid_set(variable(connection, "gtid_purged") or "", flavor)
        if flavor == "mysql"
        else empty_gtid_set(flavor),
        file=file,
        position=position,
        files=tuple((binlog_file(str(row[0]))[0], int(row[1])) for row in rows),
        binlog_format=variable(connection, "binlog_format"),
        row_image=variable(connection, "binlog_row_image"),
        row_metadata=variable(connection, "binlog_row_metadata"),
        binlog_checksum=variable(connection, "binlog_checksum") or "NONE",
        folds=variable(connection, "lower_case_table_names") not in (None, "0"),
        default_engine=variable(connection, "default_storage_engine"),
    )


def _current(connection: Connection[Any], flavor: Flavor) -> tuple[str, int, str]:
    """File, position and the GTID set executed up to exactly there."""
    if flavor == "mariadb":
        # With gtid_strict_mode off the last number need not be the highest. Read first, so that it is not ahead.
        each = query(connection, "SELECT @@global.gtid_binlog_state")[0][0]
        row = query(connection, "SHOW MASTER STATUS")[0]
        # May be NULL for a position in a file that has no GTID yet.
        gtids = query(connection, "SELECT BINLOG_GTID_POS(%s, %s)", (str(row[0]), int(row[1])))[0][0]
        return binlog_file(str(row[0]))[0], int(row[1]), f"{each or ''},{gtids or ''}"
    try:
        row = query(connection, "SHOW BINARY LOG STATUS")[0]
    except pymysql.err.ProgrammingError:  # before 8.2 it had the old name only
        row = query(connection, "SHOW MASTER STATUS")[0]
    return binlog_file(str(row[0]))[0], int(row[1]), str(row[4] or "")


def purged(url: ServerUrl, info: UpstreamInfo, missing: str) -> UpstreamError:
    """The error for what a relay log needs and the upstream has no more."""
    earliest = info.files[0][0]
    return UpstreamError(
        "TR204",
        f"{url} no longer has {missing}; its earliest binlog file is {earliest}",
        hint="what was purged can be had from a copy of the tables only: make one, move the relay directory away, and"
        " begin a log of another kafka.prefix, for this one would have a gap: relay.relay-binlog-gtid is what the copy"
        f" holds, or relay.relay-binlog-name {earliest} or later, whatever is missing; keep binlogs longer from now on"
        " (binlog_expire_logs_seconds)",
    )


def set_at_start(url: ServerUrl, info: UpstreamInfo, file: str) -> GtidSet:
    """The set that a binlog file's own PREVIOUS_GTIDS or GTID_LIST event names. Raises UpstreamError."""
    with connected(url) as connection:
        rows = query(connection, "SHOW BINLOG EVENTS IN %s LIMIT 3", (file,))
        texts = [str(row[5]) for row in rows if row[2] in ("Previous_gtids", "Gtid_list")]
        return parse_gtid_set(texts[0].strip("[]"), info.flavor) if texts else empty_gtid_set(info.flavor)
