"""DDL exactly once on a downstream without GTIDs: what the tables looked like before decides."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from typing import cast

import pymysql

from schemas.ddl import classify
from schemas.ddl_lexer import Flavor
from schemas.epoch import EpochCommitted, SchemaChanged
from schemas.errors import DownstreamError, Where
from spark_consumer.merge import qualified, quote
from spark_consumer.session import Session

_COUNTER = re.compile(r" AUTO_INCREMENT=\d+")
_ABSENT = "absent"


@dataclass(frozen=True)
class Intent:
    """A DDL that is about to run: its place in the upstream, its text's hash, and each object's hash before.

    The place is not the epoch's number: after a crash it may be `tailrace recover` that goes on with the DDL.
    ``index`` is the statement's place among those that the upstream's DDL became; those before it are done.
    """

    place: str
    statement: str
    before: dict[str, str]
    index: int = 0

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)


def declare(
    session: Session, epoch: EpochCommitted, ddl: SchemaChanged, database: str, index: int = 0
) -> Intent:
    """The intent to run the epoch's DDL on the downstream as it is now; ``database`` is the one it names."""
    return Intent(place_of(epoch), _hash(ddl.statement), fingerprints(session, ddl, database), index)


def speaks_of(text: str | None, epoch: EpochCommitted, ddl: SchemaChanged, index: int) -> bool:
    """Whether an intent found after a crash is this statement's, or one's behind it."""
    # With a ledger that proved, it was the plan of several statements (``ddl_plan.py``).
    if text is None or "plan" in (content := json.loads(text)):
        return False
    intent = Intent(**content)
    if intent.place != place_of(epoch):
        return False
    return intent.index > index or (intent.index == index and intent.statement == _hash(ddl.statement))


def happened(
    session: Session, text: str, epoch: EpochCommitted, ddl: SchemaChanged, database: str, index: int = 0
) -> bool:
    """Whether the DDL of an intent found after a crash was executed. Raises where nobody can know."""
    if not speaks_of(text, epoch, ddl, index):
        # It speaks of another DDL: then its own was moved past, or never begun.
        return False
    intent = Intent(**json.loads(text))
    if intent.index > index:
        return True
    if fingerprints(session, ddl, database) != intent.before:
        return True
    if _repeatable(ddl):
        return False
    raise DownstreamError(
        "TR621",
        f"a crash hit while this DDL ran, and the tables do not show whether it happened: {ddl.shown[:200]}",
        where=Where(epoch=epoch.epoch, gtid=epoch.last_gtid),
        hint="look at the tables; then either run it by hand or not, and clear or keep ddl_intent"
        " in tailrace.relay_log_info; a downstream with GTIDs never asks this",
    )


def place_of(epoch: EpochCommitted) -> str:
    """The epoch's place in the upstream."""
    return epoch.last_gtid or f"{epoch.source_file}:{epoch.source_pos}"


def _repeatable(ddl: SchemaChanged) -> bool:
    """Whether running the DDL again does no harm if it left the structure as it was."""
    text = ddl.statement.upper()
    swaps = ddl.kind == "RENAME TABLE" and len(ddl.tables) > 1
    return not swaps and "EXCHANGE" not in text


def fingerprints(session: Session, ddl: SchemaChanged, database: str) -> dict[str, str]:
    """A hash of each object the DDL names, as it is defined now."""
    found: dict[str, str] = {}
    for table in ddl.tables:
        found[f"{table.db}.{table.table}"] = _shown(session, b"TABLE " + qualified(table.db, table.table))
        if table.renamed_to:
            db = table.renamed_to_db or table.db
            found[f"{db}.{table.renamed_to}"] = _shown(session, b"TABLE " + qualified(db, table.renamed_to))
    found |= _program(session, ddl)
    if "DATABASE" in ddl.kind or "SCHEMA" in ddl.kind:
        found[database] = _shown(session, b"DATABASE " + quote(database))
    return found


def _program(session: Session, ddl: SchemaChanged) -> dict[str, str]:
    """The stored program that the DDL names."""
    what = ddl.kind.partition(" ")[2]
    if what not in ("PROCEDURE", "FUNCTION", "EVENT", "PACKAGE", "PACKAGE BODY", "LIBRARY"):
        return {}
    flavor = cast(Flavor, ddl.source_flavor)
    program = classify(ddl.statement, ddl.default_db, flavor, sql_mode=ddl.sql_mode or 0).program
    if program is None:
        return {}
    return {".".join(program): _shown(session, f"{what} ".encode() + qualified(*program))}


def _shown(session: Session, what: bytes) -> str:
    try:
        shown = session.rows((b"SHOW CREATE " + what).decode())
    except pymysql.MySQLError as error:
        # no such table, database, routine, event, library
        if error.args[0] in (1146, 1049, 1305, 1539, 6453):
            return _ABSENT
        raise
    # The counter is no part of the structure, and some servers recompute it at a restart.
    return _hash(_COUNTER.sub("", str(shown[0][1:])))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
