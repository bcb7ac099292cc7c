"""systemd's units of the producer and of the channels' consumers, with the path of this installation."""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

PRODUCER, CHANNEL = UNITS = ("tailrace-producer.service", "tailrace-channel@.service")


def unit(name: str, program: Path | None = None) -> str:
    """Return the text of a unit.

    Args:
        program: the path of ``tailrace``; None: the one beside this interpreter.
    """
    chosen = program or Path(sys.executable).with_name("tailrace")
    # A percent sign would be a specifier of systemd.
    return (files(__name__) / name).read_text().replace("@TAILRACE@", str(chosen).replace("%", "%%"))
