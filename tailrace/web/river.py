"""Turns a report into what the page shows: the stations from the upstream to each channel, with their state."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from schemas.counted import counted
from tailrace.status.verdict import heard_ago, is_stopped

Part = dict[str, Any]
State = Literal["good", "waiting", "trouble", "unknown"]
_GTIDS = 120  # characters of a GTID set that are shown


@dataclass(frozen=True)
class Station:
    """A part of the pipeline as the page shows it.

    Attributes:
        state: decides about color and sign; ``word`` says it in a word.
        lines: name and value of what is known.
    """

    kind: str
    name: str
    address: str
    state: State
    word: str
    lines: tuple[tuple[str, str], ...] = ()
    error: Part | None = None


def stations(report: Part, now: float) -> list[Station]:
    """Return upstream, relay log and Kafka.

    Args:
        now: seconds since 1970.
    """
    heard = heard_ago(report["kafka"], now)
    return [_upstream(report["upstream"]), _relay(report["relay"], heard), _kafka(report["kafka"])]


def channels(report: Part) -> list[Station]:
    """Return the channels, and targets that cannot be read."""
    found = [_channel(channel) for channel in report["downstream"].get("channels", ())]
    found += [
        _unreached("downstream", "Downstream", part)
        for part in (report["downstream"], *report["targets"])
        if "error" in part
    ]
    return found


def _unreached(kind: str, name: str, part: Part) -> Station:
    return Station(kind, name, "", "trouble", "not reached", (), part["error"])


def _upstream(part: Part) -> Station:
    if "error" in part:
        return _unreached("upstream", "Upstream", part)
    lines = (("position", _at(part["file"], part["position"])), ("GTIDs", _gtids(part["gtids"])))
    return Station("upstream", "Upstream", part["server"], "good", f"reached, {part['version']}", lines)


def _relay(part: Part, heard: float | None) -> Station:
    memory = part.get("memory")
    lines = _producer_lines(memory) if memory and "receiver" in memory else _stored_lines(part.get("stored"))
    if "files" in part:
        lines.append(("files", f"{counted(part['files'], 'file')}, {size(part['bytes'])}"))
    state, word = _producer_state(memory, heard)
    if since := (part.get("paused") or {}).get("publishing"):
        state, word = "waiting", f"publishing is paused since {_time(since)}"
    if error := part.get("stopped_by"):
        return Station(
            "relay",
            "Relay log",
            part.get("directory", ""),
            "trouble",
            "stopped by an error",
            tuple(lines),
            error,
        )
    if "error" in part:
        state, word = "trouble", "not readable"
    return Station(
        "relay", "Relay log", part.get("directory", ""), state, word, tuple(lines), part.get("error")
    )


def _producer_state(memory: Part | None, heard: float | None) -> tuple[State, str]:
    if memory is None:
        here = "no producer runs on this machine"
        return "unknown", here if heard is None else f"{here}; Kafka heard of one {seconds(heard)} ago"
    if "error" in memory:
        return "trouble", "the producer does not answer"
    if memory.get("paused"):
        return "waiting", f"paused: {memory['paused']}"
    word = memory["state"]
    return ("good" if word == "connected" else "waiting"), word


def _producer_lines(memory: Part) -> list[tuple[str, str]]:
    receiver, publisher = memory["receiver"], memory["publisher"]
    behind = publisher["Seconds_behind_source"]
    return [
        ("read", _at(receiver["Master_log_name"], receiver["Master_log_pos"])),
        ("published", _at(publisher["Master_log_name"], publisher["Master_log_pos"])),
        ("behind", "not known" if behind is None else seconds(behind)),
        ("last heard", _time(receiver["Last_heard"]) or "not yet"),
    ]


def _stored_lines(stored: Part | None) -> list[tuple[str, str]]:
    return [("stored", _at(stored["Master_log_name"], stored["Master_log_pos"]) if stored else "nothing yet")]


def _kafka(part: Part) -> Station:
    if "error" in part:
        return _unreached("kafka", "Kafka", part)
    if part.get("epoch") is None:
        return Station("kafka", "Kafka", part["servers"], "unknown", "no epoch yet")
    lines = (
        ("epoch", f"{part['epoch']:,}"),
        ("position", _at(part["file"], part["position"])),
        ("GTIDs", _gtids(part["gtids"])),
        ("committed", _time(part["commit_time"]) or "not known"),
    )
    return Station("kafka", "Kafka", part["servers"], "good", "reached", lines)


def _channel(channel: Part) -> Station:
    state, word = _channel_state(channel)
    lines: list[tuple[str, str]] = []
    memory = channel.get("memory") or {}
    epoch = memory.get("epoch", channel.get("epoch"))
    if epoch is not None:
        lines.append(("epoch", f"{epoch:,}"))
    if stored := channel.get("stored"):
        lines.append(("position", _at(stored["Master_log_name"], stored["Master_log_pos"])))
        lines.append(("GTIDs", _gtids(stored["Executed_Gtid_Set"])))
    lines += _lag_lines(channel.get("lag") or {})
    if batch := memory.get("batch_in_hand"):
        lines.append(
            (
                "in hand",
                f"epochs {batch['first_epoch']} to {batch['last_epoch']}, {counted(batch['rows'], 'row')}",
            )
        )
    address = str(channel.get("target") or "")
    return Station("channel", channel["channel"], address, state, word, tuple(lines), channel.get("error"))


def _channel_state(channel: Part) -> tuple[State, str]:
    memory = channel.get("memory")
    # In the order of the states of `tailrace status`.
    if is_stopped(channel):
        return "trouble", "stopped by an error"
    if channel.get("paused"):
        return "waiting", f"paused since {_time(channel['paused'])}"
    if memory is not None:
        if "error" in memory:
            return "trouble", "the consumer does not answer"
        word = {"applying": "applying", "waiting": "running, waits for more"}.get(
            memory["state"], memory["state"]
        )
        return "good", word
    if channel.get("stored") is None:
        return "unknown", "not started"
    if channel.get("consistent"):
        return "waiting", "stopped cleanly"
    return "unknown", "was interrupted, or runs on another machine"


def _lag_lines(lag: Part) -> list[tuple[str, str]]:
    late = lag.get("seconds")
    behind = [
        counted(lag[name], name.removesuffix("s"))
        for name in ("epochs", "transactions")
        if lag.get(name) is not None
    ]
    return [
        ("lag", "not known" if late is None else seconds(late)),
        ("behind", ", ".join(behind) or "not known"),
    ]


def _at(file: str | None, position: int | None) -> str:
    return f"{file}:{position}" if file else "nothing yet"


def _time(text: str | None) -> str:
    """Return a time in UTC without its parts of a second."""
    return f"{text[:19].replace('T', ' ')} UTC" if text else ""


def _gtids(text: str | None) -> str:
    return shortened(text or "none", _GTIDS)


def shortened(text: str, most: int) -> str:
    """Return a text with its middle left out if it is longer."""
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 2 :]}"


def seconds(value: float) -> str:
    """Return a duration for people."""
    if value < 120:
        return f"{value:,.1f} s"
    minutes = value / 60
    return f"{minutes:,.0f} min" if minutes < 120 else f"{minutes / 60:,.1f} h"


def size(count: int) -> str:
    """Return a number of bytes for people."""
    number = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:,.0f} {unit}"
        number /= 1024
    return f"{number:,.1f} TiB"


def clock(ms: float | None) -> str:
    """Return a time of day in UTC; "" if there is none."""
    return "" if not ms else datetime.fromtimestamp(ms / 1000, UTC).strftime("%H:%M:%S")
