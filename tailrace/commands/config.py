"""``tailrace config show|example``."""

from __future__ import annotations

import typer

from tailrace.commands.options import DEFAULT_CONFIG, AsJson, ConfigFile, print_json

app = typer.Typer(help="Show the configuration in use, or an example of one.", no_args_is_help=True)


@app.command("show")
def show(config: ConfigFile = DEFAULT_CONFIG, as_json: AsJson = False) -> None:
    """Print the effective configuration: file, environment and defaults together, passwords masked."""
    from tailrace.config.file import load
    from tailrace.config.text import effective, effective_toml

    loaded = load(config)
    if as_json:
        print_json(effective(loaded))
    else:
        typer.echo(effective_toml(loaded))


@app.command("example")
def example() -> None:
    """Print a commented configuration with every field; redirect it into a file and edit the addresses."""
    from tailrace.config.text import example as text

    typer.echo(text())
