"""Shows binlog events as plain fields, as far as they can be read."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from producer.events.compressed import COMPRESSED, payload_head, plain_event, unpacked
from producer.events.query_event import parse_query_event
from producer.events.table_map import packed_length, table_names
from schemas.binlog import framing
from schemas.binlog.framing import HEADER_SIZE
from schemas.binlog.groups import GroupScanner
from schemas.errors import DecodeError
from tailrace.reader.event_rows import BinlogRowDecoder

Fields = dict[str, Any]


def _numbered(first: int, names: str) -> dict[int, str]:
    return dict(enumerate(names.split(), first))


# MySQL: libs/mysql/binlog/event/binlog_event.h, Log_event_type; MariaDB: sql/log_event.h.
TYPES = (
    _numbered(
        1, "START_V3 QUERY STOP ROTATE INTVAR LOAD SLAVE CREATE_FILE APPEND_BLOCK EXEC_LOAD DELETE_FILE"
    )
    | _numbered(
        12, "NEW_LOAD RAND USER_VAR FORMAT_DESCRIPTION XID BEGIN_LOAD_QUERY EXECUTE_LOAD_QUERY TABLE_MAP"
    )
    | _numbered(23, "WRITE_ROWS_V1 UPDATE_ROWS_V1 DELETE_ROWS_V1 INCIDENT HEARTBEAT IGNORABLE ROWS_QUERY")
    | _numbered(
        30, "WRITE_ROWS UPDATE_ROWS DELETE_ROWS GTID ANONYMOUS_GTID PREVIOUS_GTIDS TRANSACTION_CONTEXT"
    )
    | _numbered(37, "VIEW_CHANGE XA_PREPARE PARTIAL_UPDATE_ROWS TRANSACTION_PAYLOAD HEARTBEAT_V2 GTID_TAGGED")
    | _numbered(
        160, "ANNOTATE_ROWS BINLOG_CHECKPOINT MARIADB_GTID GTID_LIST START_ENCRYPTION QUERY_COMPRESSED"
    )
    | _numbered(166, "WRITE_ROWS_COMPRESSED_V1 UPDATE_ROWS_COMPRESSED_V1 DELETE_ROWS_COMPRESSED_V1")
    | _numbered(169, "WRITE_ROWS_COMPRESSED UPDATE_ROWS_COMPRESSED DELETE_ROWS_COMPRESSED")
)
_ROWS = frozenset(kind for kind, name in TYPES.items() if "_ROWS" in name and name != "ANNOTATE_ROWS")
_GTIDS = frozenset({framing.GTID, framing.GTID_TAGGED, framing.ANONYMOUS_GTID, framing.MARIADB_GTID})
_CHECKSUMS = {0: "NONE", 1: "CRC32"}
_COMPRESSIONS = {0: "ZSTD", 255: "NONE"}
_INTVARS = {1: "LAST_INSERT_ID", 2: "INSERT_ID"}


class ContentReader:
    """Reads the events of a relay log in order, and remembers the tables of their TABLE_MAP events."""

    def __init__(self) -> None:
        self._decoder = BinlogRowDecoder()
        self._has_checksum = False
        self.scanner = GroupScanner()

    def feed(self, event: bytes) -> None:
        """Remember what later events depend on."""
        kind = event[4]
        if kind == framing.FORMAT_DESCRIPTION:
            self._has_checksum = framing.checksum_algorithm(event) == framing.CHECKSUM_CRC32
            self._decoder.enter_file(framing.flavor_of(event))
            self.scanner.reset()
        elif kind == framing.TABLE_MAP:
            self._decoder.table_map(self._bare(event))
        elif kind not in framing.INSIDE_GROUP:
            with suppress(ValueError, IndexError, struct.error):  # ``fields`` shows the reason
                self.scanner.feed(kind, event, self._has_checksum)

    def fields(self, event: bytes) -> Fields:
        """Return time, server, type, size and content of an event. ``feed`` it first."""
        return self._fields(event, self._bare(event))

    def _bare(self, event: bytes) -> bytes:
        return event[: -framing.CHECKSUM_SIZE] if self._has_checksum else event

    def _fields(self, event: bytes, bare: bytes) -> Fields:
        header = framing.header(event)
        fields: Fields = {
            "time": moment(header.timestamp),
            "server_id": header.server_id,
            "type": header.type,
            "name": TYPES.get(header.type, "UNKNOWN"),
            "size": header.size,
        }
        try:
            return fields | self._content(header.type, bare)
        except (DecodeError, ValueError, IndexError, KeyError, struct.error) as error:
            reason = error.message if isinstance(error, DecodeError) else f"{type(error).__name__}: {error}"
            return fields | {"not_read": reason}

    def _content(self, kind: int, event: bytes) -> Fields:
        if kind in COMPRESSED:
            event = plain_event(event, 0)
            kind = event[4]
        body = event[HEADER_SIZE:]
        if kind in _READERS:
            return _READERS[kind](body)
        if kind == framing.FORMAT_DESCRIPTION:
            algorithm = event[-1] if self._has_checksum else event[-5]
            return {
                "server_version": framing.server_version(event),
                "checksum": _CHECKSUMS.get(algorithm, algorithm),
            }
        if kind in _GTIDS:
            return _gtid(kind, event)
        if kind in (framing.PREVIOUS_GTIDS, framing.MARIADB_GTID_LIST):
            return {"gtids": str(framing.previous_gtids(event, False))}
        if kind in _ROWS:
            return self._rows(kind, event)
        if kind == framing.TRANSACTION_PAYLOAD:
            return self._payload(body)
        return {}

    def _rows(self, kind: int, event: bytes) -> Fields:
        fields: Fields = {"table_id": int.from_bytes(event[HEADER_SIZE : HEADER_SIZE + 6], "little")}
        fields["flags"] = int.from_bytes(event[HEADER_SIZE + 6 : HEADER_SIZE + 8], "little")
        table = self._decoder.table_of(event)
        if table:
            fields |= {"db": table[0], "table": table[1]}
        try:
            rows = self._decoder.rows(kind, event)
        except (DecodeError, ValueError, IndexError, KeyError, struct.error) as error:
            return fields | {
                "row_count": None,
                "not_read": error.message if isinstance(error, DecodeError) else str(error),
            }
        return fields | {"row_count": None if rows is None else len(rows), "rows": rows}

    def _payload(self, body: bytes) -> Fields:
        """Return the fields of a compressed transaction, whose events have no checksums of their own."""
        compression, size, data_at = payload_head(body)
        fields = {"compression": _COMPRESSIONS.get(compression, compression)}
        fields |= {"compressed_size": len(body) - data_at, "uncompressed_size": size or len(body) - data_at}
        inside = []
        for block in unpacked(body):
            at = 0
            while at < len(block):
                event = block[at : at + framing.header(block, at).size]
                if event[4] == framing.TABLE_MAP:
                    self._decoder.table_map(event)
                inside.append(self._fields(event, event))
                at += len(event)
        return {**fields, "events": inside}


def moment(seconds: int) -> str:
    """Return an event header's timestamp (seconds since 1970) as text in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _gtid(kind: int, event: bytes) -> Fields:
    scanner = GroupScanner()
    scanner.feed(kind, event, False)
    fields: Fields = {"gtid": scanner.gtid() or None}
    if kind in (framing.GTID, framing.ANONYMOUS_GTID) and len(event) >= HEADER_SIZE + 42:
        last, sequence = struct.unpack_from("<qq", event, HEADER_SIZE + 26)
        fields |= {"last_committed": last, "sequence_number": sequence}
    elif kind == framing.MARIADB_GTID:
        fields["flags"] = event[HEADER_SIZE + 12]
    return fields


def _query(body: bytes) -> Fields:
    try:
        query = parse_query_event(body)
    except DecodeError as error:
        _, _, db_size, error_code, status_size = struct.unpack_from("<IIBHH", body)
        db_at = 13 + status_size
        text = body[db_at + db_size + 1 :].decode(errors="backslashreplace")
        db = body[db_at : db_at + db_size].decode(errors="backslashreplace")
        return {"db": db, "query": text, "error_code": error_code, "not_read": error.message}
    fields: Fields = {"db": query.default_db, "query": query.statement, "thread_id": query.thread_id}
    return fields | ({"error_code": query.error_code} if query.error_code else {})


def _table_map(body: bytes) -> Fields:
    db, table, at = table_names(body[8:])
    columns, _ = packed_length(body[8:], at)
    return {"table_id": int.from_bytes(body[:6], "little"), "db": db, "table": table, "columns": columns}


def _xa_prepare(body: bytes) -> Fields:
    one_phase, form, gtrid_size, bqual_size = struct.unpack_from("<BIII", body)
    xid = body[13 : 13 + gtrid_size + bqual_size]
    gtrid, bqual = xid[:gtrid_size].hex(), xid[gtrid_size:].hex()
    return {"xid": f"X'{gtrid}',X'{bqual}',{form}", "one_phase": bool(one_phase)}


def _rotate(body: bytes) -> Fields:
    return {
        "next_file": body[8:].decode(errors="backslashreplace"),
        "next_position": int.from_bytes(body[:8], "little"),
    }


def _incident(body: bytes) -> Fields:
    return {"incident": int.from_bytes(body[:2], "little"), "message": _text(body[3 : 3 + body[2]])}


def _user_var(body: bytes) -> Fields:
    size = int.from_bytes(body[:4], "little")
    return {"variable": _text(body[4 : 4 + size])}


def _text(data: bytes) -> str:
    return data.decode(errors="backslashreplace")


_READERS: dict[int, Callable[[bytes], Fields]] = {
    framing.QUERY: _query,
    framing.ROTATE: _rotate,
    framing.XID: lambda body: {"xid": int.from_bytes(body[:8], "little")},
    framing.XA_PREPARE: _xa_prepare,
    framing.TABLE_MAP: _table_map,
    framing.ROWS_QUERY: lambda body: {"query": _text(body[1:])},
    framing.MARIADB_ANNOTATE_ROWS: lambda body: {"query": _text(body)},
    framing.MARIADB_BINLOG_CHECKPOINT: lambda body: {"oldest_file": _text(body[4:])},
    framing.INTVAR: lambda body: {_INTVARS.get(body[0], "value"): int.from_bytes(body[1:9], "little")},
    framing.RAND: lambda body: {
        "seed1": int.from_bytes(body[:8], "little"),
        "seed2": int.from_bytes(body[8:16], "little"),
    },
    framing.USER_VAR: _user_var,
    framing.INCIDENT: _incident,
}
