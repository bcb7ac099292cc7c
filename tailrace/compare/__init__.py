"""Compares two servers table by table: the structure and every byte of every row.

``tailrace compare``, the demo, the tests and the benchmark call ``compare_servers``.
"""

from __future__ import annotations

from tailrace.compare.engine import compare_servers
from tailrace.compare.result import CompareResult, TableResult

__all__ = ["CompareResult", "TableResult", "compare_servers"]
