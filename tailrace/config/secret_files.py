"""Finds files with passwords or keys that other users may read: the configuration and files that it names."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from schemas.access.private_files import others_may
from schemas.access.server_url import ServerUrl
from tailrace.config.model import Config, Section

#: names of settings that contain a secret; for Spark's properties, those that Spark redacts
SECRET = re.compile(r"(?i)(^|[-.])(password|secret|token)$|spark\..*(secret|password|token)")
_FILES = ("password_file", "sasl_password_file", "ssl_key", "token_file")


def readable_by_others(file: Path, config: Config) -> list[Path]:
    """Return the files with secrets that other users may read or change; ``config`` was read from ``file``."""
    with_secret = [file] if _holds_secret(tomllib.loads(file.read_text(encoding="utf-8"))) else []
    return [
        path for path in dict.fromkeys([*with_secret, *_named(config)]) if path.is_file() and others_may(path)
    ]


def _holds_secret(value: Any, name: str = "") -> bool:
    if isinstance(value, dict):
        return any(_holds_secret(item, f"{name}.{key}") for key, item in value.items())
    if isinstance(value, list):
        return any(_holds_secret(item, name) for item in value)
    if name.endswith("url") and isinstance(value, str):
        return bool(urlsplit(value).password)
    return bool(SECRET.search(name))


def _named(section: Any) -> Iterator[Path]:
    if isinstance(section, dict):
        for one in section.values():
            yield from _named(one)
    elif isinstance(section, Section | Config):
        for name, value in section:
            if name in _FILES and value is not None:
                yield value
            elif name == "url" and "?" in value:
                key = ServerUrl.parse(value).params.get("ssl-key")
                yield from [Path(key)] if key else []
            else:
                yield from _named(value)
