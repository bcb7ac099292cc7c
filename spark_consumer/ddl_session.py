"""The upstream session's settings on a downstream connection, so that a DDL means the same there."""

from __future__ import annotations

from typing import Any

import pymysql
import structlog

from schemas.epoch import SchemaChanged
from spark_consumer.session import Flavor, Session, message_of

# Bit numbers of sql_mode in the binlog, the same on both flavours unless noted below.
_SHARED_BITS = {
    0: "REAL_AS_FLOAT",
    1: "PIPES_AS_CONCAT",
    2: "ANSI_QUOTES",
    3: "IGNORE_SPACE",
    5: "ONLY_FULL_GROUP_BY",
    6: "NO_UNSIGNED_SUBTRACTION",
    7: "NO_DIR_IN_CREATE",
    18: "ANSI",
    19: "NO_AUTO_VALUE_ON_ZERO",
    20: "NO_BACKSLASH_ESCAPES",
    21: "STRICT_TRANS_TABLES",
    22: "STRICT_ALL_TABLES",
    23: "NO_ZERO_IN_DATE",
    24: "NO_ZERO_DATE",
    25: "ALLOW_INVALID_DATES",
    26: "ERROR_FOR_DIVISION_BY_ZERO",
    27: "TRADITIONAL",
    29: "HIGH_NOT_PRECEDENCE",
    30: "NO_ENGINE_SUBSTITUTION",
    31: "PAD_CHAR_TO_FULL_LENGTH",
}
_MYSQL_BITS = _SHARED_BITS | {32: "TIME_TRUNCATE_FRACTIONAL"}
_MARIADB_BITS = _SHARED_BITS | {
    4: "IGNORE_BAD_TABLE_OPTIONS",
    8: "POSTGRESQL",
    9: "ORACLE",
    10: "MSSQL",
    11: "DB2",
    12: "MAXDB",
    13: "NO_KEY_OPTIONS",
    14: "NO_TABLE_OPTIONS",
    15: "NO_FIELD_OPTIONS",
    16: "MYSQL323",
    17: "MYSQL40",
    28: "NO_AUTO_CREATE_USER",
    32: "EMPTY_STRING_IS_NULL",
    33: "SIMULTANEOUS_ASSIGNMENT",
    34: "TIME_ROUND_FRACTIONAL",
}
_BITS: dict[str, dict[int, str]] = {"mysql": _MYSQL_BITS, "mariadb": _MARIADB_BITS}
_log = structlog.get_logger()


def sql_mode_text(bits: int, source: str, target: Flavor) -> str:
    """The names of an upstream's sql_mode bits, less those that the target's flavour does not know."""
    known = set(_BITS[target].values())
    names = [name for bit, name in _BITS.get(source, _MYSQL_BITS).items() if bits >> bit & 1]
    return ",".join(name for name in names if name in known)


def prepare(session: Session, ddl: SchemaChanged) -> None:
    """Give the session what the upstream's session had when it ran ``ddl``."""
    if ddl.sql_mode is not None:
        mode = sql_mode_text(ddl.sql_mode, ddl.source_flavor, session.flavor)
        session.run("SET SESSION sql_mode = %s", (mode,))
    _set_collations(session, ddl)
    if ddl.time_zone:
        _try(session, "time_zone", ddl.time_zone)
    session.run("SET SESSION timestamp = %s", (ddl.timestamp,))
    session.run("SET SESSION unique_checks = %s", (int(ddl.unique_checks),))
    session.run("SET SESSION foreign_key_checks = %s", (int(ddl.foreign_key_checks),))
    if ddl.explicit_defaults_for_timestamp is not None:
        wanted = int(ddl.explicit_defaults_for_timestamp)
        if session.value("SELECT @@SESSION.explicit_defaults_for_timestamp") != wanted:
            _try(session, "explicit_defaults_for_timestamp", wanted)
    _choose_database(session, ddl.default_db)


def _set_collations(session: Session, ddl: SchemaChanged) -> None:
    # The text reaches us decoded and goes out as UTF-8, so character_set_client stays utf8mb4; literals are
    # converted to the connection's collation, and a new database inherits the server's.
    ids = {"collation_connection": ddl.collation_connection, "collation_server": ddl.collation_server}
    for variable, number in ids.items():
        if number is None:
            continue
        name = session.value(
            "SELECT COLLATION_NAME FROM information_schema.COLLATIONS WHERE ID = %s", (number,)
        )
        if name is None:
            _log.warning("ddl_collation_unknown", variable=variable, collation_id=number)
        else:
            session.run(f"SET SESSION {variable} = %s", (name,))


def _try(session: Session, variable: str, value: Any) -> None:
    try:
        session.run(f"SET SESSION {variable} = %s", (value,))
    except pymysql.MySQLError as error:
        _log.warning("ddl_setting_refused", variable=variable, value=value, reason=message_of(error))


def _choose_database(session: Session, name: str) -> None:
    # CREATE DATABASE may come from a session whose own database is not there, or not any more.
    if name and session.value("SELECT 1 FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = %s", (name,)):
        session.connection.select_db(name)
