"""GTID sets of both flavors: immutable values, and cheap accumulators that yield them.

A MySQL set has intervals of transaction numbers for each source UUID and tag. A MariaDB set, like `gtid_slave_pos`,
has the last sequence number of each domain and the server that wrote it, which includes all transactions before it
in that domain. Both have the same methods, so callers need not distinguish them.
"""

from __future__ import annotations

from schemas.gtid.base import (
    Flavor,
    GtidSet,
    GtidTracker,
    SourceKey,
    before_number,
    gtid_text,
    source_key,
    uuid_text,
)
from schemas.gtid.mariadb import MariadbGtid, MariadbGtidSet, MariadbGtidTracker
from schemas.gtid.mysql import MysqlGtidSet, MysqlGtidTracker

__all__ = [
    "Flavor",
    "GtidSet",
    "GtidTracker",
    "MariadbGtid",
    "MariadbGtidSet",
    "MariadbGtidTracker",
    "MysqlGtidSet",
    "MysqlGtidTracker",
    "SourceKey",
    "before_number",
    "empty_gtid_set",
    "flavor_of",
    "gtid_text",
    "parse_gtid_set",
    "source_key",
    "uuid_text",
]


def parse_gtid_set(text: str, flavor: Flavor) -> GtidSet:
    """Parse a set in that flavor's form. Raises ValueError with the wrong part."""
    return MariadbGtidSet.parse(text) if flavor == "mariadb" else MysqlGtidSet.parse(text)


def flavor_of(*texts: str) -> Flavor:
    """Return the flavor of these sets: only MySQL's have colons."""
    return "mysql" if any(":" in text for text in texts) else "mariadb"


def empty_gtid_set(flavor: Flavor) -> GtidSet:
    """Return a set without transactions."""
    return MariadbGtidSet() if flavor == "mariadb" else MysqlGtidSet()
