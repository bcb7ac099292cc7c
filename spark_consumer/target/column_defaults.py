"""The values that an INSERT writes into columns that its row image lacks."""

from __future__ import annotations

import re

from spark_consumer.target.session import Flavor

# The value of a NOT NULL column without a default, where sql_mode allows to omit the column.
_IMPLICIT = {
    **dict.fromkeys(
        ("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double"), b"0"
    ),
    **dict.fromkeys(("bit", "year"), b"0"),
    **dict.fromkeys(("char", "varchar", "binary", "varbinary", "set"), b"''"),
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext"), b"''"),
    **dict.fromkeys(("tinyblob", "blob", "mediumblob", "longblob"), b"''"),
    "enum": b"1",
    "json": b"'null'",
    "date": b"'0000-00-00'",
    "time": b"'00:00:00'",
    **dict.fromkeys(("datetime", "timestamp"), b"'0000-00-00 00:00:00'"),
}
# Constants in MariaDB's spelling: NULL, quoted text, numbers, bits. Everything else is an expression.
_CONSTANT = re.compile(
    r"NULL|\w*'(?:[^'\\]|''|\\.)*'|[-+]?[0-9.]+(?:e[-+]?[0-9]+)?", re.IGNORECASE | re.DOTALL
)


def default_of(flavor: Flavor, extra: str, default: str | None, nullable: bool, kind: str) -> bytes | None:
    """Return SQL text of the value that an INSERT writes into a column that it omits; None if it is not known.

    Args:
        extra, default: the columns of ``information_schema.COLUMNS``.
        kind: the type's name in lower case, such as ``varchar``.
    """
    words = extra.upper()
    if any(word in words for word in ("AUTO_INCREMENT", "DEFAULT_GENERATED", " GENERATED", "PERSISTENT")):
        return None
    if default is None:
        return b"DEFAULT" if nullable else _IMPLICIT.get(kind)
    if flavor == "mariadb":
        return b"DEFAULT" if _CONSTANT.fullmatch(default) else None
    # MySQL shows constants without quotes, and before 8.0 does not mark the one default that is not a constant.
    now = kind in ("timestamp", "datetime") and default.upper().startswith("CURRENT_TIMESTAMP")
    return None if now else b"DEFAULT"
