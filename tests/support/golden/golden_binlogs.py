"""The golden binlogs of real servers."""

from __future__ import annotations

from schemas.binlog import framing
from schemas.gtid.sets import Flavor
from tests.support.paths import GOLDEN

BINLOGS = GOLDEN / "binlogs"
SUBDIR, FILE = "golden.000001", "mysql-bin.000001"
NAMES = sorted(path.parent.name for path in BINLOGS.glob("*/expected.txt"))


def flavor_of(name: str) -> Flavor:
    """The kind of server that wrote a golden binlog."""
    return "mysql" if name.startswith("mysql") else "mariadb"


def golden_log(name: str) -> bytes:
    """A golden binlog's bytes."""
    return (BINLOGS / name / SUBDIR / FILE).read_bytes()


def events_in(log: bytes) -> list[bytes]:
    """The events of a binlog."""
    at, events = framing.FIRST_POSITION, []
    while at < len(log):
        size = framing.header(log, at).size
        events.append(log[at : at + size])
        at += size
    return events
