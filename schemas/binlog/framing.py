"""The binlog's framing: event types, the 19-byte header, checksums, and which events stand inside a transaction group.

Sources: MySQL's `libs/mysql/binlog/event/`, MariaDB's `sql/log_event.h`. Pure: bytes in, values out.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple, cast

from zlib_ng.zlib_ng import crc32

from schemas.errors import RelayError, Where
from schemas.gtid.base import GNO_END, checked_source
from schemas.gtid.sets import Flavor, GtidSet, MariadbGtidSet, MysqlGtidSet
from schemas.names import binlog_file

MAGIC = b"\xfebin"
_ENCRYPTED_MAGIC = b"\xfdbin"  # of a file that MySQL wrote with binlog_encryption=ON
HEADER_SIZE = 19
CHECKSUM_SIZE = 4
FIRST_POSITION = 4  # of the first event, after the magic
#: bytes: the largest max_allowed_packet of a server's dump thread, plus some for the framing
MAX_EVENT = (1 << 30) + (1 << 16)

# timestamp, type, server id, event size, end position (32 bits: never an identity), flags
HEADER = struct.Struct("<IBIIIH")
SIZE_OFFSET = 9  # of the event size within the header
FLAGS_OFFSET = 17
EVENT_SIZE = struct.Struct("<I")

#: bytes: a packet of the servers' protocol of this size goes on in the next one, be it empty
MAX_PACKET = 0xFFFFFF

FLAG_IN_USE = 0x01  # in the FORMAT_DESCRIPTION event of a file that is open upstream
FLAG_IGNORABLE = 0x80  # a reader that does not know the event may skip it
FLAG_ARTIFICIAL = 0x20  # created by the dump thread; not in any file

# crc32 over an event and its own little-endian checksum: one call, no slices.
CRC32_RESIDUE = 0x2144DF1C

CHECKSUM_NONE = 0
CHECKSUM_CRC32 = 1

START_V3 = 1
QUERY = 2
STOP = 3
ROTATE = 4
INTVAR = 5
APPEND_BLOCK = 9
DELETE_FILE = 11
RAND = 13
USER_VAR = 14
FORMAT_DESCRIPTION = 15
XID = 16
BEGIN_LOAD_QUERY = 17
EXECUTE_LOAD_QUERY = 18
TABLE_MAP = 19
WRITE_ROWS_V1 = 23
UPDATE_ROWS_V1 = 24
DELETE_ROWS_V1 = 25
INCIDENT = 26
HEARTBEAT = 27
ROWS_QUERY = 29
WRITE_ROWS = 30
UPDATE_ROWS = 31
DELETE_ROWS = 32
GTID = 33
ANONYMOUS_GTID = 34
PREVIOUS_GTIDS = 35
XA_PREPARE = 38
PARTIAL_UPDATE_ROWS = 39
TRANSACTION_PAYLOAD = 40
HEARTBEAT_V2 = 41
GTID_TAGGED = 42
MARIADB_ANNOTATE_ROWS = 160
MARIADB_BINLOG_CHECKPOINT = 161
MARIADB_GTID = 162
MARIADB_GTID_LIST = 163
MARIADB_START_ENCRYPTION = 164
MARIADB_QUERY_COMPRESSED = 165
MARIADB_WRITE_ROWS_COMPRESSED_V1 = 166
MARIADB_UPDATE_ROWS_COMPRESSED_V1 = 167
MARIADB_DELETE_ROWS_COMPRESSED_V1 = 168
MARIADB_WRITE_ROWS_COMPRESSED = 169
MARIADB_UPDATE_ROWS_COMPRESSED = 170
MARIADB_DELETE_ROWS_COMPRESSED = 171

HEARTBEATS = frozenset({HEARTBEAT, HEARTBEAT_V2})

# These never start or end a group. They are most of a binlog, so callers may skip `GroupScanner.feed` for them.
INSIDE_GROUP = frozenset(
    {TABLE_MAP, INTVAR, RAND, USER_VAR, ROWS_QUERY, PARTIAL_UPDATE_ROWS, MARIADB_ANNOTATE_ROWS}
    | set(range(WRITE_ROWS_V1, DELETE_ROWS_V1 + 1))
    | set(range(WRITE_ROWS, DELETE_ROWS + 1))
    | set(range(MARIADB_WRITE_ROWS_COMPRESSED_V1, MARIADB_DELETE_ROWS_COMPRESSED + 1))
)

MARIADB_FL_STANDALONE = 0x01

Buffer = bytes | memoryview


class EventHeader(NamedTuple):
    """The 19 bytes at the start of every event."""

    timestamp: int  # seconds since 1970
    type: int
    server_id: int
    size: int  # bytes, header and checksum included
    end_position: int  # 32 bits, may be 0
    flags: int


def header(event: Buffer, offset: int = 0) -> EventHeader:
    """Read the header of the event at `offset`."""
    return EventHeader(*HEADER.unpack_from(event, offset))


def checksum_algorithm(format_description: Buffer) -> int:
    """Return the checksum algorithm that a FORMAT_DESCRIPTION event declares for its file.

    Its last five bytes are the algorithm and its own checksum (MySQL 5.6+, MariaDB 5.3+).
    """
    return format_description[-5]


def checksum_fits(event: Buffer) -> bool:
    """Whether the last four bytes are the CRC32 of the bytes before."""
    return crc32(event) == CRC32_RESIDUE


_CHECKSUMS = frozenset({CHECKSUM_NONE, CHECKSUM_CRC32})
_NUMBERS = re.compile(r"(\d+)\.(\d+)\.(\d+)")
# From these versions events may have checksums, which FORMAT_DESCRIPTION declares.
# Source: MySQL libs/mysql/binlog/event/binlog_event.h, checksum_version_split; MariaDB sql/log_event.cc.
_CHECKSUM_SINCE = {"MySQL": (5, 6, 1), "MariaDB": (5, 3, 0)}
# Bytes: older servers wrote 94 to 103, the first of these versions 116, so damage cannot be mistaken for age.
_OLD_SIZE = 110


def server_version(format_description: Buffer) -> str:
    """Return the version text of the server that wrote a FORMAT_DESCRIPTION event."""
    start = HEADER_SIZE + 2
    return bytes(format_description[start : start + 50]).rstrip(b"\0").decode(errors="replace")


def flavor_of(format_description: Buffer) -> Flavor:
    """Return the kind of server that wrote a FORMAT_DESCRIPTION event."""
    return "mariadb" if "mariadb" in server_version(format_description).lower() else "mysql"


def magic_fault(start: bytes) -> str:
    """Describe why a file's start is not MAGIC; ``""`` if it is."""
    if start == MAGIC:
        return ""
    if start == _ENCRYPTED_MAGIC:
        return "the file is encrypted by MySQL, which sends its events to replicas unencrypted"
    return "not a binlog file: it does not start with a binlog's magic"


def foreign_format(first_event: bytes) -> str:
    """Describe why the layout of a file's events is not supported; ``""`` if it is.

    Args:
        first_event: of the file. Damage in it is not reported here, but by its checksum.
    """
    if first_event[4] == START_V3:
        return "it is from a MySQL server before 5.0"
    if first_event[4] != FORMAT_DESCRIPTION:
        return ""
    version = server_version(first_event)
    maker = "MariaDB" if flavor_of(first_event) == "mariadb" else "MySQL"
    found = _NUMBERS.match(version)
    sound = checksum_fits(first_event) or checksum_fits(not_in_use(first_event))
    is_short = len(first_event) < _OLD_SIZE
    if found and is_short and not sound and tuple(map(int, found.groups())) < _CHECKSUM_SINCE[maker]:
        return f"it is from {maker} {version}"
    if sound and (algorithm := checksum_algorithm(first_event)) not in _CHECKSUMS:
        return f"its events have the unknown checksum algorithm {algorithm}"
    return ""


def check_format(first_event: bytes, where: Where) -> None:
    """Refuse a file by its first event. Raises RelayError TR310."""
    if fault := foreign_format(first_event):
        raise RelayError(
            "TR310",
            f"the binlog file has an unsupported format: {fault}",
            where=where,
            hint="MySQL from 5.6 and MariaDB from 10.0 are supported: upgrade the upstream, or let a newer server"
            " replicate from it with log_replica_updates (log_slave_updates), and use that one as the upstream",
        )


def not_in_use(format_description: bytes) -> bytes:
    """Return the event without the in-use flag of a file that is open upstream; its checksum is of this form."""
    flags = format_description[FLAGS_OFFSET] & ~FLAG_IN_USE
    return format_description[:FLAGS_OFFSET] + bytes((flags,)) + format_description[FLAGS_OFFSET + 1 :]


def rotate_target(event: Buffer) -> tuple[str, int]:
    """Return file name and position of a ROTATE event, with or without a checksum at its end.

    Raises:
        ValueError, struct.error: the event is too short, or the name is not valid for a binlog file.
    """
    body = bytes(event[HEADER_SIZE:-CHECKSUM_SIZE] if checksum_fits(event) else event[HEADER_SIZE:])
    return binlog_file(body[8:].decode())[0], struct.unpack_from("<Q", body)[0]


def previous_gtids(event: Buffer, has_checksum: bool) -> GtidSet | None:
    """Read the set in a PREVIOUS_GTIDS or GTID_LIST event; None for any other event. Raises ValueError."""
    body = event[HEADER_SIZE : -CHECKSUM_SIZE if has_checksum else None]
    if event[4] == PREVIOUS_GTIDS:
        return MysqlGtidSet.decode(body)
    if event[4] == MARIADB_GTID_LIST:
        return MariadbGtidSet.decode_list(body)
    return None


def previous_gtids_event(gtids: GtidSet, like: EventHeader, position: int, has_checksum: bool) -> bytes:
    """Build a PREVIOUS_GTIDS or GTID_LIST event for `position`, with server id and time of the event `like`."""
    if isinstance(gtids, MysqlGtidSet):
        kind, flags, body = PREVIOUS_GTIDS, FLAG_IGNORABLE, gtids.encode()
    else:
        kind, flags, body = MARIADB_GTID_LIST, 0, cast("MariadbGtidSet", gtids).encode_list()
    size = HEADER_SIZE + len(body) + (CHECKSUM_SIZE if has_checksum else 0)
    event = HEADER.pack(like.timestamp, kind, like.server_id, size, position + size, flags) + body
    return event + struct.pack("<I", crc32(event)) if has_checksum else event


_QUERY_SIZES = struct.Struct("<BxxH").unpack_from
_QUERY_SIZES_AT = HEADER_SIZE + 8
# Header, the fixed part, and the NUL after the default schema's name.
_QUERY_FIXED = HEADER_SIZE + 13 + 1


def query_text(event: Buffer, has_checksum: bool) -> bytes:
    """Return the statement of a QUERY event, in the session's charset."""
    return bytes(event[query_text_at(event) : -CHECKSUM_SIZE if has_checksum else None])


def query_text_at(data: Buffer, i: int = 0) -> int:
    """Return the offset in ``data`` of the statement of the QUERY event at ``data[i]``."""
    schema_size, status_size = _QUERY_SIZES(data, i + _QUERY_SIZES_AT)
    return int(i + _QUERY_FIXED + status_size + schema_size)


def read_varlen(data: Buffer, offset: int) -> tuple[int, int]:
    """Read an unsigned integer in MySQL's variable-length form; returns it and the offset after it.

    The count of trailing one bits in the first byte is the count of further bytes (0 to 8).
    """
    first = data[offset]
    extra = ((first ^ 0xFF) & -(first ^ 0xFF)).bit_length() - 1 if first != 0xFF else 8
    raw = int.from_bytes(data[offset : offset + extra + 1], "little")
    return raw >> (extra + 1), offset + extra + 1


class TaggedGtid(NamedTuple):
    """The contents of a GTID_TAGGED event (MySQL 8.4+)."""

    source: bytes  # UUID and tag
    number: int
    commit_micros: int  # of the original commit; µs since 1970, 0 if unknown


_UUID_FIELD, _TAG_FIELD = 1, 3
_MAX_TAGGED = 1024  # bytes, several times what a server writes


def tagged_gtid(event: Buffer) -> TaggedGtid:
    """Read a GTID_TAGGED event. Raises ValueError, IndexError.

    Fields are pairs of id and value, in order: 0 flags, 1 UUID (16 numbers), 2 number (zigzag), 3 tag, 4 and 5 for
    parallel replicas, 6 immediate commit, 7 original commit (if it differs), and others that are not used here.
    Source: MySQL libs/mysql/binlog/event/control_events.h, Gtid_event::define_fields.
    """
    if len(event) > _MAX_TAGGED:
        raise ValueError(f"a tagged GTID event has {len(event)} bytes")
    _, at = read_varlen(event, HEADER_SIZE)  # the format's version
    size, at = read_varlen(event, at)
    _, at = read_varlen(event, at)  # the last field that a reader must know
    fields: dict[int, int] = {}
    uuid, tag, end = b"", b"", HEADER_SIZE + size
    while at < end:
        field, at = read_varlen(event, at)
        if field == _UUID_FIELD:
            digits = []
            for _ in range(16):
                digit, at = read_varlen(event, at)
                digits.append(digit)
            uuid = bytes(digits)
            continue
        fields[field], at = read_varlen(event, at)
        if field == _TAG_FIELD:
            tag, at = bytes(event[at : at + fields[field]]), at + fields[field]
    raw = fields.get(2, 0)
    number = (raw >> 1) ^ -(raw & 1)
    if len(uuid) != 16 or number < 1:
        raise ValueError("a tagged GTID event has no UUID or no number")
    check_number(number)
    micros = fields.get(7) or fields.get(6, 0)
    if micros >> 55:  # the size of the field in other GTID events
        raise ValueError(f"a transaction has the impossible time {micros} µs")
    return TaggedGtid(checked_source(uuid, tag), number, micros)


def check_number(number: int) -> None:
    """Raise ValueError for a number that no MySQL server gives a transaction."""
    if not 1 <= number < GNO_END:
        raise ValueError(f"a GTID has the impossible number {number}")


def commit_ms(event: bytes) -> int:
    """Return the upstream's commit time of the transaction that a GTID event starts, in ms since 1970.

    MySQL 8 logs it in µs; other servers log only the event's seconds. Source: MySQL control_events.h, Gtid_event:
    if the top bit of the timestamp is set, the original one follows.
    """
    kind, seconds = event[4], int.from_bytes(event[:4], "little")
    if kind == GTID_TAGGED:
        return tagged_gtid(event).commit_micros // 1000 or seconds * 1000
    if kind not in (GTID, ANONYMOUS_GTID) or len(event) < 70:
        return seconds * 1000
    micros = int.from_bytes(event[61:68], "little")
    return (original_micros(event) if micros >> 55 else micros) // 1000


def original_micros(data: Buffer, i: int = 0) -> int:
    """Read the original commit time, in µs, of the GTID event at ``data[i]``, which another server logged again."""
    return int.from_bytes(data[i + 68 : i + 75], "little") & ((1 << 55) - 1)
