"""Identifiers in backticks."""

from __future__ import annotations


def quote(name: str) -> bytes:
    """An identifier in backticks, as UTF-8."""
    return b"`" + name.replace("`", "``").encode() + b"`"


def qualified(db: str, table: str) -> bytes:
    """A table's full name in backticks."""
    return quote(db) + b"." + quote(table)
