"""``tailrace reset``: forget the relay log, or the channel as well."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tailrace.commands.options import DEFAULT_CONFIG, Channel, ConfigFile

All = Annotated[
    bool, typer.Option("--all", help="Forget the channel too: its position, audit rows and checkpoint.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def reset(
    config: ConfigFile = DEFAULT_CONFIG, channel: Channel = None, everything: All = False, yes: Yes = False
) -> None:
    """Forget the relay log, as RESET REPLICA does. The next start fetches it again and applies nothing twice.

    The command says what it will forget and asks. Tables and Kafka's topics stay as they are.
    """
    from tailrace.channels.reset import opened
    from tailrace.config.channels import server_channel
    from tailrace.config.file import load
    from tailrace.service import logs

    logs.configure("reset")
    settings = load(config)
    consumer = server_channel(settings, channel)
    with opened(consumer, settings.relay.dir, everything=everything) as about:
        for line in about.says():
            typer.echo(line, err=True)
        if not yes:
            _ask()
        about.forget()
    typer.echo("done", err=True)


def _ask() -> None:
    from schemas.errors import ConfigError

    if not sys.stdin.isatty():
        raise ConfigError("TR111", "nobody is there to be asked, and nothing was forgotten", hint="add --yes")
    typer.confirm("Forget it?", abort=True, err=True)
