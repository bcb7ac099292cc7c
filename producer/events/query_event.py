"""QUERY events: a statement's text, and the session settings that give it its meaning.

Layout: MySQL ``libs/mysql/binlog/event/statement_events.{h,cpp}``; MariaDB ``sql/log_event.cc``
(``Query_log_event``). All integers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from schemas.binlog.framing import HEADER_SIZE
from schemas.charsets.collations import CHARSETS
from schemas.charsets.text import text_of
from schemas.ddl.kinds import ClassifiedStatement
from schemas.ddl.lexer import Flavor
from schemas.ddl.names import CannotRename
from schemas.ddl.names import in_lower_case as lower_case_ddl
from schemas.ddl.objects import without_start_transaction
from schemas.errors import NOWHERE, DecodeError, Where
from schemas.wire.epoch import SchemaChanged, TableChanged

# thread id, execution time, length of the database's name, error code, length of the status variables
_POST_HEADER = struct.Struct("<IIBHH")
POST_HEADER_SIZE = _POST_HEADER.size
_UTF8 = "utf-8"
_LOAD_FIELDS = 13  # bytes

# Bits of flags2, that is of thd->options (MySQL: sql/query_options.h).
NO_FOREIGN_KEY_CHECKS = 1 << 26
RELAXED_UNIQUE_CHECKS = 1 << 27
# MariaDB alone, which has no status variable for it (MariaDB: sql/sql_priv.h).
EXPLICIT_DEFAULTS_FOR_TIMESTAMP = 1 << 24

_CHARSET = 4
_DUMMY = 255  # MariaDB fills the block with it where it turns an event into another, shorter one
_OVER_MAX_DBS = 16  # MAX_DBS_IN_EVENT_MTS: a higher count is followed by no names

# MariaDB's Gtid_log_event::FL_COMMIT_ALTER_E1 and FL_ROLLBACK_ALTER_E1: a sequence number follows.
_COMMIT_OR_ROLLBACK_ALTER = 4 | 8


@dataclass(frozen=True)
class QueryEvent:
    """One QUERY event. What is None was not in the event.

    Attributes:
        statement: the text, decoded from the client's charset.
        default_db: the session's database, ``""`` for none.
        error_code: not 0 if the statement failed upstream after it had changed something (several tables
            dropped but one missing, a non-transactional table): it must not be run as if it were whole.
        charset: collation ids of character_set_client, collation_connection, collation_server.
        updated_dbs: databases touched, for MySQL's parallel replicas; None too if there were over 16.
        microseconds: of the session's time, behind the header's seconds (MariaDB: its HRNOW).
        alter_flags: MariaDB's two-phase ALTER: 2 START, 4 COMMIT, 8 ROLLBACK ALTER; ``alter_seq_no`` is the
            sequence number of the START ALTER that a COMMIT or ROLLBACK ALTER belongs to.
        default_collations: MariaDB's character_set_collations: (collation, default to use instead).
        unread_from: the first status variable that this reader does not know; it and the rest were skipped.
    """

    statement: str
    default_db: str
    thread_id: int
    exec_time: int
    error_code: int
    flags2: int | None = None
    sql_mode: int | None = None
    catalog: str | None = None
    auto_increment: tuple[int, int] | None = None
    charset: tuple[int, int, int] | None = None
    time_zone: str | None = None
    lc_time_names: int | None = None
    charset_database: int | None = None
    table_map_for_update: int | None = None
    master_data_written: int | None = None
    invoker: tuple[str, str] | None = None
    updated_dbs: tuple[str, ...] | None = None
    microseconds: int | None = None
    explicit_defaults_for_timestamp: bool | None = None
    xid: int | None = None
    default_collation_for_utf8mb4: int | None = None
    sql_require_primary_key: bool | None = None
    default_table_encryption: bool | None = None
    enable_cascade_triggers: bool | None = None
    alter_flags: int = 0
    alter_seq_no: int | None = None
    default_collations: tuple[tuple[int, int], ...] = ()
    unread_from: int | None = None

    @property
    def foreign_key_checks(self) -> bool:
        """The session's foreign_key_checks."""
        return not (self.flags2 or 0) & NO_FOREIGN_KEY_CHECKS

    @property
    def unique_checks(self) -> bool:
        """The session's unique_checks."""
        return not (self.flags2 or 0) & RELAXED_UNIQUE_CHECKS


def in_lower_case(query: QueryEvent, flavor: Flavor) -> QueryEvent:
    """Return the event with the names in its DDL in lower case, as the server compares them.

    Raises:
        DecodeError: TR409, a name cannot be changed in the text.
    """
    try:
        changed = lower_case_ddl(query.statement, query.default_db, flavor, sql_mode=query.sql_mode or 0)
    except CannotRename as error:
        raise DecodeError(
            "TR409",
            f"the names of a statement cannot be written in lower case: {error}: {query.statement[:200]}",
            hint="run it on the downstream manually, and start a new log after this position",
        ) from error
    return replace(query, statement=changed.statement, default_db=changed.default_db)


class _Malformed(ValueError):
    """The event's bytes do not fit its layout."""


class _Block:
    """Reads the status variables' values one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.pos = 0

    def bytes(self, count: int) -> bytes:
        end = self.pos + count
        if end > len(self.data):
            raise _Malformed(f"status variables end inside a value of {count} bytes")
        value = self.data[self.pos : end]
        self.pos = end
        return value

    def integer(self, size: int) -> int:
        return int.from_bytes(self.bytes(size), "little")

    def text(self) -> str:
        """A length byte and UTF-8 text."""
        return self.bytes(self.integer(1)).decode()

    def terminated(self) -> str:
        """UTF-8 text up to a zero byte."""
        end = self.data.find(b"\0", self.pos)
        if end < 0:
            raise _Malformed("unterminated name in the status variables")
        value = self.bytes(end - self.pos)
        self.pos += 1
        return value.decode()


_Reader = Callable[[_Block], dict[str, Any]]


def _integer(name: str, size: int) -> _Reader:
    return lambda block: {name: block.integer(size)}


def _flag(name: str) -> _Reader:
    return lambda block: {name: block.integer(1) != 0}


def _text(name: str) -> _Reader:
    return lambda block: {name: block.text()}


def _shorts(name: str, count: int) -> _Reader:
    return lambda block: {name: tuple(block.integer(2) for _ in range(count))}


def _old_catalog(block: _Block) -> dict[str, Any]:
    catalog = block.text()
    block.bytes(1)  # its zero byte is not counted
    return {"catalog": catalog}


def _updated_dbs(block: _Block) -> dict[str, Any]:
    count = block.integer(1)
    if count > _OVER_MAX_DBS:
        return {}
    return {"updated_dbs": tuple(block.terminated() for _ in range(count))}


def _alter(block: _Block) -> dict[str, Any]:
    flags = block.integer(1)
    seq_no = block.integer(8) if flags & _COMMIT_OR_ROLLBACK_ALTER else None
    return {"alter_flags": flags, "alter_seq_no": seq_no}


def _collations(block: _Block) -> dict[str, Any]:
    count = block.integer(1)
    return {"default_collations": tuple((block.integer(2), block.integer(2)) for _ in range(count))}


# Codes 14 and 15 (COMMIT_TS, COMMIT_TS2) have a name and no size: no server ever wrote them, and the servers'
# own readers take them for unknown.
_READERS: dict[int, _Reader] = {
    0: _integer("flags2", 4),
    1: _integer("sql_mode", 8),
    2: _old_catalog,
    3: _shorts("auto_increment", 2),
    _CHARSET: _shorts("charset", 3),
    5: _text("time_zone"),
    6: _text("catalog"),
    7: _integer("lc_time_names", 2),
    8: _integer("charset_database", 2),
    9: _integer("table_map_for_update", 8),
    10: _integer("master_data_written", 4),
    11: lambda block: {"invoker": (block.text(), block.text())},
    12: _updated_dbs,
    13: _integer("microseconds", 3),
    16: _flag("explicit_defaults_for_timestamp"),
    17: _integer("xid", 8),
    18: _integer("default_collation_for_utf8mb4", 2),
    19: _flag("sql_require_primary_key"),
    20: _flag("default_table_encryption"),
    21: _flag("enable_cascade_triggers"),
    128: _integer("microseconds", 3),  # MariaDB: HRNOW
    129: _integer("xid", 8),
    130: _alter,
    131: _collations,
}


def load_query(event: bytes) -> bytes:
    """An EXECUTE_LOAD_QUERY event as the QUERY event of its statement; both without a checksum.

    Its own fields stand behind a QUERY event's: the file's number, where its name stands in the text, and what
    happens to duplicates. Source: MySQL libs/mysql/binlog/event/load_data_events.h, Execute_load_query_event.
    """
    behind = HEADER_SIZE + POST_HEADER_SIZE
    return event[:behind] + event[behind + _LOAD_FIELDS :]


def parse_query_event(body: bytes, *, where: Where = NOWHERE) -> QueryEvent:
    """Read a QUERY event.

    Args:
        body: the event without its 19-byte header and its checksum.
        where: for the error.

    Raises:
        DecodeError: TR460 malformed; TR461 text not valid in the client's charset; TR462 a status variable
            from a newer server stands before those that give the text its meaning.
    """
    try:
        return _parse(body, where)
    except (_Malformed, struct.error) as error:
        raise DecodeError("TR460", f"a malformed QUERY event: {error}", where=where) from error
    except UnicodeDecodeError as error:
        raise DecodeError("TR460", f"a name in a QUERY event is not UTF-8: {error}", where=where) from error


def _parse(body: bytes, where: Where) -> QueryEvent:
    thread_id, exec_time, db_length, error_code, status_length = _POST_HEADER.unpack_from(body)
    db_start = POST_HEADER_SIZE + status_length
    db_end = db_start + db_length
    if db_end >= len(body) or body[db_end] != 0:
        raise _Malformed("the status variables or the database name extend past the event")
    variables = _status_variables(body[POST_HEADER_SIZE:db_start], where)
    text = body[db_end + 1 :]
    return QueryEvent(
        statement=_decode(text, variables.get("charset"), where),
        default_db=body[db_start:db_end].decode(),  # names are logged in UTF-8, whatever the client speaks
        thread_id=thread_id,
        exec_time=exec_time,
        error_code=error_code,
        **variables,
    )


def _status_variables(data: bytes, where: Where) -> dict[str, Any]:
    """All variables up to the first unknown one.

    A variable has no length of its own, so nothing behind an unknown one can be read. Both servers skip the
    rest then, counting on codes being written in ascending order; MariaDB 11.5 no longer does that (131 comes
    before 4). So skipping is right only once the charset has been seen, before which nothing else is safe.
    """
    block, values = _Block(data), dict[str, Any]()
    while block.pos < len(data):
        code = block.integer(1)
        reader = _READERS.get(code)
        if reader is not None:
            values |= reader(block)
            continue
        if "charset" not in values and code != _DUMMY:
            raise DecodeError(
                "TR462",
                f"a QUERY event has the unknown status variable {code} before its charset",
                where=where,
                hint="the upstream is newer than this version of Tailrace supports; upgrade Tailrace",
            )
        values["unread_from"] = code
        break
    return values


def _decode(text: bytes, charset: tuple[int, int, int] | None, where: Where) -> str:
    if text.isascii():
        return text.decode("ascii")
    try:
        return text.decode(_UTF8) if charset is None else decode_text(text, charset[0])
    except (UnicodeDecodeError, LookupError) as error:
        raise DecodeError(
            "TR461",
            f"a statement cannot be read in its client's charset: {error}",
            where=where,
            hint="Run the statement on the downstream by hand and skip its transaction, or set the client's "
            "character_set_client to what it sends.",
        ) from error


def epoch_ddl(
    query: QueryEvent, statement: ClassifiedStatement, flavor: Flavor, timestamp: int
) -> SchemaChanged:
    """The epoch log's record of a DDL statement; the structures before and after are the caller's to add.

    Args:
        statement: ``classify`` of the query's text.
        flavor: of the upstream.
        timestamp: of the event's header, seconds.
    """
    text = query.statement
    if statement.start_transaction:
        text = without_start_transaction(text, sql_mode=query.sql_mode or 0)
    client, connection, server = query.charset or (None, None, None)
    explicit = query.explicit_defaults_for_timestamp
    if flavor == "mariadb" and query.flags2 is not None:
        explicit = bool(query.flags2 & EXPLICIT_DEFAULTS_FOR_TIMESTAMP)
    return SchemaChanged(
        statement=text,
        default_db=query.default_db,
        kind=statement.kind,
        tables=tuple(TableChanged(*table) for table in statement.tables),
        source_flavor=flavor,
        timestamp=timestamp,
        sql_mode=query.sql_mode,
        charset_client=client,
        collation_connection=connection,
        collation_server=server,
        time_zone=query.time_zone,
        explicit_defaults_for_timestamp=explicit,
        foreign_key_checks=query.foreign_key_checks,
        unique_checks=query.unique_checks,
        settings=tuple(_settings(query)),
    )


_PLAIN_SETTINGS = (
    "lc_time_names",
    "microseconds",
    "default_collation_for_utf8mb4",
    "sql_require_primary_key",
    "default_table_encryption",
)


def _settings(query: QueryEvent) -> Iterator[tuple[str, str]]:
    for name in _PLAIN_SETTINGS:
        value = getattr(query, name)
        if value is not None:
            yield name, str(int(value))
    if query.auto_increment is not None:
        increment, offset = query.auto_increment
        yield "auto_increment_increment", str(increment)
        yield "auto_increment_offset", str(offset)
    if query.invoker is not None:
        yield "invoker_user", query.invoker[0]
        yield "invoker_host", query.invoker[1]
    if query.default_collations:
        pairs = (f"{collation}={default}" for collation, default in query.default_collations)
        yield "character_set_collations", ",".join(pairs)


def decode_text(data: bytes, collation: int) -> str:
    """Text that a client with ``character_set_client`` of this collation id sent.

    Raises:
        UnicodeDecodeError: not valid in that charset.
        LookupError: a charset that is not known here.
    """
    charset = CHARSETS[collation]
    # A client with charset binary sends bytes as they are: nearly always UTF-8.
    return data.decode(_UTF8) if charset == "binary" else text_of(data, charset)
