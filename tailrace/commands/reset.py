"""``tailrace reset``: forget the relay log, or the channel as well."""

from __future__ import annotations

from typing import Annotated

import typer

from tailrace.commands.options import DEFAULT_CONFIG, Channel, ConfigFile, Yes, confirm, read_config

All = Annotated[
    bool, typer.Option("--all", help="Forget the channel too: its position, audit rows and checkpoint.")
]


def reset(
    config: ConfigFile = DEFAULT_CONFIG, channel: Channel = None, everything: All = False, yes: Yes = False
) -> None:
    """Forget the relay log, as RESET REPLICA does. The next start fetches it again and applies nothing twice.

    The command says what it will forget and asks. Tables and Kafka's topics stay as they are.
    """
    from tailrace.channels.reset import open_reset
    from tailrace.config.channels import server_channel

    settings = read_config("reset", config)
    consumer = server_channel(settings, channel)
    with open_reset(consumer, settings.relay.dir, everything=everything) as about:
        for line in about.describe():
            typer.echo(line, err=True)
        confirm("Forget it?", yes, "nothing was forgotten")
        about.forget()
    typer.echo("done", err=True)
