"""``tailrace reset``: deletes the relay log, and the channel if requested."""

from __future__ import annotations

from typing import Annotated

import typer

from tailrace.commands.options import DEFAULT_CONFIG, Channel, ConfigFile, Yes, confirm, read_config

All = Annotated[
    bool, typer.Option("--all", help="Remove the channel too: its position, audit rows and checkpoint.")
]


def reset(
    config: ConfigFile = DEFAULT_CONFIG, channel: Channel = None, everything: All = False, yes: Yes = False
) -> None:
    """Delete the relay log, as RESET REPLICA does. The next start fetches it again and applies nothing twice.

    The command lists what it will delete and asks for confirmation. Tables and Kafka's topics stay as they are.
    """
    from tailrace.channels.reset import open_reset
    from tailrace.config.channels import server_channel

    settings = read_config("reset", config)
    consumer = server_channel(settings, channel)
    with open_reset(consumer, settings.relay.dir, everything=everything) as about:
        for line in about.describe():
            typer.echo(line, err=True)
        confirm("Delete it?", yes)
        about.forget()
    typer.echo("done", err=True)
