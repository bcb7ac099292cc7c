"""What is said of copies: the numbers, the rate, and which copies a channel lacks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from producer.copy.progress import CopyProgress, incomplete_at
from producer.copy.state import COMPLETED_KEY, PLAN_KEY, CompleteCopies, Plan, Step, TableCopy, topic_key
from tailrace.service.copy_progress import NO_COPY, CopyMeter, copy_part, describe_copy, listed
from tailrace.status.copies import LoggedCopies
from tailrace.status.new_channels import NewChannels
from tests.support.epochs.records import epoch_record

DONE = TableCopy("one", Step.DONE, rows=70, estimate=100, ended=5)
RUNNING = TableCopy("one", Step.RUNNING, incomplete=True, rows=20, estimate=50)
WAITING = TableCopy("one")
TABLES = {("shop", "a"): DONE, ("shop", "b"): RUNNING}


def test_numbers_of_a_running_copy() -> None:
    part = copy_part(CopyProgress.of(None, TABLES, paused="the upstream is busy"))
    assert part == {
        "running": True,
        "for_new_channels": False,
        "tables_total": 2,
        "tables_done": 1,
        "rows_done": 90,
        "rows_estimated": 120,
        "rows_per_s": None,
        "seconds_left": None,
        "paused": "the upstream is busy",
        "tables": [{"table": "shop.b", "rows": 20, "rows_estimated": 50}],
        "not_begun": [],
        "not_copied": [],
    }
    assert describe_copy(part) == (
        "paused: the upstream is busy, 1 of 2 tables, 90 of about 120 rows, reading shop.b"
    )


def test_what_is_not_known_yet_is_null() -> None:
    part = copy_part(CopyProgress.of(Plan("one"), {}))
    assert (part["running"], part["tables_total"], part["rows_estimated"]) == (True, None, None)
    assert describe_copy(part) == "the list of tables is being read, 0 rows"
    part = copy_part(CopyProgress.of(Plan("one", for_new=True), {}))
    assert describe_copy(part) == "for new channels only, the list of tables is being read, 0 rows"
    part = copy_part(CopyProgress.of(None, TABLES | {("shop", "c"): WAITING}))
    assert (part["tables_total"], part["rows_estimated"], part["not_begun"]) == (3, None, ["shop.c"])


def test_a_log_without_copies_and_one_with_complete_ones() -> None:
    assert copy_part(CopyProgress.of(None, {})) == NO_COPY
    part = copy_part(CopyProgress.of(None, {("shop", "a"): DONE, ("shop", "b"): replace(DONE, copy="two")}))
    assert not part["running"]
    assert (part["tables_total"], part["tables_done"], part["rows_done"]) == (2, 2, 140)
    # A new copy counts by itself; views and programs come after the last table.
    again = copy_part(CopyProgress.of(None, TABLES | {("shop", "c"): replace(DONE, copy="older")}))
    assert (again["tables_total"], again["tables_done"]) == (2, 1)
    assert copy_part(CopyProgress.of(Plan("one", objects=True), {("shop", "a"): DONE}))["running"]


def test_tables_that_were_left_out() -> None:
    refused = TableCopy("one", Step.DONE, refused="it is a sequence")
    part = copy_part(CopyProgress.of(None, TABLES | {("shop", "c"): refused}))
    assert (part["tables_total"], part["tables_done"]) == (2, 1)
    assert part["not_copied"] == [{"table": "shop.c", "reason": "it is a sequence"}]
    assert copy_part(CopyProgress.of(None, {("shop", "c"): refused})) == NO_COPY | {
        "not_copied": part["not_copied"]
    }
    assert incomplete_at(None, {("shop", "c"): refused}, 0) == []


def test_rate_and_time_left() -> None:
    meter = CopyMeter()
    assert meter.part(None, 0.0) is None
    for second in range(3):
        table = replace(RUNNING, rows=10 * second)
        part = meter.part(CopyProgress.of(None, {("shop", "b"): table}), float(second))
    assert part is not None
    assert (part["rows_per_s"], part["seconds_left"]) == (10, 3)
    # A table that begins again has fewer rows than before.
    part = meter.part(CopyProgress.of(None, {("shop", "b"): WAITING}), 3.0)
    assert part is not None
    assert (part["rows_per_s"], part["seconds_left"]) == (0, None)
    part = meter.part(CopyProgress.of(None, {("shop", "b"): DONE}), 4.0)
    assert part is not None
    assert (part["rows_per_s"], part["seconds_left"]) == (None, None)


def test_a_channel_has_a_copy_from_its_end_on() -> None:
    assert incomplete_at(None, TABLES, 4) == ["shop.a", "shop.b"]
    assert incomplete_at(None, TABLES, 5) == ["shop.b"]
    assert incomplete_at(Plan("one"), {}, 0) == ["*.*"]
    assert incomplete_at(Plan("two", ("shop.*",), again=True), TABLES, 9) == ["shop.*", "shop.b"]
    assert incomplete_at(Plan("one", objects=True), {("shop", "a"): DONE}, 9) == []


def test_records_of_the_log_tell_the_same() -> None:
    logged = LoggedCopies({topic_key(name): table.encode() for name, table in TABLES.items()})
    assert logged.part() == copy_part(CopyProgress.of(None, TABLES))
    assert logged.incomplete_at(5) == ["shop.b"]
    assert LoggedCopies({PLAN_KEY: Plan("one").encode()}).part()["running"]


def test_from_where_a_new_channel_could_begin() -> None:
    logged = LoggedCopies(
        {COMPLETED_KEY: CompleteCopies((5, 9)).with_one_of(Plan("c", began=20, asked=7000)).encode()}
    )
    assert [logged.complete_after(epoch) for epoch in (0, 5, 6, 20, 21)] == [5, 5, 9, 20, None]
    assert (logged.next_for_new(3.0), logged.next_for_new(0.0)) == (10_000, None)
    running = TableCopy("c", Step.RUNNING, incomplete=True, for_new=True)
    assert LoggedCopies({topic_key(("shop", "a")): running.encode()}).next_for_new(3.0) is None
    first = epoch_record(0)
    begins = [
        NewChannels.of(replace(first, log_begins=why), copied, has_first_rows=True)
        for why in ("origin", "copy", "gtid")
        for copied in (5, None)
    ]
    assert [(one.begin, one.epoch, one.whole) for one in begins] == [
        *[("log", 0, True)] * 4,
        ("copy", 5, True),
        ("log", 0, False),
    ]
    lost = NewChannels.of(epoch_record(7), None, has_first_rows=False)
    assert lost.as_dict() == {"begin": None, "epoch": 7, "whole": False}
    # Rows may be deleted before epochs are.
    begins = [NewChannels.of(replace(first, log_begins="origin"), c, has_first_rows=False) for c in (5, None)]
    assert [(one.begin, one.whole) for one in begins] == [("copy", True), (None, False)]
    assert "no new channel can begin" in lost.text


def test_the_document_has_each_field() -> None:
    text = Path("docs/STATUS.md").read_text().split("## copy\n")[1].split("\n## ")[0]
    assert all(f"`{name}`" in text or f"`{name}[]`" in text for name in NO_COPY)


def test_only_a_few_of_many_names_are_shown() -> None:
    assert listed(["a", "b"]) == "a, b"
    assert listed(list("abcdefgh")) == "a, b, c, d, e and 3 more"
