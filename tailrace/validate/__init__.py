"""Proves that a channel's rows are equal on both servers while they are written to.

``tailrace validate`` calls ``validate``, and with ``--follow`` ``follow``. Decision 35 has the protocol and its proof.
"""

from __future__ import annotations

from tailrace.validate.result import Report, TableReport
from tailrace.validate.run import follow, validate

__all__ = ["Report", "TableReport", "follow", "validate"]
