"""Findings about rows that would come back or come twice: one server on both ends, rings, native replication."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.other_pipelines import OtherChannel
from tailrace.preflight.finding import Finding, NotChecked, Result, verdict

_NEVER = "rows that are applied would be read again, without end"


@dataclass(frozen=True)
class LoopFacts:
    """What upstream and downstream are to each other.

    Attributes:
        same: whether both are one server, or nodes of one cluster.
        log_id: the pipeline's own log; empty before it has one.
        downstream: the downstream's id.
        feeding: the channels that write tables into the upstream which this pipeline passes on; None where the
            account may not look.
        upstream_follows: for each way in which the upstream replicates from the downstream by itself whether that
            leaves something out; None likewise.
        downstream_follows: the same of the downstream; None likewise.
    """

    same: bool
    log_id: str
    downstream: str
    feeding: Sequence[OtherChannel] | None
    upstream_follows: Sequence[bool] | None
    downstream_follows: Sequence[bool] | None


def loop_findings(facts: LoopFacts) -> list[Result]:
    """Whether what is applied may come back, or comes twice."""
    one = "upstream and downstream are one server, or nodes of one cluster"
    return [
        verdict(
            not facts.same,
            "downstream",
            "two_servers",
            "upstream and downstream are two servers",
            f"{one}: {_NEVER}",
            "set [target] url to another server than [source] url",
        ),
        _ring(facts),
        _native(
            "upstream_replicates",
            facts.upstream_follows,
            "the upstream does not replicate from the downstream",
            f"the upstream replicates from the downstream by itself: {_NEVER}",
            "stop that replication (STOP REPLICA) on the upstream, or take another server as [source]",
        ),
        _native(
            "downstream_replicates",
            facts.downstream_follows,
            "the downstream does not replicate from the upstream by itself",
            "the downstream replicates from the upstream by itself, too: each row would arrive twice",
            "stop that replication (STOP REPLICA) on the downstream, or take another server as [target]",
        ),
    ]


def _ring(facts: LoopFacts) -> Result:
    if facts.feeding is None:
        return NotChecked("downstream", "ring", "the account may not read tailrace.relay_log_info upstream")
    own = {facts.downstream, facts.log_id} - {""}
    found = next((one for one in facts.feeding if one.sources & own), None)
    if found is None:
        fine = "no pipeline brings the downstream's rows into the upstream"
        return Finding("ok", "downstream", "ring", fine)
    return Finding(
        "block",
        "downstream",
        "ring",
        f"{found} writes rows that come from the downstream into the upstream: {_NEVER}",
        "let [tables] of the two leave out what the other one carries; if that pipeline is over, or schema tailrace"
        " came with a copy of another server, forget it: `tailrace channel remove`, or delete its row there",
    )


def _native(code: str, found: Sequence[bool] | None, fine: str, wrong: str, remedy: str) -> Result:
    if found is None:
        return NotChecked("downstream", code, "the account may not see the server's own replication")
    if not found:
        return Finding("ok", "downstream", code, fine)
    return Finding("warn" if all(found) else "block", "downstream", code, wrong, remedy)
