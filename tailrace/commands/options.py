"""Options and functions that several commands share: read the configuration, ask, write JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tailrace.config.model import Config

ConfigFile = Annotated[
    Path,
    typer.Option("--config", "-c", envvar="TAILRACE_CONFIG", metavar="FILE", help="The configuration file."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON to stdout.")]
AsJsonLines = Annotated[bool, typer.Option("--json", help="Write one JSON object on each line.")]
UntilCaughtUp = Annotated[
    bool,
    typer.Option("--until-caught-up", help="Stop when everything that existed at the start is processed."),
]
StopAtGtid = Annotated[
    str | None, typer.Option("--stop-at-gtid", metavar="SET", help="Stop exactly after this GTID set.")
]
Channel = Annotated[
    str | None,
    typer.Option("--channel", metavar="NAME", help="The channel; default: consumer.channel, or main."),
]
DEFAULT_CONFIG = Path("tailrace.toml")
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def read_config(command: str, file: Path, *, warn: bool = False) -> Config:
    """Configure the command's logs, and read its configuration. Raises ConfigError.

    Args:
        warn: log a warning for each file with secrets that other users may read.
    """
    import structlog

    from tailrace.config.file import load
    from tailrace.config.secret_files import readable_by_others
    from tailrace.service import logs

    logs.configure(command)
    config = load(file)
    for path in readable_by_others(file, config) if warn else ():
        structlog.get_logger().warning("secret_open_to_others", file=str(path), remedy=f"chmod 600 {path}")
    return config


def print_json(value: object) -> None:
    """Print a value as JSON."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def confirm(question: str, yes: bool) -> None:
    """Ask for confirmation, unless ``yes`` is set. The command ends if the answer is no.

    Raises ConfigError TR111 if stdin is not a terminal.
    """
    from schemas.errors import ConfigError

    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(
            "TR111", "there is no terminal to ask for confirmation; nothing was done", hint="add --yes"
        )
    typer.confirm(question, abort=True, err=True)
