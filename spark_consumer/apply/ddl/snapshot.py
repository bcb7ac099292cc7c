"""Reads the state of the objects that a DDL names, before it runs and again after an interruption."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pymysql

from schemas.ddl.classify import classify
from schemas.ddl.column_types import string_value
from schemas.ddl.kinds import family
from schemas.ddl.lexer import NO_BACKSLASH_ESCAPES, Lexer, TokenKind, dialect_of
from schemas.quote import quoted
from schemas.wire.epoch import SchemaChanged
from spark_consumer.target.server_errors import error_number, is_denied, is_passing
from spark_consumer.target.session import Session

ACCOUNTS = "accounts"
#: definition of an object that the account may not read or that is not inspected
UNKNOWN = "unknown"
#: definition of an object that the server cannot open
BROKEN = "broken"
#: the content of an InnoDB table without rows
NO_ROWS = "none"
PROGRAMS = ("PROCEDURE", "FUNCTION", "EVENT", "PACKAGE", "PACKAGE BODY", "LIBRARY")
#: rows from each end of a table
_SAMPLE = 5
_COUNTER = re.compile(r" AUTO_INCREMENT=\d+")
# no such table, database, routine, event, library
_ABSENT = frozenset({1049, 1146, 1305, 1539, 6453})
# The tables with accounts and their privileges, and the columns that name an account.
_OF_BOTH = dict.fromkeys(("db", "tables_priv", "columns_priv", "procs_priv", "proxies_priv"), ("User",))
_GRANTS: dict[str, dict[str, tuple[str, ...]]] = {
    "mysql": _OF_BOTH
    | dict.fromkeys(("user", "global_grants", "password_history"), ("User",))
    | {"role_edges": ("FROM_USER", "TO_USER"), "default_roles": ("USER", "DEFAULT_ROLE_USER")},
    "mariadb": _OF_BOTH | {"global_priv": ("User",), "roles_mapping": ("User", "Role")},
}
# Characters that InnoDB's file names encode with two characters instead of four (MySQL: strings/ctype-utf8.cc).
_SHORT = ((0xC0, 0x5FF), (0x1E00, 0x1FFF), (0x2160, 0x217F), (0x24B0, 0x24EF), (0xFF20, 0xFF5F))


@dataclass(frozen=True)
class ObjectState:
    """The state of one object.

    Attributes:
        kind: the server's TABLE_TYPE, DATABASE, the program's kind, ``ACCOUNTS``; "" if it does not exist.
        definition: the hash of SHOW CREATE without the object's own name, ``UNKNOWN`` or ``BROKEN``.
        engine: a table's engine in lower case.
        ids: InnoDB's table ids by partition; None if they are not known. A renamed table keeps its id, a rebuilt or
            truncated one gets another.
        created: CREATE_TIME in UTC; MariaDB changes it with every ALTER and RENAME, MySQL with every ALTER.
        content: if identities were requested, CHECKSUM TABLE; for an InnoDB table a hash of its first and last rows, or
            ``NO_ROWS``.
    """

    kind: str = ""
    definition: str = ""
    engine: str = ""
    ids: tuple[tuple[str, int], ...] | None = None
    created: str = ""
    content: str = ""

    def identity(self, *, mariadb: bool, by_id: bool) -> tuple[object, ...]:
        """Return the properties that the object keeps in a rename; () if it does not exist.

        If the first is ``UNKNOWN``, different objects may have the same properties.
        """
        if not self.kind:
            return ()
        if by_id and self.ids:
            return self.ids
        if (
            self.definition in (UNKNOWN, BROKEN)
            or self.engine == "innodb"
            or (self.engine and not self.content)
        ):
            # The definition has names of foreign keys, which change with the table's name.
            return UNKNOWN, self.content, "" if mariadb else self.created
        return self.definition, self.content


ABSENT = ObjectState()


@dataclass(frozen=True)
class Snapshot:
    """The objects of a DDL at one time.

    Attributes:
        objects: the objects by quoted name with schema.
        server: the hash of the server's version and of its SHOW CREATE of a table that never changes. Definitions can
            be compared only if it is the same.
        taken: server time (UTC) minus one second; objects created before it will show the next change in CREATE_TIME.
        binlog: MariaDB's current binlog file, "" if it is not known; each start of the server creates another one.
    """

    objects: Mapping[str, ObjectState]
    server: str
    taken: str
    binlog: str = ""

    def to_fields(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Snapshot:
        """Build a snapshot from its fields in JSON."""
        objects = {name: _shown_of(shown) for name, shown in fields["objects"].items()}
        return cls(**(fields | {"objects": objects}))

    def get(self, db: str, name: str) -> ObjectState:
        """Return the object with a table's name."""
        return self.objects.get(quoted(db, name)) or self.objects.get(quoted(db, name).lower()) or ABSENT


def _shown_of(fields: dict[str, Any]) -> ObjectState:
    ids = fields["ids"]
    return ObjectState(**(fields | {"ids": None if ids is None else tuple((part, one) for part, one in ids)}))


def take_snapshot(session: Session, ddl: SchemaChanged, database: str, *, identities: bool) -> Snapshot:
    """Take a snapshot of the objects that a DDL names.

    Args:
        database: the database that a CREATE, ALTER or DROP DATABASE names.
        identities: whether to read InnoDB's ids, which takes longer, and the contents of tables without ids.
    """
    version, now, folded = session.rows(
        "SELECT VERSION(), CAST(UTC_TIMESTAMP() - INTERVAL 1 SECOND AS CHAR), @@lower_case_table_names"
    )[0]
    names = [(table.db, table.table) for table in ddl.tables]
    names += [(table.renamed_to_db or table.db, table.renamed_to) for table in ddl.tables if table.renamed_to]
    if folded:
        names = [(db.lower(), name.lower()) for db, name in names]
    ids = _ids(session, names, bool(folded)) if identities else {}
    objects = {quoted(*name): _table(session, *name, ids.get(name), identities) for name in names}
    objects |= _other(session, ddl, database)
    control = _definition(session, "TABLE tailrace.relay_log_info", "relay_log_info")
    return Snapshot(objects, _hash(f"{version} {control}"), str(now), _binlog(session))


def _table(
    session: Session, db: str, name: str, ids: tuple[tuple[str, int], ...] | None, identities: bool
) -> ObjectState:
    row = "FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
    found = session.rows(f"SELECT TABLE_TYPE, LOWER(COALESCE(ENGINE, '')) {row}", (db, name))
    if not found:
        return ABSENT
    kind, engine = map(str, found[0])
    if kind == "SEQUENCE":
        # On MariaDB more would require reading the sequence. A sequence that lost its row in a crash is then shown as a
        # table, and dropping it may crash the server (11.4, trx0trx.cc).
        return ObjectState(kind, UNKNOWN, engine, ids)
    created = session.value(f"SELECT CAST(CREATE_TIME AS CHAR) {row}", (db, name))
    content = _content(session, db, name, engine) if identities and kind == "BASE TABLE" else ""
    definition = _definition(session, "TABLE " + quoted(db, name), name)
    if definition == BROKEN and kind == "VIEW":
        # A table that the view reads does not exist.
        definition = UNKNOWN
    return ObjectState(kind, definition or UNKNOWN, engine, ids, str(created or ""), content)


def _content(session: Session, db: str, name: str, engine: str) -> str:
    """Return a hash of a table's content, which distinguishes it from other tables with the same definition."""
    table = quoted(db, name)
    if engine != "innodb":
        checksum = session.rows(f"CHECKSUM TABLE {table}")[0][1]
        return "" if checksum is None else str(checksum)
    parts = session.rows(
        "SELECT COLUMN_NAME FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
        " AND INDEX_NAME = 'PRIMARY' ORDER BY SEQ_IN_INDEX",
        (db, name),
    )
    columns = [quoted(column) for (column,) in parts]
    ways = [", ".join(column + way for column in columns) for way in ("", " DESC")] if columns else []
    try:
        rows = [
            session.rows(f"SELECT * FROM {table}{order} LIMIT {_SAMPLE}")
            for order in ([f" ORDER BY {way}" for way in ways] or [""])
        ]
    except pymysql.MySQLError as error:
        if is_passing(error):
            raise
        return ""
    return _hash(repr(rows)) if any(rows) else NO_ROWS


def _other(session: Session, ddl: SchemaChanged, database: str) -> dict[str, ObjectState]:
    """Read the program, database or accounts of the DDL."""
    what = ddl.kind.partition(" ")[2]
    if what == "DATABASE":
        return {quoted(database): _named(session, "DATABASE", quoted(database), database)}
    if family(ddl.kind) == ACCOUNTS:
        return {ACCOUNTS: _accounts(session, ddl)}
    flavor, mode = ddl.source_flavor, ddl.mode
    program = what in PROGRAMS and classify(ddl.statement, ddl.default_db, flavor, sql_mode=mode).program
    if not program:
        return {}
    return {quoted(*program): _named(session, what, quoted(*program), program[1])}


def _named(session: Session, what: str, name: str, own: str) -> ObjectState:
    definition = _definition(session, f"{what} {name}", own)
    return ObjectState(what, definition) if definition else ABSENT


def _definition(session: Session, what: str, own: str) -> str:
    """Return the hash of SHOW CREATE, "" if the object does not exist."""
    try:
        shown = session.rows("SHOW CREATE " + what)
    except pymysql.MySQLError as error:
        if error_number(error) in _ABSENT:
            return ""
        if is_passing(error):
            raise
        return UNKNOWN if is_denied(error) else BROKEN
    # AUTO_INCREMENT is not part of the structure, and some servers recompute it at a restart.
    text = _COUNTER.sub("", str(shown[0][1:]))
    return _hash(text.replace(quoted(own), "``", 1))


def _accounts(session: Session, ddl: SchemaChanged) -> ObjectState:
    """Return the state of the accounts that a statement names, with their passwords' hashes."""
    mode = ddl.mode
    texts = {
        string_value(token, not mode & NO_BACKSLASH_ESCAPES) if token.kind is TokenKind.STRING else token.text
        for token in Lexer(ddl.statement, dialect_of(ddl.source_flavor, mode))
        if token.kind is not TokenKind.SIGN
    }
    # Hashes of passwords among them may not be valid text.
    names = tuple(text.encode(errors="replace").decode() for text in texts)
    kept = []
    for table, columns in _GRANTS[session.flavor].items():
        # Compare only these columns, because other accounts have the same plugin or host.
        named = " OR ".join(f"{column} IN %s" for column in columns)
        try:
            rows = session.rows(f"SELECT * FROM mysql.{table} WHERE {named}", (names,) * len(columns))
        except pymysql.MySQLError as error:
            if error_number(error) in _ABSENT:
                continue
            if is_denied(error):
                return ObjectState(ACCOUNTS, UNKNOWN)
            raise
        kept += sorted(f"{table} {row!r}" for row in rows)
    return ObjectState(ACCOUNTS, _hash("\n".join(kept)))


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _binlog(session: Session) -> str:
    if session.flavor != "mariadb":
        return ""
    found = session.rows("SHOW GLOBAL STATUS LIKE 'Binlog_snapshot_file'")
    return str(found[0][1]) if found else ""


def _ids(
    session: Session, names: Iterable[tuple[str, str]], folded: bool
) -> dict[tuple[str, str], tuple[tuple[str, int], ...]]:
    """Return InnoDB's table ids by partition, for the tables whose files can be identified."""
    rows = _files(session)
    made: dict[tuple[str, str], tuple[tuple[str, int], ...]] = {}
    for name in names:
        matches = [(match, number) for path, number in rows if (match := _match(name, path, folded))]
        if len({match["table"] for match, _ in matches}) == 1:
            made[name] = tuple(sorted((match["part"] or "", number) for match, number in matches))
    return made


def _files(session: Session) -> list[tuple[str, int]]:
    """Return InnoDB's tables by the names of their files, with their ids; none without the privilege to read them."""
    view = "INNODB_SYS_TABLES" if session.flavor == "mariadb" else "INNODB_TABLES"
    try:
        found = session.rows(f"SELECT NAME, TABLE_ID FROM information_schema.{view}")
    except pymysql.MySQLError as error:
        if not is_denied(error):
            raise
        # Requires PROCESS.
        return []
    return [(_text(path), int(number)) for path, number in found]


def _match(name: tuple[str, str], path: str, folded: bool) -> re.Match[str] | None:
    """Match the file of a table or of one of its partitions, marked with ``#P#`` by MariaDB and ``#p#`` by MySQL."""
    pattern = f"(?P<table>{'/'.join(map(file_pattern, name))})(?P<part>#[Pp]#.*)?"
    return re.fullmatch(pattern, path, re.IGNORECASE if folded else 0)


def clear_half_made(session: Session, db: str, table: str) -> None:
    """Drop the remains of a table that a killed server was creating.

    MariaDB leaves partitions without a definition, MySQL definitions of MyISAM tables without files. They cannot be
    read, and the table cannot be created while they exist.
    """
    folded, there = session.rows(
        "SELECT @@lower_case_table_names, COUNT(*) FROM information_schema.TABLES"
        " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
        (db, table),
    )[0]
    name = quoted(db, table)
    if there:
        if _definition(session, "TABLE " + name, table) == BROKEN:
            session.execute(f"DROP TABLE IF EXISTS {name}".encode())
        return
    for path, _ in _files(session) if session.flavor == "mariadb" else ():
        match = _match((db, table), path, bool(folded))
        if match and match["part"]:
            # This prefix means that the name is a file name.
            file = "#mysql50#" + path.partition("/")[2]
            session.execute(f"DROP TABLE IF EXISTS {quoted(db, file)}".encode())


def file_pattern(name: str) -> str:
    """Return a regular expression for a name in InnoDB's file names, which encode all but letters, digits and _."""
    return "".join(map(_encoded, name))


def _encoded(char: str) -> str:
    if char.isascii() and (char.isalnum() or char == "_"):
        return char
    code = f"@{ord(char):04x}"
    short = any(first <= ord(char) <= last for first, last in _SHORT)
    return f"(?:{code}|@[0-9a-zA-Z]{{2}})" if short else code


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
