"""Findings about the channels of a downstream: whether they follow this pipeline's log, and which others write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.tables import QualifiedName
from spark_consumer.rules.channel import ChannelKey
from spark_consumer.rules.scope import Scope
from tailrace.other_pipelines import OtherChannel
from tailrace.preflight.finding import Finding, NotChecked, Result


@dataclass(frozen=True)
class ChannelFacts:
    """The channels of a downstream.

    Attributes:
        ours: the configured channels of this downstream, and what they replicate.
        log_id: the id of the log in the topics; empty without a log, None if it could not be read.
        there: the channels that have a position on the downstream; None if the account may not read them.
        tables: the downstream's tables.
    """

    ours: Mapping[ChannelKey, Scope]
    log_id: str | None
    there: list[OtherChannel] | None
    tables: frozenset[QualifiedName] = field(default=frozenset(), repr=False)


def channel_findings(facts: ChannelFacts) -> list[Result]:
    """Return whether each channel follows this log, and whether other channels write the same tables."""
    if facts.there is None:
        return [NotChecked("downstream", "channel", "the account may not read tailrace.relay_log_info")]
    begun = {one.key: one for one in facts.there}
    results = [_own(key, begun.get(key), facts.log_id) for key in facts.ours]
    others = [one for one in facts.there if one.key not in facts.ours]
    return [*results, *(_other(one, facts) for one in others)]


def _own(key: ChannelKey, found: OtherChannel | None, log_id: str | None) -> Result:
    if found is None:
        return Finding("ok", "downstream", "channel", f"channel {key} has not started yet")
    what = f"{found} belongs to this pipeline"
    if not found.log_id or found.log_id == log_id:
        return Finding("ok", "downstream", "channel", what)
    if log_id is None:
        return NotChecked(
            "downstream", "channel", f"the log that channel {key} follows could not be compared with Kafka"
        )
    topics = f"contain the log {log_id}" if log_id else "contain no epoch"
    return Finding(
        "block",
        "downstream",
        "channel",
        f"{found} belongs to another pipeline, or its topics were deleted: it follows the log {found.log_id}, and the"
        f" topics of {key.prefix} {topics} (TR558)",
        "give this pipeline a [kafka] prefix or a channel of its own; if the topics were deleted and created again,"
        " run `tailrace channel remove` and load the tables again",
        error="TR558",
    )


def _other(one: OtherChannel, facts: ChannelFacts) -> Result:
    """Return a finding about a channel that is not configured here."""
    shared = [one.writes_what_is_written_by(scope, facts.tables) for scope in facts.ours.values()]
    common = next(filter(None, shared), None)
    what = f"{one} of another configuration also writes to this downstream"
    if common is None:
        return Finding("ok", "downstream", "neighbours", f"{what}, to other tables")
    return Finding(
        "warn",
        "downstream",
        "neighbours",
        f"{what}, and perhaps to the same tables{_such_as(common, facts)}: their changes would conflict",
        "give them different [tables] or [[routes]]; remove an unused channel with `tailrace channel remove`",
    )


def _such_as(name: QualifiedName, facts: ChannelFacts) -> str:
    return f", such as {'.'.join(name)}" if name in facts.tables else ""
