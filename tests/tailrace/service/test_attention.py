"""What somebody must look at, from reports as data."""

from __future__ import annotations

from tailrace.status.attention import attention
from tests.support.pages import reports


def test_a_pipeline_that_is_well_needs_nobody() -> None:
    assert attention(reports.at_rest(), reports.NOW) == []


def test_what_has_stopped_comes_first() -> None:
    found = attention(reports.in_trouble(), reports.NOW)
    assert [(notice.level, notice.part, notice.code) for notice in found] == [
        ("error", "channel main", "TR623"),
        ("error", "channel main", ""),
        ("error", "upstream", "TR200"),
        ("warning", "relay", "TR201"),
        ("warning", "copy", ""),
    ]
    assert found[0].where.endswith("event 4671:12")
    assert found[0].commands == (
        "tailrace error show --channel main",
        "tailrace error skip --channel main --event 4671:12",
    )
    assert found[1].commands == ("tailrace validate --channel main --table 'shop.a b;c' --repair",)


def test_an_error_of_a_channel_that_runs_again_may_pass() -> None:
    report = reports.in_trouble()
    report["downstream"]["channels"][0]["memory"] = {"state": "applying"}
    assert [notice.level for notice in attention(report, reports.NOW) if notice.code == "TR623"] == [
        "warning"
    ]


def test_what_is_paused_is_named_with_the_command_that_ends_it() -> None:
    report = reports.under_load()
    report["relay"]["paused"]["mirror"] = "2026-11-18T11:00:00.000+00:00"
    report["relay"]["memory"]["paused"] = "tailrace pause"
    assert [(notice.part, notice.commands) for notice in attention(report, reports.NOW)] == [
        ("channel lake", ("tailrace resume channel lake",)),
        ("relay", ("tailrace resume mirror",)),
    ]


def test_a_producer_that_stopped_and_one_that_cannot_write() -> None:
    report = reports.at_rest()
    report["relay"]["memory"]["paused"] = "no space left"
    assert [notice.what for notice in attention(report, reports.NOW)] == [
        "the mirror has paused: no space left"
    ]
    stopped = {"code": "TR204", "what": "purged", "where": "", "hint": "run `tailrace reset`", "at": ""}
    report["relay"] |= {"memory": None, "stopped_by": stopped}
    [notice] = attention(report, reports.NOW)
    assert (notice.level, notice.part, notice.commands) == ("error", "producer", ("tailrace reset",))


def test_kafka_is_named_once() -> None:
    assert [notice.part for notice in attention(reports.not_reached(), reports.NOW)] == [
        "kafka",
        "downstream",
    ]


def test_nobody_at_work_is_noticed_after_a_minute() -> None:
    report = reports.at_rest()
    report["relay"]["memory"] = None
    [channel] = report["downstream"]["channels"]
    channel["memory"], channel["lag"]["seconds"] = None, 59.0
    assert attention(report, reports.NOW) == []
    channel["lag"]["seconds"] = 3600.0
    assert [(notice.part, notice.commands) for notice in attention(report, reports.NOW + 120)] == [
        ("channel main", ("tailrace consume --channel main",)),
        ("producer", ("tailrace produce",)),
    ]
    # Whoever has paused them knows.
    channel["paused"] = report["relay"]["paused"]["mirror"] = "2026-11-18T11:00:00.000+00:00"
    assert {notice.commands[0].split()[1] for notice in attention(report, reports.NOW + 120)} == {"resume"}
