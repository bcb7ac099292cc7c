"""Makes texts from the configuration model: an example, and the effective values without passwords."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tailrace.config.file import LISTS, SECTIONS
from tailrace.config.model import Config, Section, kebab
from tailrace.config.secret_files import SECRET

MASK = "********"


def example() -> str:
    """Return an example configuration with all fields, their meanings and defaults."""
    parts = [
        "# Tailrace's configuration. Every field can also be set in the environment, which overrides the file:",
        "# TAILRACE_<SECTION>_<FIELD>, such as TAILRACE_SOURCE_PASSWORD.",
        "",
    ]
    for name, section in SECTIONS.items():
        parts += [f"# {(section.__doc__ or '').strip().splitlines()[0]}", f"[{name}]"]
        for field, info in section.model_fields.items():
            parts += _field_lines(field, info)
        parts.append("")
    for name, rule in LISTS.items():
        parts += [f"# {(rule.__doc__ or '').strip().splitlines()[0]}", f"# [[{kebab(name)}]]"]
        for field, info in rule.model_fields.items():
            parts += [f"# # {info.description}", *_assignments(field, info.examples[0], "# ")]  # type: ignore[index]
        parts.append("")
    return "\n".join([*parts, *_CHANNEL])


_CHANNEL = (
    '# Settings of the channel "copy" (consume --channel copy); each replaces the one above.',
    "# [channel.copy]",
    "# safe-mode = true",
    "# [channel.copy.target]",
    '# url = "mysql://applier@127.0.0.1:3308"',
    "# [channel.copy.tables]",
    '# exclude = ["shop.log_*"]',
    "# [[channel.copy.routes]]",
    '# schema-pattern = "shop"',
    '# target-schema = "shop_copy"',
    "",
)


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
    # Quoted, since TOML nests dotted names, and refuses a name that is the start of another one.
    return json.dumps(name)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, int | float):
        return repr(value)
    return json.dumps(str(value), ensure_ascii=False)


def effective(config: Config) -> dict[str, Any]:
    """Return the values of all fields as plain data, with masked passwords."""
    shown: dict[str, Any] = {}
    for name, field in Config.model_fields.items():
        value = getattr(config, name)
        if name != "channel" and value is not None and value != ():
            shown[kebab(field.alias or name)] = _plain(name, value)
    if config.channel:
        shown["channel"] = {name: _plain(name, channel) for name, channel in config.channel.items()}
    return shown


def _plain(field: str, value: Any) -> Any:
    if isinstance(value, Section):
        return {kebab(f): _plain(f, v) for f, v in value if v is not None}
    if isinstance(value, SecretStr):
        return MASK
    if field == "spark" and isinstance(value, dict):
        return {name: MASK if SECRET.search(name) else item for name, item in value.items()}
    if field.endswith("url"):
        return re.sub(r"(//[^/@:]*):.*@", rf"\1:{MASK}@", str(value))
    if isinstance(value, Path):
        return str(value)
    return [_plain(field, item) for item in value] if isinstance(value, tuple) else value


def effective_toml(config: Config) -> str:
    """Return `effective` as a configuration file."""
    lines: list[str] = []
    shown = effective(config)
    channels = shown.pop("channel", {})
    for name, value in (*shown.items(), *((f"channel.{_toml(name)}", own) for name, own in channels.items())):
        lines += _table_lines(name, value)
    return "\n".join(lines)


def _table_lines(name: str, value: Any) -> list[str]:
    """Return the lines of a section or a list of sections; nested sections follow the section's own fields."""
    if isinstance(value, list):
        return [line for item in value for line in [f"[[{name}]]", *_table_lines(name, item)[1:]]]
    lines, inside = [f"[{name}]"], []
    for field, item in value.items():
        nested = isinstance(item, dict) and field != "spark"
        if nested or (isinstance(item, list) and item and isinstance(item[0], dict)):
            inside += _table_lines(f"{name}.{field}", item)
        else:
            lines += _assignments(field, _readable(field.replace("-", "_"), item), "")
    return [*lines, "", *inside]
