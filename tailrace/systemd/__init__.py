"""systemd's units of the producer and of the channels' consumers, with the path of this installation."""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

PRODUCER, CHANNEL = UNITS = ("tailrace-producer.service", "tailrace-channel@.service")
_COMMANDS = {PRODUCER: "produce", CHANNEL: "consume --channel %i"}
_DESCRIPTIONS = {
    PRODUCER: "mirror the binlog and publish it to Kafka",
    CHANNEL: "apply the log to the downstream, channel %i",
}


def unit(name: str, program: Path | None = None) -> str:
    """Return the text of a unit.

    Args:
        program: the path of ``tailrace``; None: the one beside this interpreter.
    """
    chosen = program or Path(sys.executable).with_name("tailrace")
    # A percent sign would be a specifier of systemd.
    path = str(chosen).replace("%", "%%")
    text = (files(__name__) / "unit.service").read_text()
    for place, value in (
        ("DESCRIPTION", _DESCRIPTIONS[name]),
        ("COMMAND", _COMMANDS[name]),
        ("TAILRACE", path),
    ):
        text = text.replace(f"@{place}@", value)
    return text
