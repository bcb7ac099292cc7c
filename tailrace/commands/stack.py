"""``tailrace stack up|down|status``: the embedded servers, for trying things out."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from tailrace.commands.options import AsJson

app = typer.Typer(
    help="Start and stop the embedded Kafka and servers, for trying things out.", no_args_is_help=True
)

Folder = Annotated[Path, typer.Option("--dir", metavar="DIR", help="Folder of the stack's data and logs.")]
Flavor = Literal["mariadb", "mysql"]
DEFAULT_FOLDER = Path("var/stack")


@app.command("up")
def up(
    directory: Folder = DEFAULT_FOLDER,
    upstream: Annotated[Flavor, typer.Option(help="The upstream's flavor.")] = "mariadb",
    downstream: Annotated[Flavor, typer.Option(help="The downstream's flavor.")] = "mariadb",
    as_json: AsJson = False,
) -> None:
    """Start Kafka, an upstream and a downstream, and print how to reach them."""
    from compose.stack import Stack

    info = Stack(directory).up(upstream=upstream, downstream=downstream)
    if as_json:
        typer.echo(json.dumps(asdict(info), indent=2))
        return
    typer.echo(f"kafka       {info.kafka}")
    typer.echo(f"upstream    {info.upstream}  ({info.upstream_flavor})")
    typer.echo(f"downstream  {info.downstream}  ({info.downstream_flavor})")


@app.command("down")
def down(directory: Folder = DEFAULT_FOLDER) -> None:
    """Stop the servers; their data stays."""
    from compose.stack import Stack

    stopped = Stack(directory).down()
    typer.echo(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running", err=True)


@app.command("status")
def status(directory: Folder = DEFAULT_FOLDER, as_json: AsJson = False) -> None:
    """Show which servers run. Exit 1 unless all do."""
    from compose.stack import Stack, status_json

    servers = Stack(directory).status()
    if as_json:
        typer.echo(status_json(servers))
    else:
        for server in servers:
            typer.echo(f"{server.name:20} {server.state:10} {server.address:22} {server.log}")
        if not servers:
            typer.echo(f"there is no stack in {directory}", err=True)
    raise typer.Exit(0 if servers and all(server.state == "up" for server in servers) else 1)
