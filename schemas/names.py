"""Checks names from outside before a path, a folder or SQL is made of them.

An upstream, or whoever sits on a line that is not encrypted, says how binlog files are called and what the server's
UUID is; so do records in Kafka and files in the relay directory. All of them come through here.
"""

from __future__ import annotations

import re

#: the last number that a server gives a binlog file; source: MySQL sql/binlog.h, MAX_LOG_UNIQUE_FN_EXT
_LAST_NUMBER = (1 << 31) - 1
_MAX_FILE_NAME = (
    200  # characters; a part's offset and the ending of a file in the making have to fit behind it
)

# Servers pad the number to six digits; a name with a zero more would be another file of the same number.
_NUMBERED = re.compile(r"(.+)\.([0-9]{6}|[1-9][0-9]{6,9})", re.DOTALL)
_PART = re.compile(r"(.+\.[0-9]+)\+([1-9][0-9]{0,18})", re.DOTALL)
_UUID = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_SUBDIR = re.compile(r"([0-9A-Za-z-]{1,64})\.([0-9]{6,10})")
# What ends a string, a path's part or a line somewhere.
_NEVER = frozenset("/\\\"'`")


class UnfitName(ValueError):
    """A name that nothing of its kind can have."""


def binlog_file(name: str) -> tuple[str, int]:
    """The name of an upstream's binlog file, and its number: 7 of ``mysql-bin.000007``. Raises UnfitName."""
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
    """The same of a relay file, which may be a part: the upstream's file, its number, and the part's offset."""
    part = _PART.fullmatch(name)
    return (*binlog_file(part[1] if part else name), int(part[2]) if part else 0)


def is_uuid(text: str) -> bool:
    """Whether a text is a UUID as servers write it."""
    return _UUID.fullmatch(text) is not None


def server_uuid(text: str) -> str:
    """A server's UUID. Raises UnfitName."""
    if not is_uuid(text):
        raise UnfitName(f"{text[:100]!r} is not a server's UUID")
    return text


def relay_subdir(name: str) -> tuple[str, int]:
    """What a relay sub-directory is named after, and its serial number: ``<server-uuid>.000002``. Raises UnfitName."""
    match = _SUBDIR.fullmatch(name)
    if match is None:
        raise UnfitName(f"{name[:100]!r} is not the name of a relay sub-directory")
    return match[1], int(match[2])
