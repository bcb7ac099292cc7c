"""``tailrace stack``: starts and stops local servers to try Tailrace with.

They are not part of the product: a separate program, ``python -m compose``, starts and stops them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from schemas.errors import StackError
from tailrace.commands.options import AsJson, print_json

app = typer.Typer(help="Start and stop a local Kafka and servers to try Tailrace with.", no_args_is_help=True)

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
    """Start Kafka, an upstream and a downstream, and print their addresses."""
    info = _compose("up", str(directory), "--upstream", upstream, "--downstream", downstream)
    if as_json:
        print_json(info)
        return
    typer.echo(f"kafka       {info['kafka']}")
    typer.echo(f"upstream    {info['upstream']}  ({info['upstream_flavor']})")
    typer.echo(f"downstream  {info['downstream']}  ({info['downstream_flavor']})")


@app.command("down")
def down(directory: Folder = DEFAULT_FOLDER) -> None:
    """Stop the servers and keep their data."""
    stopped = _compose("down", str(directory))
    typer.echo(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running", err=True)


@app.command("status")
def status(directory: Folder = DEFAULT_FOLDER, as_json: AsJson = False) -> None:
    """Show which servers are running. Exit code 1: not all are."""
    servers = _compose("status", str(directory))
    if as_json:
        print_json(servers)
    else:
        for server in servers:
            typer.echo("{name:20} {state:10} {address:22} {log}".format(**server))
        if not servers:
            typer.echo(f"there is no stack in {directory}", err=True)
    raise typer.Exit(0 if servers and all(server["state"] == "up" for server in servers) else 1)


def _compose(*arguments: str) -> Any:
    """Return the answer of ``python -m compose``. Raises StackError."""
    command = [sys.executable, "-m", "compose", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        what = f"`python -m compose {arguments[0]}` ended with {done.returncode}"
        raise StackError("TR700 failed", what, hint="see the lines above") from None
    if done.returncode:
        raise StackError(answer["code"], answer["what"], hint=answer["hint"])
    return answer
