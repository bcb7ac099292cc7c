"""``tailrace pause`` and ``tailrace resume``: have the mirror, publishing or a channel stand still for a while."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from tailrace.commands.options import DEFAULT_CONFIG, ConfigFile, read_config

Part = Annotated[
    Literal["mirror", "publishing", "channel"], typer.Argument(help="What is to stand still, or go on.")
]
Name = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="The channel; default: consumer.channel, or main."),
]


def pause(part: Part, name: Name = None, config: ConfigFile = DEFAULT_CONFIG) -> None:
    """Have the mirror, publishing or a channel stand still, until `tailrace resume`. Nothing is lost.

    It takes effect behind a whole transaction, an epoch or a batch, and stays in effect across restarts. The mirror and
    publishing are paused on the producer's machine. A channel can be paused from any machine that reaches its target.
    """
    _set(config, part, name, paused=True)
    typer.echo(f"{_named(part, name)} is paused; `tailrace status` shows since when", err=True)


def resume(part: Part, name: Name = None, config: ConfigFile = DEFAULT_CONFIG) -> None:
    """Let what `tailrace pause` has paused go on, where it stood."""
    _set(config, part, name, paused=False)
    typer.echo(f"{_named(part, name)} goes on", err=True)


def _set(config: Path, part: Part, name: str | None, *, paused: bool) -> None:
    from tailrace.channels.pauses import set_paused

    if name is not None and part != "channel":
        raise typer.BadParameter(f"{part} has no name")
    set_paused(read_config("pause" if paused else "resume", config), part, paused, name)


def _named(part: str, name: str | None) -> str:
    return part if name is None else f"{part} {name}"
