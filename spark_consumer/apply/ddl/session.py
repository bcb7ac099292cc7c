"""Sets the upstream session's settings on a downstream connection, so that a DDL has the same meaning there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pymysql
import structlog

from schemas.ddl.engine import INNODB
from schemas.sql.modes import sql_mode_text
from schemas.wire.epoch import SchemaChanged
from spark_consumer.plan.refusal import DdlRefused
from spark_consumer.target.session import Flavor, Session, is_lost, message_of

_log = structlog.get_logger()


def apply_settings(session: Session, ddl: SchemaChanged) -> None:
    """Set the session variables that the upstream session had for ``ddl``.

    Raises:
        DownstreamError: TR625, a required setting cannot be set.
    """
    settings = dict(ddl.settings)
    if ddl.sql_mode is not None:
        mode = sql_mode_text(ddl.sql_mode, ddl.source_flavor, session.flavor)
        session.run("SET SESSION sql_mode = %s", (mode,))
    _set_collations(session, ddl, settings)
    if ddl.time_zone:
        # The time zone is logged only with statements that depend on it.
        _need(session, "time_zone", ddl.time_zone)
    session.execute(f"SET SESSION timestamp = {ddl.timestamp}.{int(settings.get('microseconds', 0)):06d}")
    session.run("SET SESSION unique_checks = %s", (int(ddl.unique_checks),))
    session.run("SET SESSION foreign_key_checks = %s", (int(ddl.foreign_key_checks),))
    for name in ("lc_time_names", "auto_increment_increment", "auto_increment_offset"):
        if name in settings:
            _need(session, name, int(settings[name]))
    for name, wanted in _switches(ddl, settings, session.flavor):
        _switch(session, name, wanted)
    if "innodb_strict_mode" in settings:
        _need(session, "innodb_strict_mode", int(settings["innodb_strict_mode"]))
    if "default_storage_engine" in settings:
        _choose_engine(session, settings["default_storage_engine"])
    if session.flavor == "mariadb" and ddl.kind == "ALTER TABLE":
        # System-versioned tables can be altered only with this setting, so the upstream's session had it.
        _try(session, "system_versioning_alter_history", "KEEP")
    _choose_database(session, ddl.default_db)
    _choose_client(session, ddl)


def _switches(ddl: SchemaChanged, settings: dict[str, str], flavor: Flavor) -> Iterator[tuple[str, int]]:
    """Yield variables to set only if they differ: some servers lack them, and some accounts may not change them."""
    if ddl.explicit_defaults_for_timestamp is not None:
        yield "explicit_defaults_for_timestamp", int(ddl.explicit_defaults_for_timestamp)
    if flavor == "mariadb":
        # Otherwise START ALTER would use the ledger's number before the ALTER runs.
        yield "binlog_alter_two_phase", 0
    if flavor == "mysql":
        # A generated key is already in the logged text.
        yield "sql_generate_invisible_primary_key", 0
        # The upstream accepted the statement, so the downstream must not require a key.
        yield "sql_require_primary_key", 0


def _switch(session: Session, name: str, wanted: int) -> None:
    shown = session.rows("SHOW SESSION VARIABLES LIKE %s", (name,))
    if shown and {"ON": 1, "OFF": 0, "1": 1, "0": 0}.get(str(shown[0][1]).upper()) != wanted:
        _need(session, name, wanted)


def _set_collations(session: Session, ddl: SchemaChanged, settings: dict[str, str]) -> None:
    # Literals are converted to the connection's collation, and a new database inherits the server's. Both
    # servers take collations by number, which MariaDB's information_schema does not show for all of them.
    ids: dict[str, str | int | None] = {
        "collation_connection": ddl.collation_connection,
        "collation_server": ddl.collation_server,
    }
    if session.flavor == "mysql" and ddl.source_flavor == "mysql":
        ids["default_collation_for_utf8mb4"] = settings.get("default_collation_for_utf8mb4")
    for variable, number in ids.items():
        if number is None:
            continue
        if variable == "default_collation_for_utf8mb4":
            _default_collation(session, int(number))
        else:
            _try(session, variable, int(number))
    if session.flavor == "mariadb" and "character_set_collations" in settings:
        _need(session, "character_set_collations", _pairs(session, settings["character_set_collations"]))


def _default_collation(session: Session, number: int) -> None:
    name = "default_collation_for_utf8mb4"
    wanted = {45: "utf8mb4_general_ci", 255: "utf8mb4_0900_ai_ci"}.get(number)
    shown = session.rows("SHOW SESSION VARIABLES LIKE %s", (name,))
    if shown and wanted is not None and shown[0][1] != wanted:
        _need(session, name, wanted)


def _pairs(session: Session, text: str) -> str:
    """Return pairs such as ``45=46`` in MariaDB's syntax: ``utf8mb4=utf8mb4_bin``."""
    pairs = []
    for pair in text.split(","):
        charset, collation = (_collation(session, int(number)) for number in pair.split("="))
        pairs.append(f"{charset.partition('_')[0]}={collation}")
    return ",".join(pairs)


def _collation(session: Session, number: int) -> str:
    found = session.value(
        "SELECT FULL_COLLATION_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY"
        " WHERE ID = %s",
        (number,),
    )
    return str(found) if found is not None else str(number)


def _choose_client(session: Session, ddl: SchemaChanged) -> None:
    """Set the client's charset, which views and stored programs store, if the text has the same bytes in it.

    The text is decoded in the log and sent as UTF-8.
    """
    found = session.value(
        "SELECT CHARACTER_SET_NAME FROM information_schema.COLLATIONS WHERE ID = %s", (ddl.charset_client,)
    )
    utf8 = found in ("utf8mb3", "utf8") and all(ord(c) < 0x10000 for c in ddl.statement)
    if found and (utf8 or (ddl.statement.isascii() and _ASCII_CLIENTS.fullmatch(str(found)))):
        _try(session, "character_set_client", str(found))


def _choose_engine(session: Session, name: str) -> None:
    """Set the engine for a CREATE TABLE without ENGINE: the upstream's, or InnoDB if the server does not have it."""
    try:
        session.run("SET SESSION default_storage_engine = %s", (name,))
    except pymysql.MySQLError as error:
        if is_lost(error):
            raise
        _log.warning("ddl_engine_not_there", engine=name, instead=INNODB, reason=message_of(error))
        _need(session, "default_storage_engine", INNODB)


_ASCII_CLIENTS = re.compile(r"ascii|latin[1257]|cp(125[0167]|85[02]|866)|greek|hebrew|koi8[ru]")


def _need(session: Session, variable: str, value: Any) -> None:
    """Set a variable that the statement depends on."""
    try:
        session.run(f"SET SESSION {variable} = %s", (value,))
    except pymysql.MySQLError as error:
        if is_lost(error):
            raise
        raise DdlRefused(
            "TR625",
            f"the session of a DDL had {variable} = {value}, which the downstream refuses: {message_of(error)}",
            hint="load time zones with mysql_tzinfo_to_sql, grant SESSION_VARIABLES_ADMIN, or make the statement's"
            " change there by hand and ignore the statement with a filter rule that has its text as sql-pattern",
        ) from error


def _try(session: Session, variable: str, value: Any) -> None:
    try:
        session.run(f"SET SESSION {variable} = %s", (value,))
    except pymysql.MySQLError as error:
        if is_lost(error):
            raise
        _log.warning("ddl_setting_refused", variable=variable, value=value, reason=message_of(error))


def _choose_database(session: Session, name: str) -> None:
    # CREATE DATABASE may come from a session whose own database does not exist downstream.
    if name and session.value("SELECT 1 FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = %s", (name,)):
        session.connection.select_db(name)
