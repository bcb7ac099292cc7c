"""``tailrace error``: shows the event at which a channel stopped, and records a decision about it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.commands.options import DEFAULT_CONFIG, AsJson, Channel, ConfigFile, print_json, read_config

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tailrace.channels.error_handling import StoppedChannel

app = typer.Typer(
    help="Show the event at which a channel stopped, skip it, or replace it with other statements.",
    no_args_is_help=True,
)
OfEvent = Annotated[
    str | None,
    typer.Option(
        "--event", metavar="EPOCH:ROW|EPOCH:ddl", help="Fail if the channel stopped at another event."
    ),
]
Sql = Annotated[
    list[str],
    typer.Option(
        "--sql",
        metavar="STATEMENT",
        help="A statement to run instead, - to read it from stdin; may be given several times.",
    ),
]


@app.command("show")
def show(config: ConfigFile = DEFAULT_CONFIG, channel: Channel = None, as_json: AsJson = False) -> None:
    """Show the error at which the channel stopped, and all decisions about events."""
    with _stopped(config, channel) as stopped:
        found = stopped.as_dict()
    print_json(found) if as_json else _print(found)


@app.command("skip")
def skip(config: ConfigFile = DEFAULT_CONFIG, channel: Channel = None, event: OfEvent = None) -> None:
    """Skip the one row change or DDL at which the channel stopped. The next start continues after it."""
    _decide(config, channel, event, ())


@app.command("replace")
def replace(
    sql: Sql, config: ConfigFile = DEFAULT_CONFIG, channel: Channel = None, event: OfEvent = None
) -> None:
    """Replace the row change or DDL with other statements, which run in the same batch at the next start."""
    _decide(config, channel, event, tuple(sys.stdin.read() if text == "-" else text for text in sql))


def _decide(config: Path, channel: str | None, event: str | None, statements: tuple[str, ...]) -> None:
    with _stopped(config, channel) as stopped:
        stopped.decide(event, statements)
        what = "replaces" if statements else "skips"
        next_start = f"the next `tailrace consume` of channel {stopped.channel}"
        typer.echo(f"{next_start} {what} event {stopped.event_name}", err=True)


def _stopped(config: Path, channel: str | None) -> AbstractContextManager[StoppedChannel]:
    from tailrace.channels.error_handling import open_stopped_channel
    from tailrace.config.channels import server_channel

    return open_stopped_channel(server_channel(read_config("error", config), channel))


def _print(found: dict[str, Any]) -> None:
    error = found["error"]
    if error is None:
        typer.echo(f"channel {found['channel']}: no error")
    else:
        typer.echo(f"channel {found['channel']}: {error['code']} at {error['at']} UTC")
        event = error["event"] or {}
        named = {"key": event.get("key"), "statement": error["statement"], "hint": error["hint"]}
        for name, text in {"what": error["what"], "where": error["place"], **named}.items():
            if text:
                typer.echo(f"  {name:9}  {text}")
    for one in found["directives"]:
        used = f"used at {one['used_at']} UTC" if one["used_at"] else "not used yet"
        typer.echo(f"{one['action']} {one['event']}, by {one['made_by']} at {one['made_at']} UTC: {used}")
        typer.echo(f"  refused    {one['refused']}")
        for statement in one["statements"]:
            typer.echo(f"  instead    {statement}")
