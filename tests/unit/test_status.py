"""Lag, from positions and times as data."""

from __future__ import annotations

from datetime import UTC, datetime

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
