"""Counts with their noun, for messages: ``1 file``, ``2 files``."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Format a count: ``1 table``, ``2 tables``, ``45,000 rows``. The plural of the noun must end with s."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
