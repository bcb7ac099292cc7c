"""Classifies the downstream's errors: a lost connection, a temporary state, a missing privilege."""

from __future__ import annotations

import pymysql

#: the connection is lost, or the server is shutting down or starting
LOST = frozenset(
    {1053, 1077, 1079, 1158, 1159, 1160, 1161, 1317, 1927, 2002, 2003, 2006, 2013, 2014, 2055, 4031}
)
#: the transaction was rolled back by a lock conflict; a retry can succeed
VICTIM = frozenset({1205, 1213, 3101, 3572})
#: the server accepts no connection or no write for now: too many connections or prepared statements, read-only, disk
#: full, no memory
BUSY = frozenset(
    {1021, 1026, 1037, 1038, 1040, 1041, 1114, 1129, 1135, 1203, 1226, 1290, 1461, 1598, 1792, 1836, 3100}
)
#: the account lacks a privilege
DENIED = frozenset({1044, 1045, 1142, 1143, 1227, 1370, 1419, 1698})
#: a table without transactions is damaged because its server was killed; it has to be repaired
CRASHED = frozenset({126, 127, 144, 145, 1032, 1034, 1194, 1195})
# In "Got error N from storage engine": the operating system's numbers for a full disk and an exceeded quota.
_ENGINE, _DISK_FULL = 1030, ("error 28 ", "error 122 ", "error: 28 ", "error: 122 ")


def error_number(error: BaseException) -> int:
    """Return the server's error number, 0 without one."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def is_lost(error: BaseException) -> bool:
    """Whether the connection is lost, so that the transaction's outcome is not known."""
    return isinstance(error, OSError | EOFError | pymysql.InterfaceError) or error_number(error) in LOST


def is_passing(error: BaseException) -> bool:
    """Whether a retry may succeed without a change to the work itself."""
    number = error_number(error)
    if number == _ENGINE:
        return any(text in str(error).lower() for text in _DISK_FULL)
    return is_lost(error) or number in VICTIM or number in BUSY


def is_denied(error: BaseException) -> bool:
    """Whether the account lacks a privilege."""
    return error_number(error) in DENIED


def is_crashed(error: BaseException) -> bool:
    """Whether a table's files are damaged because the server was killed."""
    return error_number(error) in CRASHED


def message_of(error: BaseException) -> str:
    """Return the server's error number and message, cut to a readable length."""
    text = " ".join(str(arg) for arg in error.args) or type(error).__name__
    return text if len(text) <= 300 else text[:300] + "…"
