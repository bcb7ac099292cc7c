"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigFile = Annotated[
    Path,
    typer.Option("--config", "-c", envvar="TAILRACE_CONFIG", metavar="FILE", help="The configuration file."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON to stdout.")]
UntilCaughtUp = Annotated[
    bool,
    typer.Option("--until-caught-up", help="Stop when everything that was there at the start is done."),
]
StopAtGtid = Annotated[
    str | None, typer.Option("--stop-at-gtid", metavar="SET", help="Stop exactly behind this GTID set.")
]
Channel = Annotated[
    str | None,
    typer.Option("--channel", metavar="NAME", help="The channel; default: consumer.channel, or main."),
]
DEFAULT_CONFIG = Path("tailrace.toml")
