"""Sizes and durations in the configuration file, as types for the packages' settings."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field

_SIZES = {
    "": 1,
    "b": 1,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
}
_DURATIONS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_size(value: object) -> object:
    """Convert ``16MiB``, ``64kB`` or a plain number to bytes. Raises ValueError."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
    if not match or match[2].lower() not in _SIZES:
        raise ValueError("a size is a number of bytes, or text such as 512KiB, 16MiB, 1GiB")
    return int(float(match[1]) * _SIZES[match[2].lower()])


def parse_duration(value: object) -> object:
    """Convert ``200ms``, ``1.5s``, ``2m`` or a plain number to seconds. Raises ValueError."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?\s*", value)
    if not match:
        raise ValueError("a duration is a number of seconds, or text such as 200ms, 1s, 2m")
    return float(match[1]) * _DURATIONS[match[2] or "s"]


Size = Annotated[int, BeforeValidator(parse_size), Field(ge=1024)]
Duration = Annotated[float, BeforeValidator(parse_duration), Field(ge=0.001, le=3600)]
Span = Annotated[float, BeforeValidator(parse_duration), Field(ge=0)]
