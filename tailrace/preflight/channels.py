"""Findings about the channels on a downstream: which pipeline they belong to, and which others write there."""

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
    """What the downstream says of channels.

    Attributes:
        ours: the configured channels of this downstream, and what they replicate.
        log_id: the log that the topics hold; empty without any, None if Kafka did not say.
        there: the channels that have begun on the downstream; None where the account may not look.
        tables: the downstream's.
    """

    ours: Mapping[ChannelKey, Scope]
    log_id: str | None
    there: list[OtherChannel] | None
    tables: frozenset[QualifiedName] = field(default=frozenset(), repr=False)


def channel_findings(facts: ChannelFacts) -> list[Result]:
    """Whose each channel is, and whether another one writes the same tables."""
    if facts.there is None:
        return [NotChecked("downstream", "channel", "the account may not read tailrace.relay_log_info")]
    begun = {one.key: one for one in facts.there}
    results = [_own(key, begun.get(key), facts.log_id) for key in facts.ours]
    others = [one for one in facts.there if one.key not in facts.ours]
    return [*results, *(_other(one, facts) for one in others)]


def _own(key: ChannelKey, found: OtherChannel | None, log_id: str | None) -> Result:
    if found is None:
        return Finding("ok", "downstream", "channel", f"channel {key} has not begun")
    what = f"{found} is this pipeline's"
    if not found.log_id or found.log_id == log_id:
        return Finding("ok", "downstream", "channel", what)
    if log_id is None:
        return NotChecked(
            "downstream", "channel", f"Kafka does not say whether channel {key} follows its log"
        )
    there = f"hold the log {log_id}" if log_id else "hold no epoch"
    return Finding(
        "block",
        "downstream",
        "channel",
        f"{found} is another pipeline's, or its topics are gone: it follows the log {found.log_id}, and the topics of"
        f" {key.prefix} {there} (TR558)",
        "give this pipeline a [kafka] prefix or a channel of its own; if the topics were deleted and made anew, load"
        " the tables anew and `tailrace channel remove`",
        error="TR558",
    )


def _other(one: OtherChannel, facts: ChannelFacts) -> Result:
    """A channel that is not configured here."""
    shared = [one.writes_what_is_written_by(scope, facts.tables) for scope in facts.ours.values()]
    common = next(filter(None, shared), None)
    what = f"{one} of another configuration writes here too"
    if common is None:
        return Finding("ok", "downstream", "neighbours", f"{what}, to other tables")
    return Finding(
        "warn",
        "downstream",
        "neighbours",
        f"{what}, and perhaps to the same tables{_such_as(common, facts)}: each would meet rows of the other",
        "give them different [tables] or [[routes]]; `tailrace channel remove` forgets one that is over",
    )


def _such_as(name: QualifiedName, facts: ChannelFacts) -> str:
    return f", such as {'.'.join(name)}" if name in facts.tables else ""
