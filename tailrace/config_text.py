"""Texts made from the configuration model: an example, and the effective values without passwords."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tailrace.config import Config, Section, kebab
from tailrace.config_file import SECTIONS

MASK = "********"


def example() -> str:
    """A configuration file with every field, its meaning and its default; only the addresses must change."""
    parts = [
        "# Tailrace's configuration. Every field may also come from the environment, which wins:",
        "# TAILRACE_<SECTION>_<FIELD>, such as TAILRACE_SOURCE_PASSWORD.",
        "",
    ]
    for name, section in SECTIONS.items():
        parts += [f"# {(section.__doc__ or '').strip().splitlines()[0]}", f"[{name}]"]
        for field, info in section.model_fields.items():
            parts += _field_lines(field, info)
        parts.append("")
    return "\n".join(parts)


def _field_lines(name: str, info: FieldInfo) -> list[str]:
    lines = [f"# {info.description}"]
    default = info.get_default(call_default_factory=True, validated_data={})
    sample = info.examples[0] if info.examples else None
    if default is PydanticUndefined:
        lines += _assignments(name, sample, "")
    elif default in (None, (), {}):
        lines += _assignments(name, sample if sample is not None else "...", "# ")
    else:
        lines += _assignments(name, _readable(name, default), "")
    return lines


def _readable(name: str, value: Any) -> Any:
    if name == "max_bytes" and isinstance(value, int) and value % (1 << 20) == 0:
        return f"{value >> 20}MiB"
    if name == "max_delay" and isinstance(value, float):
        return f"{value * 1000:g}ms" if value < 1 else f"{value:g}s"
    return value


def _assignments(name: str, value: Any, comment: str) -> list[str]:
    if isinstance(value, dict):
        return [f"{comment}{_spark_key(key)} = {_toml(item)}" for key, item in value.items()]
    return [f"{comment}{kebab(name)} = {_toml(value)}"]


def _spark_key(name: str) -> str:
    # Quoted: TOML would nest a bare dotted name, and refuse it where one name begins another's.
    return json.dumps(name)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, int | float):
        return repr(value)
    return json.dumps(str(value), ensure_ascii=False)


def effective(config: Config) -> dict[str, dict[str, Any]]:
    """Every field's value in use, as plain data, with passwords masked."""
    shown: dict[str, dict[str, Any]] = {}
    for name in SECTIONS:
        section: Section | None = getattr(config, name)
        if section is not None:
            shown[name] = {kebab(f): _plain(f, v) for f, v in section if v is not None}
    return shown


def _plain(field: str, value: Any) -> Any:
    if isinstance(value, SecretStr):
        return MASK
    if field == "url":
        return re.sub(r"(//[^/@:]*):.*@", rf"\1:{MASK}@", str(value))
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def effective_toml(config: Config) -> str:
    """`effective` as a configuration file."""
    lines: list[str] = []
    for name, fields in effective(config).items():
        lines.append(f"[{name}]")
        for field, value in fields.items():
            lines += _assignments(field, _readable(field.replace("-", "_"), value), "")
        lines.append("")
    return "\n".join(lines)
