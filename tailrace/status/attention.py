"""Finds in a report of ``tailrace status`` what somebody must look at, the most urgent first."""

from __future__ import annotations

import re
import shlex
from dataclasses import asdict, dataclass
from typing import Any, Literal

from schemas.counted import counted
from tailrace.status.verdict import heard_ago, is_stopped

Part = dict[str, Any]
_SILENCE = 60.0  # seconds after which somebody should look whether a process still runs
_COMMAND = re.compile(r"`(tailrace [^`]+)`")


@dataclass(frozen=True)
class Notice:
    """Something that somebody must look at.

    Attributes:
        level: ``error``: something has stopped, cannot be read, or is wrong; ``warning``: it may become that.
        part: upstream, relay, kafka, copy, downstream, or channel and its name.
        what, where, hint: as in errors; "" if there is none.
        commands: those that heal it, as far as they are known.
    """

    level: Literal["error", "warning"]
    part: str
    code: str
    what: str
    where: str = ""
    hint: str = ""
    commands: tuple[str, ...] = ()

    def as_dict(self) -> Part:
        """Return it as plain data."""
        return asdict(self)


def attention(report: Part, now: float) -> list[Notice]:
    """Return what must be looked at: stopped channels, then what cannot be read, then the rest.

    Args:
        now: seconds since 1970.
    """
    found: list[Notice] = []
    for channel in report["downstream"].get("channels", ()):
        found += _channel(channel)
    for name, part in (
        *((name, report[name]) for name in ("upstream", "relay", "kafka", "downstream")),
        *(("downstream", part) for part in report["targets"]),
    ):
        if error := part.get("error"):
            found.append(_of_error("error", name, error))
    found += [
        *_producer(report["relay"], heard_ago(report["kafka"], now)),
        *_copy(report["copy"], report["kafka"]),
    ]
    return sorted(found, key=lambda notice: notice.level != "error")


def _of_error(level: Literal["error", "warning"], part: str, error: Part, *commands: str) -> Notice:
    hint = error.get("hint") or ""
    # The hint's command may be the start of one that names channel and event.
    hinted = [one for one in _COMMAND.findall(hint) if not any(full.startswith(one) for full in commands)]
    named = tuple(dict.fromkeys([*commands, *hinted]))
    return Notice(level, part, error["code"], error["what"], error.get("where") or "", hint, named)


def _channel(channel: Part) -> list[Notice]:
    name = f"channel {channel['channel']}"
    found: list[Notice] = []
    if error := channel.get("error"):
        option = f"--channel {channel['channel']}"
        decide: tuple[str, ...] = ()
        if event := error.get("event"):
            decide = (f"tailrace error show {option}", f"tailrace error skip {option} --event {event}")
        found.append(_of_error("error" if is_stopped(channel) else "warning", name, error, *decide))
    if error := _memory_error(channel.get("memory")):
        found.append(_of_error("warning", name, error))
    if channel.get("paused"):
        found.append(_paused(name, name, channel["paused"]))
    elif _is_left(channel):
        what = f"no consumer runs on this machine, and it is {channel['lag']['seconds']:,.0f} s behind"
        command = f"tailrace consume --channel {channel['channel']}"
        found.append(Notice("warning", name, "", what, commands=(command,)))
    if channel.get("ddl_in_doubt"):
        found.append(Notice("warning", name, "", "a DDL has started", channel["ddl_in_doubt"]))
    for table in (channel.get("validation") or {}).get("not_equal", ()):
        if table["verdict"] == "different":
            what = (
                counted(table["different"], "row") + " different" if table["different"] else table["problem"]
            )
            repair = f"tailrace validate --channel {channel['channel']} --table {shlex.quote(table['table'])} --repair"
            found.append(
                Notice(
                    "error", name, "", f"{table['table']}: {what}", hint="copy it again", commands=(repair,)
                )
            )
    return found


def _is_left(channel: Part) -> bool:
    """Return whether a channel has more and more to apply, and nothing runs here that would apply it."""
    is_down = channel.get("memory") is None and not channel.get("error")
    return is_down and ((channel.get("lag") or {}).get("seconds") or 0) > _SILENCE


def _memory_error(memory: Part | None) -> Part | None:
    error = (memory or {}).get("error")
    return error if isinstance(error, dict) else None


def _paused(part: str, what: str, since: str) -> Notice:
    return Notice(
        "warning",
        part,
        "",
        f"paused since {since[:19].replace('T', ' ')} UTC",
        commands=(f"tailrace resume {what}",),
    )


def _producer(relay: Part, heard: float | None) -> list[Notice]:
    memory, paused = relay.get("memory"), relay.get("paused") or {}
    found = [_paused("relay", half, since) for half, since in paused.items() if since]
    if error := relay.get("stopped_by"):
        found.append(_of_error("error", "producer", error))
    if error := _memory_error(memory):
        return [*found, _of_error("warning", "relay", error)]
    if memory is None:
        if heard is not None and heard > _SILENCE and not found:
            what = f"no producer runs on this machine, and Kafka has not heard of one for {heard:,.0f} s"
            found.append(Notice("warning", "producer", "", what, commands=("tailrace produce",)))
        return found
    if memory.get("paused") and not paused.get("mirror"):
        found.append(Notice("warning", "relay", "", f"the mirror has paused: {memory['paused']}"))
    if memory.get("state") == "reconnecting" and (error := memory["receiver"]["Last_error"]):
        found.append(_of_error("warning", "relay", error))
    return found


def _copy(part: Part, kafka: Part) -> list[Notice]:
    error = part.get("error")
    # The copies are read from Kafka, whose own notice is enough.
    found = [_of_error("error", "copy", error)] if error and "error" not in kafka else []
    for one in part.get("not_copied") or ():
        what = f"{one['table']} was not copied: {one['reason']}"
        found.append(
            Notice("warning", "copy", "", what, commands=(f"tailrace copy {shlex.quote(one['table'])}",))
        )
    if part.get("running") and part.get("paused"):
        found.append(Notice("warning", "copy", "", f"the copy has paused: {part['paused']}"))
    return found
