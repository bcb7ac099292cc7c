"""``--from``, ``--until`` and ``--to``: places in the log, as far as they can be told before the log is read."""

from __future__ import annotations

import re
from datetime import datetime

from schemas.errors import ConfigError


def check_start(text: str) -> str:
    """The text itself, if it says where to begin. Raises ConfigError otherwise, before Spark is started."""
    return _checked(text, "--from", "earliest")


def check_cat_start(text: str) -> str:
    """The same for whoever only looks, and may begin with whatever is kept. Raises ConfigError."""
    return text if text == "oldest" else _checked(text, "--from", "earliest")


def check_until(text: str | None) -> str | None:
    """The text itself, if it says where to end. Raises ConfigError."""
    return None if text is None else _checked(text, "--until", "now")


def check_rewind(text: str) -> str:
    """The text itself, if it says where to go back to. Raises ConfigError."""
    return _checked(text, "--to", "earliest")


def _checked(text: str, option: str, word: str) -> str:
    kind, _, value = text.partition(":")
    if text == word or (kind == "epoch" and value.isdecimal()):
        return text
    if kind == "gtid" and re.fullmatch(r"[0-9A-Za-z:,_\-\s]+", value):
        return text
    if kind == "time" and _is_moment(value):
        return text
    what = "no place to begin" if option == "--from" else "no place in the log"
    hint = f"allowed: {word}, epoch:42, gtid:SET, time:2026-01-31T12:00:00Z (with a time zone)"
    raise ConfigError("TR110", f"{option} {text!r} is {what}", hint=hint)


def _is_moment(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False
