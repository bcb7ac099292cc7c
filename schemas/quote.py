"""Identifiers in backticks."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=4096)  # rows applied in order use the same columns again and again
def quoted(*names: str) -> str:
    """Quote a name with its qualifiers, such as schema and table, in backticks, which work in any sql_mode."""
    return ".".join(["`" + name.replace("`", "``") + "`" for name in names])
