"""Checks positions of the log and GTID sets on the command line, before the log is read."""

from __future__ import annotations

from contextlib import suppress

from schemas.errors import ConfigError
from schemas.gtid.sets import flavor_of, parse_gtid_set
from spark_consumer.epochs.position import NamedPosition


def check_position(text: str, option: str, word: str = "earliest") -> str:
    """Return the text if it is a position in the log. Raises ConfigError TR110, before the log is read.

    Args:
        option: the text's command-line option.
        word: the word that stands for a position with this option.
    """
    with suppress(ConfigError):
        gtids = NamedPosition.parse(text, word).gtids
        if gtids is None or all(map(_is_set, gtids.split(","))):
            return text
    hint = f"allowed: {word}, epoch:42, gtid:SET, time:2026-01-31T12:00:00Z (with a time zone)"
    raise ConfigError("TR110", f"{option} {text!r} is not a position in the log", hint=hint)


def check_gtid_set(text: str | None) -> str | None:
    """Return the text if it is a GTID set of MySQL or MariaDB. Raises ConfigError TR110."""
    if text is None or (text.strip() and _is_set(text)):
        return text
    raise ConfigError(
        "TR110",
        f"--stop-at-gtid {text[:200]!r} is not a GTID set",
        hint="use a set like 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5 (MySQL) or 0-1-100 (MariaDB)",
    )


def _is_set(text: str) -> bool:
    try:
        parse_gtid_set(text, flavor_of(text))
    except ValueError:
        return False
    return True
