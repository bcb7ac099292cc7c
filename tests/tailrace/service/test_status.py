"""Lag, from positions and times as data."""

from __future__ import annotations

from dataclasses import replace

from producer.epochs.progress import PublishProgress
from relay_store.layout.directory import RelayPosition
from spark_consumer.epochs.slices import LoggedEpoch, Slice
from spark_consumer.job.progress import Counters
from tailrace.commands.status import _state
from tailrace.service.consume_progress import LogEnd, snapshot
from tailrace.service.true_lag import lag_seconds
from tailrace.status.lag import is_caught_up, lag, transactions_behind
from tests.support.epochs.records import epoch_record

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def _channel(epoch: int, gtids: str) -> dict[str, object]:
    return {"epoch": epoch, "gtids": gtids, "epochs_offset": 2 * epoch}


def _upstream(last: int, **more: object) -> dict[str, object]:
    return {"gtids": f"{UUID}:1-{last}", "flavor": "mysql", "has_gtids": True, "uuid": UUID} | more


def test_transactions_of_both_flavors() -> None:
    assert transactions_behind(f"{UUID}:1-10", f"{UUID}:1-7", "mysql") == 3
    assert transactions_behind("0-1-10,5-1-4", "0-1-7", "mariadb") == 7
    assert transactions_behind("0-1-10", "0-2-12", "mariadb") == 0
    assert transactions_behind("nonsense", "", "mysql") is None


def test_a_channel_that_has_everything_has_no_lag() -> None:
    found = lag(_channel(5, f"{UUID}:1-10"), _upstream(10), {"epoch": 5}, 0, now=9999)
    assert found == {"epochs": 0, "transactions": 0, "seconds": 0.0}
    # Also where something is in the log that it has all the same, and where nobody could look.
    for waiting in (1, None):
        found = lag(_channel(4, f"{UUID}:1-10"), _upstream(10), {"epoch": 5}, waiting, now=9999)
        assert found == {"epochs": 1, "transactions": 0, "seconds": 0.0}


def test_a_channel_behind_is_as_old_as_the_oldest_transaction_that_it_lacks() -> None:
    found = lag(_channel(3, f"{UUID}:1-10"), _upstream(12), {"epoch": 5}, 1_000_000, now=1004.5)
    assert found == {"epochs": 2, "transactions": 2, "seconds": 4.5}


def test_what_engine_unknown_is_not_called_nothing() -> None:
    found = lag(_channel(5, ""), {"error": {}}, {"epoch": 5}, None, now=1004)
    assert found == {"epochs": 0, "transactions": None, "seconds": None}
    found = lag(_channel(4, ""), {"error": {}}, {"error": {}}, None, now=1004)
    assert found == {"epochs": None, "transactions": None, "seconds": None}
    # Without GTIDs nobody can count, and the log and the positions tell.
    found = lag(_channel(4, ""), _upstream(0, has_gtids=False), {"epoch": 5}, 1_000_000, now=1004)
    assert found == {"epochs": 1, "transactions": None, "seconds": 4.0}


def test_kafka_has_all_that_is_upstream_by_gtids_or_else_by_place() -> None:
    last = {"gtids": f"{UUID}:1-10", "source_id": UUID, "file": "b.000002", "position": 4}
    assert is_caught_up(_upstream(10, file="b.000003", position=157), last)
    assert not is_caught_up(_upstream(11, file="b.000002", position=4), last)
    assert is_caught_up(_upstream(0, has_gtids=False, file="b.000002", position=4), last)
    assert not is_caught_up(_upstream(0, has_gtids=False, file="b.000002", position=9), last)


def test_the_publishers_lag_is_the_age_of_what_is_not_in_kafka() -> None:
    here, end = (RelayPosition(f"{UUID}.000001", "b.000001", pos) for pos in (500, 700))
    progress = PublishProgress()
    assert progress.lag_s(end, 100.0) is None, "nothing is read yet"
    progress.read = here
    assert progress.lag_s(here, 100.0) == 0.0
    assert progress.lag_s(end, 100.0) is None, "nobody has looked at what is there"
    progress.open_ms = 90_000
    assert progress.lag_s(end, 100.0) == 10.0
    progress.waiting = [0, 80_000]
    assert progress.lag_s(end, 100.0) == 20.0


def test_a_consumers_lag_is_the_age_of_what_waits() -> None:
    counters = Counters(position_epoch=4)
    last = [replace(epoch_record(number), complete_ms=95_000) for number in range(7)]
    assert snapshot(counters, LogEnd(last[4]), 100.0).lag_s == 0.0
    assert snapshot(counters, LogEnd(last[5], 90_000), 100.0).lag_s == 10.0
    assert snapshot(counters, LogEnd(last[5]), 100.0).lag_s is None
    record = replace(epoch_record(5, transactions=1), first_commit_ms=70_000)
    counters.begins(Slice((LoggedEpoch(epoch_record(5), 10), LoggedEpoch(record, 12))))
    assert snapshot(counters, LogEnd(last[6], 90_000), 100.0).lag_s == 30.0


def test_without_a_producer_the_lag_grows() -> None:
    assert lag_seconds(0, 95_000, 100.0) == lag_seconds(0, 70_000, 100.0) == 0.0
    assert lag_seconds(0, 69_000, 100.0) == 31.0
    assert lag_seconds(None, 95_000, 100.0) == 5.0, "something may be pending: no more than that is known"
    assert lag_seconds(90_000, 95_000, 100.0) == lag_seconds(90_000, None, 100.0) == 10.0
    assert lag_seconds(0, 0, 100.0) is lag_seconds(None, None, 100.0) is None
    # The upstream is away too, and the channel has all of the log.
    kafka = {"epoch": 5, "complete_time": "1970-01-01T00:16:00.000+00:00"}
    assert lag(_channel(5, ""), {"error": {}}, kafka, None, now=1004)["seconds"] == 44.0
    assert lag(_channel(4, ""), {"error": {}}, kafka, None, now=1004)["seconds"] is None


ENDED = {
    "consistent": True,
    "memory": None,
    "rewound_from": None,
    "began_whole": True,
    "began_behind": f"{UUID}:1-5",
    "copying": False,
    "counters": None,
    "decided": 0,
    "target": "mysql://root@127.0.0.1/",
}


def test_only_what_is_proved_is_said_of_the_tables() -> None:
    equal = "stopped cleanly; the tables equal the upstream at this position"
    assert _state(ENDED) == [equal]
    unproved = " ".join(_state({**ENDED, "began_whole": False}))
    assert f"the channel did not apply what was written upstream up to {UUID}:1-5;" in unproved
    assert "equal" not in unproved
    counters = {"filtered": 2, "expression_filtered": 1, "ddl_left_out": 1, "skipped": 4}
    assert _state({**ENDED, "counters": counters, "decided": 1}) == [
        f"{equal}, except for 3 row changes left out by its rules, except for 1 DDL statement left out,"
        " except for 4 events left out by [[skip]], except for 1 event skipped or replaced with `tailrace error`"
    ]
    again = " ".join(_state({**ENDED, "rewound_from": {"epoch": 7}}))
    assert "repeated up to epoch 7" in again
    assert "equal" not in again
    assert "equal" not in " ".join(_state({**ENDED, "target": "parquet:/lake", "began_whole": False}))
    for target in (ENDED["target"], "parquet:/lake"):
        assert "rows are missing" in " ".join(_state({**ENDED, "target": target, "copying": True}))


def test_a_channel_that_runs_runs() -> None:
    assert _state({**ENDED, "consistent": False, "memory": {"state": "waiting"}}) == ["running"]
    assert _state({**ENDED, "consistent": False}) == ["was interrupted, or runs on another machine"]
