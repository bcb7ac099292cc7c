"""Columns that have the same bytes in both images of an UPDATE are read once, with the same result."""

from __future__ import annotations

from pathlib import Path

import pytest

from producer.decode import row_decoder
from producer.epochs.open_epoch import EpochLimits
from relay_store.read.reader import RelayBlock
from schemas.binlog.framing import FIRST_POSITION
from schemas.gtid.sets import Flavor
from tests.support.binlogs.ahead import epochs
from tests.support.golden.golden_binlogs import BINLOGS, FILE, SUBDIR

_LIMITS = EpochLimits(7, 1 << 40, 1e9, 1e9)


@pytest.mark.parametrize("together", [1, 2, 3])
@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
@pytest.mark.parametrize("suffix", ["", "_values", "_images"])
def test_updates_of_the_servers_logs(
    flavor: Flavor, suffix: str, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    root: Path = BINLOGS / f"{flavor}{suffix}"
    data = (root / SUBDIR / FILE).read_bytes()[FIRST_POSITION:]
    made = []
    for columns in (together, 1 << 30):
        monkeypatch.setattr(row_decoder, "_TOGETHER", columns)
        made.append(epochs([RelayBlock(SUBDIR, FILE, FIRST_POSITION, data)], flavor, root, _LIMITS).epochs)
    assert made[0] == made[1]
    updates = [row for epoch, _ in made[0] for row in epoch["records"] if row[2][10:12] == b"\x02u"]
    assert updates
