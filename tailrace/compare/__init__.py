"""Compares two servers table by table, structure and every byte of every row.

The library behind ``tailrace compare``; demo, tests and benchmark call ``compare_servers`` too.
"""

from __future__ import annotations

from tailrace.compare.engine import compare_servers
from tailrace.compare.result import CompareResult, TableResult

__all__ = ["CompareResult", "TableResult", "compare_servers"]
