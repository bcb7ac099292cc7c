"""The bits of sql_mode, as the binlog has them.

Source: MySQL and MariaDB, ``sql/sql_class.h`` and ``sql/sql_priv.h``; most are the same in both flavors.
"""

from __future__ import annotations

from schemas.ddl.lexer import Flavor

_SHARED = {
    0: "REAL_AS_FLOAT",
    1: "PIPES_AS_CONCAT",
    2: "ANSI_QUOTES",
    3: "IGNORE_SPACE",
    5: "ONLY_FULL_GROUP_BY",
    6: "NO_UNSIGNED_SUBTRACTION",
    7: "NO_DIR_IN_CREATE",
    18: "ANSI",
    19: "NO_AUTO_VALUE_ON_ZERO",
    20: "NO_BACKSLASH_ESCAPES",
    21: "STRICT_TRANS_TABLES",
    22: "STRICT_ALL_TABLES",
    23: "NO_ZERO_IN_DATE",
    24: "NO_ZERO_DATE",
    25: "ALLOW_INVALID_DATES",
    26: "ERROR_FOR_DIVISION_BY_ZERO",
    27: "TRADITIONAL",
    29: "HIGH_NOT_PRECEDENCE",
    30: "NO_ENGINE_SUBSTITUTION",
    31: "PAD_CHAR_TO_FULL_LENGTH",
}
_MARIADB = {
    4: "IGNORE_BAD_TABLE_OPTIONS",
    8: "POSTGRESQL",
    9: "ORACLE",
    10: "MSSQL",
    11: "DB2",
    12: "MAXDB",
    13: "NO_KEY_OPTIONS",
    14: "NO_TABLE_OPTIONS",
    15: "NO_FIELD_OPTIONS",
    16: "MYSQL323",
    17: "MYSQL40",
    28: "NO_AUTO_CREATE_USER",
    32: "EMPTY_STRING_IS_NULL",
    33: "SIMULTANEOUS_ASSIGNMENT",
    34: "TIME_ROUND_FRACTIONAL",
}
_BITS: dict[Flavor, dict[int, str]] = {
    "mysql": _SHARED | {32: "TIME_TRUNCATE_FRACTIONAL"},
    "mariadb": _SHARED | _MARIADB,
}


def sql_mode_text(bits: int, source: Flavor, target: Flavor) -> str:
    """Return an upstream's sql_mode bits as text, without modes that the target's flavor does not have."""
    known = set(_BITS[target].values())
    names = [name for bit, name in _BITS[source].items() if bits >> bit & 1]
    return ",".join(name for name in names if name in known)


def sql_mode_bits(text: str, flavor: Flavor) -> int:
    """Return the bits of a server's sql_mode.

    Raises:
        ValueError: an unknown mode.
    """
    bits = {name: 1 << bit for bit, name in _BITS[flavor].items()}
    modes = set(filter(None, text.split(",")))
    if unknown := modes - bits.keys():
        raise ValueError(f"unknown sql_mode {', '.join(sorted(unknown))}")
    return sum(bits[mode] for mode in modes)
