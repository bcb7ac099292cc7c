"""``tailrace channel``: list channels, show one, move one back, remove one."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from schemas.counted import counted
from tailrace.commands.options import (
    DEFAULT_CONFIG,
    AsJson,
    ConfigFile,
    Yes,
    confirm,
    print_json,
    read_config,
)

app = typer.Typer(help="List, show, move back and forget channels.", no_args_is_help=True)

Name = Annotated[str, typer.Option("--channel", metavar="NAME", help="The channel.")]
To = Annotated[
    str,
    typer.Option("--to", metavar="earliest|epoch:N|gtid:SET|time:RFC3339", help="The position to move to."),
]


@app.command("list")
def list_channels(config: ConfigFile = DEFAULT_CONFIG, as_json: AsJson = False) -> None:
    """List the channels that the configured targets have, and configured ones that have not begun."""
    from tailrace.channels import listing

    found = listing.list_channels(read_config("channel list", config))
    if as_json:
        print_json({"channels": found})
        return
    for channel in found:
        of = f"{channel['channel']} of {channel['prefix']}"
        typer.echo(f"{of:<32}  {_place(channel):<24}  {channel['target']}")


@app.command("show")
def show(channel: Name, config: ConfigFile = DEFAULT_CONFIG, as_json: AsJson = False) -> None:
    """Show a channel's position, its counters and its last batches."""
    from tailrace.channels import listing
    from tailrace.config.channels import server_channel

    found = listing.show_channel(server_channel(read_config("channel show", config), channel))
    if as_json:
        print_json(found)
        return
    for name in ("channel", "prefix", "log_id", "target", "gtids", "began_at", "updated", "checkpoint"):
        typer.echo(f"{name:<12}{found[name] if found[name] is not None else ''}")
    typer.echo(f"{'position':<12}{_place(found)}")
    typer.echo(f"{'counters':<12}" + ", ".join(f"{name} {n:,}" for name, n in found["counters"].items()))
    for batch in found["batches"]:
        typer.echo(f"{'batch':<12}" + _batch(batch))


@app.command("rewind")
def rewind(channel: Name, to: To, config: ConfigFile = DEFAULT_CONFIG, yes: Yes = False) -> None:
    """Move a channel back. Its next run applies everything from there on again, in safe mode up to where it was.

    Its consumer must not run. Refused if something in between cannot be repeated, such as DDL; docs/REPLAY.md.
    """
    from spark_consumer.job.rewind import opened
    from tailrace.config.channels import server_channel
    from tailrace.config.start_point import check_rewind

    settings = server_channel(read_config("channel rewind", config), channel)
    with opened(settings, check_rewind(to)) as about:
        for line in about.says():
            typer.echo(line, err=True)
        confirm("Rewind it?", yes, "nothing was done")
        about.go()
    typer.echo("done; `tailrace consume` goes on from there", err=True)


@app.command("remove")
def remove(channel: Name, config: ConfigFile = DEFAULT_CONFIG, yes: Yes = False) -> None:
    """Forget a channel: its position, audit rows, counters and checkpoint. Tables and Kafka's topics stay."""
    from relay_store.layout.readers import channel_reader, forget
    from tailrace.channels import listing
    from tailrace.config.channels import server_channel

    loaded = read_config("channel remove", config)
    settings = server_channel(loaded, channel)
    typer.echo(f"forgets channel {channel} on {settings.target}, and {settings.channel_dir}", err=True)
    confirm("Forget it?", yes, "nothing was done")
    listing.remove_channel(settings)
    root = loaded.relay.dir
    if root.is_dir():
        forget(root, channel_reader(channel))
    typer.echo("done; the next `tailrace consume` of it begins by its --from", err=True)


def _place(channel: dict[str, Any]) -> str:
    if channel["epoch"] is None:
        return "not begun"
    place = f"epoch {channel['epoch']}"
    if channel["epoch_rows"] is not None:
        place += f" and {counted(channel['epoch_rows'], 'row')}"
    if channel["rewound_from"] is not None:
        place += f", rewound from {channel['rewound_from']['epoch']}"
    return place


def _batch(batch: dict[str, Any]) -> str:
    rows = sum(batch[name] for name in ("inserts", "updates", "deletes"))
    which = f"epochs {batch['first_epoch']} to {batch['last_epoch']}"
    gtids = f"{batch['first_gtid']} to {batch['last_gtid']}" if batch["first_gtid"] else ""
    return f"{batch['applied']}  {which}  {counted(rows, 'row')}  {gtids}".rstrip()
