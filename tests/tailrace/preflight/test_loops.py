"""Rows that would come back, or come twice; and that the programs refuse what `check` calls blocking."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from producer.upstream.origins import Origins
from schemas.errors import TailraceError
from spark_consumer.rules.channel import ChannelKey
from tailrace.other_pipelines import OtherChannel
from tailrace.preflight import gate
from tailrace.preflight.finding import Finding, NotChecked
from tailrace.preflight.loops import LoopFacts, loop_findings

NOTHING = LoopFacts(False, "own", "downstream", (), (), ())


def levels(facts: LoopFacts) -> dict[str, str]:
    return {r.code: r.level if isinstance(r, Finding) else "?" for r in loop_findings(facts)}


def feeding(*origins: str, log_id: str | None = "other") -> Sequence[OtherChannel]:
    return [OtherChannel(ChannelKey("p", "main"), log_id, frozenset(origins), None, 1, "today")]


def test_what_would_come_back_blocks() -> None:
    assert set(levels(NOTHING).values()) == {"ok"}
    assert levels(replace(NOTHING, same=True))["two_servers"] == "block"
    # Another pipeline, whose upstream is our downstream, or is fed by it from further away.
    assert levels(replace(NOTHING, feeding=feeding("downstream")))["ring"] == "block"
    assert levels(replace(NOTHING, feeding=feeding("elsewhere", "own")))["ring"] == "block"
    assert levels(replace(NOTHING, feeding=feeding(log_id="own")))["ring"] == "block"
    # A chain of pipelines is none.
    assert levels(replace(NOTHING, feeding=feeding("elsewhere")))["ring"] == "ok"
    assert levels(replace(NOTHING, log_id="", feeding=feeding(log_id=None)))["ring"] == "ok"
    assert levels(replace(NOTHING, feeding=None))["ring"] == "?"


def test_the_servers_own_replication_blocks_unless_it_leaves_things_out() -> None:
    for code, field in (
        ("upstream_replicates", "upstream_follows"),
        ("downstream_replicates", "downstream_follows"),
    ):
        assert levels(replace(NOTHING, **{field: (False,)}))[code] == "block"  # type: ignore[arg-type]
        assert levels(replace(NOTHING, **{field: (True,)}))[code] == "warn"  # type: ignore[arg-type]
        assert levels(replace(NOTHING, **{field: None}))[code] == "?"


def test_origins_are_asked_for_when_another_pipeline_is_met(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    answers = [("server",), (), ("server", "log")]

    def look(log_id: str) -> tuple[str, ...]:
        asked.append(log_id)
        return answers.pop(0)

    origins = Origins(look)
    origins.begin("own")
    origins.refresh_if_due()
    assert origins.ids == ("server",)
    origins.note_other_pipeline()
    assert origins.ids == ("server",)  # it did not answer
    origins.refresh_if_due()
    assert asked == ["own"] * 2
    monkeypatch.setattr(time, "monotonic", lambda: 1e9)
    origins.refresh_if_due()
    assert list(origins.ids) == ["server", "log"]


def test_programs_refuse_what_blocks_and_wait_for_what_passes() -> None:
    fine: list[Finding | NotChecked] = [
        Finding("ok", "upstream", "log_bin", "on"),
        Finding("warn", "upstream", "retention", "short"),
        Finding("block", "downstream", "reachable", "away", passes=True),
        Finding("block", "relay", "space", "little", passes=True),
        NotChecked("kafka", "limits", "nobody knows"),
    ]
    gate._refuse(fine)
    for error, another_start in (("TR003", False), ("TR509", False), ("TR680", True)):
        block = Finding("block", "part", "code", "so it is", "do this", error, another_start=another_start)
        with pytest.raises(TailraceError, match=f"{error}: part: so it is Hint: do this") as caught:
            gate._refuse([*fine, block])
        assert (caught.value.retryable, caught.value.another_start) == (False, another_start)
