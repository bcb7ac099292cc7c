"""Checks names from outside before they become part of a path, a folder's name or SQL.

The names of binlog files and the server's UUID come from the upstream, or from an attacker on an unencrypted
connection, and also from records in Kafka and files in the relay directory. All of them are checked here.
"""

from __future__ import annotations

import re

#: the last number that a server gives a binlog file; source: MySQL sql/binlog.h, MAX_LOG_UNIQUE_FN_EXT
_LAST_NUMBER = (1 << 31) - 1
_MAX_FILE_NAME = 200  # characters; the offset of a part and the suffix of a temporary file are appended

# Servers pad the number to six digits; with one more zero it would be another file of the same number.
_NUMBERED = re.compile(r"(.+)\.([0-9]{6}|[1-9][0-9]{6,9})", re.DOTALL)
_PART = re.compile(r"(.+\.[0-9]+)\+([1-9][0-9]{0,18})", re.DOTALL)
_UUID = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_SUBDIR = re.compile(r"([0-9A-Za-z-]{1,64})\.([0-9]{6,10})")
# Characters that end a string or separate the parts of a path.
_NEVER = frozenset("/\\\"'`")


class UnfitName(ValueError):
    """A name from outside is not valid."""


def binlog_file(name: str) -> tuple[str, int]:
    """Check the name of an upstream's binlog file. Returns it and its number, as in ``mysql-bin.000007``.

    Raises UnfitName.
    """
    match = _NUMBERED.fullmatch(name)
    if (
        match is None
        or len(name) > _MAX_FILE_NAME
        or not name.isprintable()
        or not _NEVER.isdisjoint(name)
        or int(match[2]) > _LAST_NUMBER
    ):
        raise UnfitName(f"{name[:_MAX_FILE_NAME]!r} is not the name of a binlog file")
    return name, int(match[2])


def relay_file(name: str) -> tuple[str, int, int]:
    """Check the name of a relay file. Returns the upstream's file, its number, and the offset of the part, or 0.

    Raises UnfitName.
    """
    part = _PART.fullmatch(name)
    return (*binlog_file(part[1] if part else name), int(part[2]) if part else 0)


def is_uuid(text: str) -> bool:
    """Whether a text is a UUID in the servers' format."""
    return _UUID.fullmatch(text) is not None


def server_uuid(text: str) -> str:
    """Check and return a server's UUID. Raises UnfitName."""
    if not is_uuid(text):
        raise UnfitName(f"{text[:100]!r} is not a server's UUID")
    return text


def relay_subdir(name: str) -> tuple[str, int]:
    """Check the name of a relay sub-directory, ``<server-uuid>.000002``. Returns the UUID and the serial number.

    Raises UnfitName.
    """
    match = _SUBDIR.fullmatch(name)
    if match is None:
        raise UnfitName(f"{name[:100]!r} is not the name of a relay sub-directory")
    return match[1], int(match[2])
