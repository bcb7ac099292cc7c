"""``tailrace relay cat``: shows the events of the relay log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from tailrace.commands.options import DEFAULT_CONFIG, AsJsonLines, ConfigFile, read_config

SubDir = Annotated[str | None, typer.Option("--sub-dir", metavar="NAME", help="Only this sub-directory.")]
File = Annotated[
    str | None,
    typer.Option(
        "--file", metavar="NAME", help="Only this file; without --sub-dir, the newest of this name."
    ),
]
StartPosition = Annotated[
    int, typer.Option("--start-position", "-j", min=0, help="Start at this position of the first file.")
]
StopPosition = Annotated[
    int | None,
    typer.Option("--stop-position", min=0, help="Stop before the event at this position of the last file."),
]
StartDatetime = Annotated[
    str | None,
    typer.Option("--start-datetime", metavar="TIME", help="Start at the first event of this time or later."),
]
StopDatetime = Annotated[
    str | None,
    typer.Option(
        "--stop-datetime", metavar="TIME", help="Stop before the first event of this time or later."
    ),
]
IncludeGtids = Annotated[
    str | None, typer.Option("--include-gtids", metavar="SET", help="Only these transactions.")
]
ExcludeGtids = Annotated[
    str | None, typer.Option("--exclude-gtids", metavar="SET", help="All but these transactions.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also show the rows.")]


def cat(
    config: ConfigFile = DEFAULT_CONFIG,
    sub_dir: SubDir = None,
    file: File = None,
    start_position: StartPosition = 4,
    stop_position: StopPosition = None,
    start_datetime: StartDatetime = None,
    stop_datetime: StopDatetime = None,
    include_gtids: IncludeGtids = None,
    exclude_gtids: ExcludeGtids = None,
    verbose: Verbose = False,
    as_json: AsJsonLines = False,
) -> None:
    """Show events of the relay log, from all files in order or from one file.

    The options are those of mysqlbinlog. TIME is in UTC unless it has an offset, such as 2026-11-21T22:00:00+01:00.
    On MariaDB a GTID set means everything up to its numbers. Compressed transactions are shown unpacked.
    """
    from tailrace.reader.relay_cat import EventSelection, events

    times = _seconds("--start-datetime", start_datetime), _seconds("--stop-datetime", stop_datetime)
    wanted = EventSelection(
        sub_dir, file, start_position, stop_position, *times, include_gtids or None, exclude_gtids or None
    )
    place = ""
    try:
        for event in events(read_config("relay cat", config).relay.dir, wanted):
            shown = event if verbose else _without_rows(event)
            if as_json:
                typer.echo(json.dumps(shown, ensure_ascii=False))
                continue
            if place != (place := f"{event['sub_dir']}/{event['file']}"):
                typer.echo(f"# {place}")
            for line in _lines(shown, str(shown["position"]).rjust(10)):
                typer.echo(line)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--include-gtids / --exclude-gtids") from error


def _seconds(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(
            "use a form like 2026-11-21 22:00:00, or RFC 3339", param_hint=option
        ) from error


def _without_rows(event: dict[str, Any]) -> dict[str, Any]:
    fields = {name: value for name, value in event.items() if name != "rows"}
    if "events" in fields:
        fields["events"] = [_without_rows(inside) for inside in fields["events"]]
    return fields


_HEAD = ("sub_dir", "file", "position", "time", "server_id", "type", "name", "size", "events", "rows")


def _lines(event: dict[str, Any], prefix: str, indent: str = " " * 12) -> Iterator[str]:
    """Yield an event as text: its own line, then its rows and the events inside it."""
    content = "  ".join(f"{name}={_value(value)}" for name, value in event.items() if name not in _HEAD)
    name = event["name"] if event["name"] != "UNKNOWN" else f"UNKNOWN type {event['type']}"
    time = event["time"].replace("T", " ").rstrip("Z")
    yield f"{prefix}  {time}  server {event['server_id']}  {name}  {event['size']} bytes  {content}".rstrip()
    for row in event.get("rows") or ():
        sides = [
            f"{side} {json.dumps(row[side], ensure_ascii=False)}" for side in ("before", "after") if row[side]
        ]
        yield f"{indent}### {'  '.join(sides)}"
    for inside in event.get("events", ()):
        yield from _lines(inside, f"{indent}|", f"{indent}|   ")


def _value(value: Any) -> str:
    """Return a value as text in one line, in quotes if it is empty or has white space."""
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return json.dumps(text, ensure_ascii=False) if any(c.isspace() for c in text) or not text else text
