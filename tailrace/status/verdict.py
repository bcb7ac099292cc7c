"""What a report of ``tailrace status`` says of the whole: which parts an error has stopped, and who lags."""

from __future__ import annotations

from datetime import datetime
from typing import Any

Report = dict[str, Any]


def stopped_parts(report: Report) -> list[str]:
    """Return what an error has stopped: ``producer``, and ``channel NAME``. A part that runs is not stopped."""
    found = ["producer"] if report["relay"].get("stopped_by") else []
    channels = report["downstream"]["channels"]
    return found + [f"channel {one['channel']}" for one in channels if is_stopped(one)]


def is_stopped(channel: dict[str, Any]) -> bool:
    """Return whether an error has stopped a channel. Its error stays a while after its consumer runs again."""
    return channel.get("error") is not None and channel["memory"] is None


def channel_state(channel: dict[str, Any]) -> str:
    """Return a channel's state in a word.

    Args:
        channel: as in the report, or in a list of channels; without ``memory`` if that is not known.
    """
    runs = channel.get("memory") is not None
    if channel.get("error") is not None and not runs:
        return "failed"
    if channel.get("paused"):
        return "paused"
    if runs:
        return "running"
    if channel["epoch"] is None:
        return "not started"
    return "stopped" if channel["consistent"] else "unknown"


def exceeds_lag(report: Report, most: float) -> bool:
    """Return whether a channel is more than so many seconds behind, or one is and nobody knows how many."""
    lags = [channel["lag"]["seconds"] for channel in report["downstream"]["channels"]]
    return any(lag is None or lag > most for lag in lags)


def heard_ago(kafka: dict[str, Any], now: float) -> float | None:
    """Return how many seconds ago a producer last wrote an epoch; None if none has, or Kafka was not read.

    A producer writes one every ten seconds, also for a quiet upstream.

    Args:
        kafka: the part of the report.
        now: seconds since 1970.
    """
    heard = kafka.get("published_time")
    return None if heard is None else max(0.0, now - datetime.fromisoformat(heard).timestamp())
