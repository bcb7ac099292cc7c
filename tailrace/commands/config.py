"""``tailrace config``: the effective configuration and an example."""

from __future__ import annotations

import typer

from tailrace.commands.options import DEFAULT_CONFIG, AsJson, ConfigFile, print_json

app = typer.Typer(help="Show the effective configuration or an example.", no_args_is_help=True)


@app.command("show")
def show(config: ConfigFile = DEFAULT_CONFIG, as_json: AsJson = False) -> None:
    """Print the effective configuration from file, environment and defaults, with masked passwords."""
    from tailrace.config.file import load
    from tailrace.config.text import effective, effective_toml

    loaded = load(config)
    if as_json:
        print_json(effective(loaded))
    else:
        typer.echo(effective_toml(loaded))


@app.command("example")
def example() -> None:
    """Print an example configuration with all fields and comments. Write it to a file and edit the addresses."""
    from tailrace.config.text import example as text

    typer.echo(text())
