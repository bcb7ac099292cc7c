"""GTID_TAGGED events: which transaction, and when it was committed where it was first made."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from schemas.binlog import framing
from tests.support.binlogs.decoder import new_decoder, run
from tests.support.binlogs.relay_events import event, format_description, query, xid

UUID = bytes(range(16))
IMMEDIATE, ORIGINAL = 1_770_368_687_207_196, 1_770_000_000_000_999


def _varlen(value: int) -> bytes:
    """MySQL's variable-length form: as many trailing one bits as there are further bytes."""
    extra = next(n for n in range(9) if value < 1 << 7 * (n + 1) or n == 8)
    return (value << extra + 1 | (1 << extra) - 1).to_bytes(extra + 1, "little")


def _event(commits: Sequence[tuple[int, int]]) -> bytes:
    """As MySQL 9 writes it: flags, UUID, number, tag, two counters, commit times, length, version."""
    fields = b"".join(map(_varlen, (0, 0, 1, *UUID, 2, 7 << 1, 3, 5))) + b"mytag"
    fields += b"".join(map(_varlen, (4, 0, 5, 4, *(n for pair in commits for n in pair), 8, 296, 9, 90600)))
    size = next(n for n in range(200) if n == len(_varlen(1) + _varlen(n) + _varlen(0)) + len(fields))
    return event(framing.GTID_TAGGED, _varlen(1) + _varlen(size) + _varlen(0) + fields)


@pytest.mark.parametrize(("commits", "micros"), [
    ([(6, IMMEDIATE)], IMMEDIATE),
    ([(6, IMMEDIATE), (7, ORIGINAL)], ORIGINAL),
    ([], 0),
])  # fmt: skip
def test_what_it_says(commits: Sequence[tuple[int, int]], micros: int) -> None:
    gtid = _event(commits)
    assert framing.tagged_gtid(gtid) == (UUID + b"mytag", 7, micros)
    decoder = new_decoder()
    data = b"".join((format_description(), gtid, query(b"BEGIN"), xid()))
    decoder.leave_file_for("", "mysql-bin.000001")
    assert run(decoder, data) == len(data)
    # without a commit time there is the header's, in seconds
    assert decoder.state.epoch.last_commit_ms == (micros // 1000 or 1000)


def test_without_a_number_it_is_damaged() -> None:
    with pytest.raises(ValueError, match="no UUID or no number"):
        framing.tagged_gtid(event(framing.GTID_TAGGED, b"".join(map(_varlen, (1, 5, 0, 0, 0)))))
