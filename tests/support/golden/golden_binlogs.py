"""The folder of the golden binlogs."""

from __future__ import annotations

from tests.support.paths import GOLDEN

BINLOGS = GOLDEN / "binlogs"
SUBDIR, FILE = "golden.000001", "mysql-bin.000001"
