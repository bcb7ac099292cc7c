"""Proves that a channel's rows are equal on both servers while they are written to.

``tailrace validate`` calls ``validate``, and with ``--follow`` ``follow``. Decision 35 has the protocol and its proof.
``tailrace compare`` calls ``compare``, for two servers at rest; demo, benchmark and tests call ``compare_servers``.
"""

from __future__ import annotations

from tailrace.validate.at_rest import compare, compare_servers
from tailrace.validate.result import Report, TableReport
from tailrace.validate.run import follow, validate

__all__ = ["Report", "TableReport", "compare", "compare_servers", "follow", "validate"]
