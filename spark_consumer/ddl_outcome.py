"""Whether a DDL that has left its number in the ledger has done what it says.

MariaDB logs what a failed statement has done all the same, and under the statement's number: CREATE OR REPLACE has
dropped the table, DROP VIEW of several has dropped those that were there, DROP DATABASE the tables before the one that
it could not drop. So there the number alone proves nothing. MySQL's DDL is atomic.
"""

from __future__ import annotations

from schemas.epoch import SchemaChanged
from spark_consumer.ddl_rules import database_of
from spark_consumer.session import Session

_TYPES = {
    "TABLE": ("BASE TABLE", "SYSTEM VERSIONED"),
    "VIEW": ("VIEW",),
    "SEQUENCE": ("SEQUENCE",),
}


def unfinished(session: Session, ddl: SchemaChanged) -> str:
    """What a DDL was to leave and is not so; "" if it is, or if this kind of DDL is done whole or not at all."""
    verb, _, what = ddl.kind.partition(" ")
    if verb not in ("CREATE", "DROP"):
        return ""
    wanted = verb == "CREATE"
    if what in ("DATABASE", "SCHEMA"):
        return _wrong(database_of(ddl), _has_database(session, database_of(ddl)), wanted)
    if what not in _TYPES:
        return ""
    each = (
        _wrong(f"{table.db}.{table.table}", _has(session, table.db, table.table, _TYPES[what]), wanted)
        for table in ddl.tables
    )
    return next(filter(None, each), "")


def _wrong(name: str, there: bool, wanted: bool) -> str:
    return "" if there == wanted else f"{name} is {'not' if wanted else 'still'} there"


def _has(session: Session, db: str, name: str, types: tuple[str, ...]) -> bool:
    found = session.rows(
        "SELECT table_type FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
        (db, name),
    )
    return any(kind in types for (kind,) in found)


def _has_database(session: Session, name: str) -> bool:
    sql = "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = %s"
    return bool(session.value(sql, (name,)))
