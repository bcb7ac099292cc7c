"""Findings about rows that would be replicated in a loop or twice: same server, rings, native replication."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.other_pipelines import OtherChannel
from tailrace.preflight.finding import Finding, NotChecked, Result, verdict

_ENDLESS = "applied rows would be replicated again, endlessly"


@dataclass(frozen=True)
class LoopFacts:
    """How upstream and downstream replicate to each other.

    Attributes:
        same: whether both are the same server, or nodes of the same cluster.
        log_id: the id of the pipeline's log; empty if there is none yet.
        downstream: the downstream's id.
        feeding: the channels that write tables to the upstream which this pipeline replicates; None if the account
            may not read them.
        upstream_follows: for each native replication of the upstream from the downstream, whether it is filtered;
            None if the account may not read them.
        downstream_follows: the same for the downstream from the upstream.
    """

    same: bool
    log_id: str
    downstream: str
    feeding: Sequence[OtherChannel] | None
    upstream_follows: Sequence[bool] | None
    downstream_follows: Sequence[bool] | None


def loop_findings(facts: LoopFacts) -> list[Result]:
    """Return whether rows may be replicated in a loop or twice."""
    same = "upstream and downstream are the same server, or nodes of the same cluster"
    return [
        verdict(
            not facts.same,
            "downstream",
            "two_servers",
            "upstream and downstream are two servers",
            f"{same}: {_ENDLESS}",
            "set [target] url to another server than [source] url",
        ),
        _ring(facts),
        _native(
            "upstream_replicates",
            facts.upstream_follows,
            "the upstream is not a replica of the downstream",
            f"the upstream is a replica of the downstream: {_ENDLESS}",
            "stop that replication (STOP REPLICA) on the upstream, or use another server as [source]",
        ),
        _native(
            "downstream_replicates",
            facts.downstream_follows,
            "the downstream is not a replica of the upstream",
            "the downstream is also a replica of the upstream: each row would be written twice",
            "stop that replication (STOP REPLICA) on the downstream, or use another server as [target]",
        ),
    ]


def _ring(facts: LoopFacts) -> Result:
    if facts.feeding is None:
        return NotChecked("downstream", "ring", "the account may not read tailrace.relay_log_info upstream")
    own = {facts.downstream, facts.log_id} - {""}
    found = next((one for one in facts.feeding if one.sources & own), None)
    if found is None:
        fine = "no pipeline writes the downstream's rows to the upstream"
        return Finding("ok", "downstream", "ring", fine)
    return Finding(
        "block",
        "downstream",
        "ring",
        f"{found} writes rows of the downstream to the upstream: {_ENDLESS}",
        "exclude the other pipeline's tables from [tables] of each; if that pipeline is no longer used, or schema"
        " tailrace was copied from another server, run `tailrace channel remove` or delete the channel's row there",
    )


def _native(code: str, found: Sequence[bool] | None, fine: str, wrong: str, remedy: str) -> Result:
    if found is None:
        return NotChecked("downstream", code, "the account may not read the server's own replication")
    if not found:
        return Finding("ok", "downstream", code, fine)
    return Finding("warn" if all(found) else "block", "downstream", code, wrong, remedy)
