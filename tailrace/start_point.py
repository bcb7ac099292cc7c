"""``--from``: where a channel without a position begins."""

from __future__ import annotations

import re
from datetime import datetime

from schemas.errors import ConfigError


def check_start(text: str) -> str:
    """The text itself, if it says where to begin. Raises ConfigError otherwise, before Spark is started."""
    kind, _, value = text.partition(":")
    if text == "earliest" or (kind == "epoch" and value.isdecimal()):
        return text
    if kind == "gtid" and re.fullmatch(r"[0-9A-Za-z:,_\-\s]+", value):
        return text
    if kind == "time" and _is_moment(value):
        return text
    hint = "allowed: earliest, epoch:42, gtid:SET, time:2026-01-31T12:00:00Z (with a time zone)"
    raise ConfigError("TR110", f"--from {text!r} is no place to begin", hint=hint)


def _is_moment(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False
