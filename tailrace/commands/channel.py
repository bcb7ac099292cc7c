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

app = typer.Typer(help="List, show, rewind and remove channels.", no_args_is_help=True)

Name = Annotated[str, typer.Option("--channel", metavar="NAME", help="The channel.")]
To = Annotated[
    str,
    typer.Option("--to", metavar="earliest|epoch:N|gtid:SET|time:RFC3339", help="The position to move to."),
]


@app.command("list")
def list_channels(config: ConfigFile = DEFAULT_CONFIG, as_json: AsJson = False) -> None:
    """List the channels on the configured targets with state and lag, and configured ones that have not started yet.

    The lag is known for channels of this configuration's prefix.
    """
    from tailrace.channels import listing
    from tailrace.status.collect import with_state_and_lag

    loaded = read_config("channel list", config)
    found = with_state_and_lag(loaded, listing.list_channels(loaded))
    if as_json:
        print_json({"channels": found})
        return
    for channel in found:
        of = f"{channel['channel']} of {channel['prefix']}"
        seconds = channel["lag"]["seconds"]
        lag = "behind: ?" if seconds is None else f"behind: {seconds:,} s"
        shown = (
            f"{of:<32}  {channel['state']:<11}  {lag:<18}  {_position_text(channel):<24}  {channel['target']}"
        )
        typer.echo(shown)


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
    typer.echo(f"{'position':<12}{_position_text(found)}")
    typer.echo(f"{'counters':<12}" + ", ".join(f"{name} {n:,}" for name, n in found["counters"].items()))
    for batch in found["batches"]:
        typer.echo(f"{'batch':<12}" + _batch(batch))


@app.command("rewind")
def rewind(channel: Name, to: To, config: ConfigFile = DEFAULT_CONFIG, yes: Yes = False) -> None:
    """Move a channel back to an earlier position. Its next run applies everything after it again.

    Changes up to the present position are repeated in safe mode. The channel's consumer must not run. The command is
    refused if changes in between, such as DDL, cannot be repeated; see docs/REPLAY.md.
    """
    from spark_consumer.job.rewind import open_rewind
    from tailrace.config.channels import server_channel
    from tailrace.config.positions import check_position

    settings = server_channel(read_config("channel rewind", config), channel)
    with open_rewind(settings, check_position(to, "--to")) as about:
        for line in about.describe():
            typer.echo(line, err=True)
        confirm("Rewind the channel?", yes)
        about.execute()
    typer.echo("done; the next `tailrace consume` starts at this position", err=True)


@app.command("remove")
def remove(channel: Name, config: ConfigFile = DEFAULT_CONFIG, yes: Yes = False) -> None:
    """Remove a channel: its position, audit rows, counters and checkpoint. Tables and Kafka's topics stay."""
    from relay_store.layout.readers import channel_reader, forget
    from tailrace.channels import listing
    from tailrace.config.channels import server_channel

    loaded = read_config("channel remove", config)
    settings = server_channel(loaded, channel)
    typer.echo(
        f"this removes channel {channel} from {settings.target}, and its checkpoint {settings.channel_dir}",
        err=True,
    )
    confirm("Remove the channel?", yes)
    listing.remove_channel(settings)
    root = loaded.relay.dir
    if root.is_dir():
        forget(root, channel_reader(channel))
    typer.echo("done; the next `tailrace consume` of this channel starts at --from", err=True)


def _position_text(channel: dict[str, Any]) -> str:
    if channel["epoch"] is None:
        return "not started"
    position = f"epoch {channel['epoch']}"
    if channel["epoch_rows"] is not None:
        position += f" and {counted(channel['epoch_rows'], 'row')}"
    if channel["rewound_from"] is not None:
        position += f", rewound from {channel['rewound_from']['epoch']}"
    if channel["paused"] is not None:
        position += f", paused since {channel['paused']}"
    return position


def _batch(batch: dict[str, Any]) -> str:
    rows = sum(batch[name] for name in ("inserts", "updates", "deletes", "copied"))
    which = f"epochs {batch['first_epoch']} to {batch['last_epoch']}"
    gtids = f"{batch['first_gtid']} to {batch['last_gtid']}" if batch["first_gtid"] else ""
    return f"{batch['applied']}  {which}  {counted(rows, 'row')}  {gtids}".rstrip()
