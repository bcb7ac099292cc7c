"""``tailrace systemd``: writes the units of the producer and of the channels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from schemas.errors import ConfigError
from tailrace.systemd import UNITS, unit

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Such as /etc/systemd/system.")]


def systemd(folder: Folder) -> None:
    """Write systemd's units: tailrace-producer.service, and tailrace-channel@.service for each channel.

    They start this installation with /etc/tailrace/tailrace.toml, as the user tailrace.
    """
    for name in UNITS:
        path = folder / name
        try:
            path.write_text(unit(name), encoding="utf-8")
            path.chmod(0o644)
        except OSError as error:
            what = f"{path} cannot be written: {error.strerror}"
            raise ConfigError(
                "TR192", what, hint="the folder must be there, and writable by this user"
            ) from error
        typer.echo(path)
