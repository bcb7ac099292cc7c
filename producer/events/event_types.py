"""Event types without content, and those that stop the producer, with hints."""

from __future__ import annotations

from schemas.binlog import framing
from schemas.errors import DecodeError

_TRANSACTION_CONTEXT, _VIEW_CHANGE = 36, 37
#: Carry nothing that a downstream needs. INTVAR, RAND and USER_VAR belong to statement-format DML, which stops; so do
#: the pieces of a file whose LOAD DATA is logged as text.
WITHOUT_CONTENT = frozenset(
    {
        framing.STOP,
        framing.ROTATE,
        framing.PREVIOUS_GTIDS,
        framing.INTVAR,
        framing.RAND,
        framing.USER_VAR,
        framing.BEGIN_LOAD_QUERY,
        framing.APPEND_BLOCK,
        framing.DELETE_FILE,
        framing.HEARTBEAT,
        framing.HEARTBEAT_V2,
        framing.MARIADB_BINLOG_CHECKPOINT,
        framing.MARIADB_GTID_LIST,
        _TRANSACTION_CONTEXT,
        _VIEW_CHANGE,
    }
)

_OLD = (
    "of a server before MySQL 5.1 or MariaDB 5.1",
    "newer servers do not write it: copy the tables again and start a new log after this position",
)
_REFUSED = {
    # START_V3, LOAD, SLAVE, CREATE_FILE, EXEC_LOAD, NEW_LOAD, and rows from before 5.1 was released.
    **dict.fromkeys((1, 6, 7, 8, 10, 12, 20, 21, 22), _OLD),
    framing.INCIDENT: (
        "INCIDENT, the upstream lost events here and says so",
        "nobody knows what they changed: begin a new log behind this position, on a fresh copy of the tables",
    ),
    framing.MARIADB_START_ENCRYPTION: (
        "START_ENCRYPTION, the file is encrypted from here on",
        "set encrypt_binlog = OFF and restart the upstream; then start a new log in a later file",
    ),
}
_NOT_KNOWN = (
    "it is not known, nor marked as one that may be ignored",
    "the upstream is newer than this version, or of a maker of its own: upgrade Tailrace, or switch off upstream "
    "what writes such events and begin a new log behind this position",
)


def refuse_unknown(kind: int, event: bytes) -> None:
    """Stop at an event of a type that is not read, unless the server marked it as one that may be ignored.

    Raises:
        DecodeError: TR410.
    """
    if framing.header(event).flags & framing.FLAG_IGNORABLE:
        return
    what, hint = _REFUSED.get(kind, _NOT_KNOWN)
    raise DecodeError("TR410", f"event type {kind}: {what}", hint=hint)
