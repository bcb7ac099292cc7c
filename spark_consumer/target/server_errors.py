"""What an error of the downstream means: a lost connection, a passing state, a missing privilege."""

from __future__ import annotations

import pymysql

#: the connection is gone, or the server is going or coming
LOST = frozenset(
    {1053, 1077, 1079, 1158, 1159, 1160, 1161, 1317, 1927, 2002, 2003, 2006, 2013, 2014, 2055, 4031}
)
#: the transaction was chosen as a victim; the same one can succeed
VICTIM = frozenset({1205, 1213, 3101, 3572})
#: the server lets nobody in, or writes nothing, for now: connections used up, read-only, disk full, no memory
BUSY = frozenset(
    {1021, 1026, 1037, 1038, 1040, 1041, 1114, 1129, 1135, 1203, 1226, 1290, 1598, 1792, 1836, 3100}
)
#: the account may not do it
DENIED = frozenset({1044, 1045, 1142, 1143, 1227, 1370, 1419, 1698})
#: a table without transactions in which its server was killed: what is in its files has to be put in order
CRASHED = frozenset({126, 127, 144, 145, 1032, 1034, 1194, 1195})
# "Got error N from storage engine": the operating system's numbers for a full disk and quota.
_ENGINE, _DISK_FULL = 1030, ("error 28 ", "error 122 ", "error: 28 ", "error: 122 ")


def error_number(error: BaseException) -> int:
    """The server's error number, 0 without one."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def is_lost(error: BaseException) -> bool:
    """Whether an error means that the connection is gone, so that the transaction's outcome is open."""
    return isinstance(error, OSError | EOFError | pymysql.InterfaceError) or error_number(error) in LOST


def is_passing(error: BaseException) -> bool:
    """Whether the same work may succeed later, without anybody changing it."""
    number = error_number(error)
    if number == _ENGINE:
        return any(text in str(error).lower() for text in _DISK_FULL)
    return is_lost(error) or number in VICTIM or number in BUSY


def is_denied(error: BaseException) -> bool:
    """Whether the account lacks a privilege."""
    return error_number(error) in DENIED


def is_crashed(error: BaseException) -> bool:
    """Whether a table's files are as a killed server has left them."""
    return error_number(error) in CRASHED


def message_of(error: BaseException) -> str:
    """The server's message with its number, values and all cut to a readable length."""
    text = " ".join(str(arg) for arg in error.args) or type(error).__name__
    return text if len(text) <= 300 else text[:300] + "…"
