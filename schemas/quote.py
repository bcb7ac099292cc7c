"""Identifiers in backticks."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=4096)  # rows that are applied in order ask for the same columns each
def quoted(*names: str) -> str:
    """A name with what it stands in, such as schema and table, in backticks, which any sql_mode takes for that."""
    return ".".join(["`" + name.replace("`", "``") + "`" for name in names])
