"""Lag, from positions and times as data."""

from __future__ import annotations

from datetime import UTC, datetime

from tailrace.cli.status import _state
from tailrace.status.collect import lag, transactions_behind

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def _channel(epoch: int, gtids: str) -> dict[str, object]:
    at = datetime.fromtimestamp(1000, UTC).isoformat()
    return {"epoch": epoch, "gtids": gtids, "last_commit": at}


def test_transactions_of_both_flavours() -> None:
    assert transactions_behind(f"{UUID}:1-10", f"{UUID}:1-7", "mysql") == 3
    assert transactions_behind("0-1-10,5-1-4", "0-1-7", "mariadb") == 7
    assert transactions_behind("0-1-10", "0-2-12", "mariadb") == 0
    assert transactions_behind("nonsense", "", "mysql") is None


def test_a_channel_that_has_everything_has_no_lag() -> None:
    upstream = {"gtids": f"{UUID}:1-10", "flavor": "mysql"}
    found = lag(_channel(5, f"{UUID}:1-10"), upstream, {"epoch": 5}, now=9999)
    assert found == {"epochs": 0, "transactions": 0, "seconds": 0.0}


def test_a_channel_behind_is_as_old_as_its_last_commit() -> None:
    upstream = {"gtids": f"{UUID}:1-12", "flavor": "mysql"}
    found = lag(_channel(3, f"{UUID}:1-10"), upstream, {"epoch": 5}, now=1004.5)
    assert found == {"epochs": 2, "transactions": 2, "seconds": 4.5}


def test_without_the_upstream_the_log_decides() -> None:
    found = lag(_channel(5, ""), {"error": {}}, {"epoch": 5}, now=1004)
    assert found == {"epochs": 0, "transactions": None, "seconds": 0.0}
    found = lag(_channel(4, ""), {"error": {}}, {"error": {}}, now=1004)
    assert found == {"epochs": None, "transactions": None, "seconds": 4.0}


ENDED = {
    "consistent": True,
    "memory": None,
    "rewound_from": None,
    "began_whole": True,
    "began_behind": f"{UUID}:1-5",
    "counters": None,
    "decided": 0,
    "target": "mysql://root@127.0.0.1/",
}


def test_only_what_is_proved_is_said_of_the_tables() -> None:
    equal = "ended in order; the tables equal the upstream at this position"
    assert _state(ENDED) == [equal]
    unproved = " ".join(_state({**ENDED, "began_whole": False}))
    assert f"what was written upstream up to {UUID}:1-5 did not come by this channel" in unproved
    assert "equal" not in unproved
    counters = {"filtered": 2, "expression_filtered": 1, "ddl_left_out": 1, "skipped": 4}
    assert _state({**ENDED, "counters": counters, "decided": 1}) == [
        f"{equal}, but for 3 row changes that its rules leave out, but for 1 DDL statement that was left out,"
        " but for 4 events that [[skip]] passed over, but for 1 event that was decided about with `tailrace error`"
    ]
    again = " ".join(_state({**ENDED, "rewound_from": {"epoch": 7}}))
    assert "applied again up to epoch 7" in again
    assert "equal" not in again
    assert "equal" not in " ".join(_state({**ENDED, "target": "parquet:/lake", "began_whole": False}))


def test_a_channel_that_runs_runs() -> None:
    assert _state({**ENDED, "consistent": False, "memory": {"state": "waiting"}}) == ["runs"]
    assert _state({**ENDED, "consistent": False}) == ["was cut off, or runs on another machine"]
