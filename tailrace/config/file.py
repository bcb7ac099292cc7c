"""Reads the configuration from file and environment; errors name the field and the remedy."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import SettingsError

from schemas.access.server_url import with_absolute_files
from schemas.errors import ConfigError
from tailrace.config.model import Channel, Config, Section, kebab


def load(path: Path) -> Config:
    """Read the configuration from `path` and the environment. Relative paths are relative to the file's folder.

    Raises ConfigError, which names field, value, allowed values and line.
    """
    text = _read(path)
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError("TR101", f"{path} is not valid TOML: {error}", hint=_TOML_HINT) from None
    reader = _Reader(path, text)
    reader.reject_unknown(data)
    try:
        config = Config(**_snake_sections(data))
    except ValidationError as error:
        raise reader.explain(error.errors()[0]) from None
    except SettingsError as error:
        hint = 'write lists and tables in the environment as JSON, such as ["shop.*"]'
        raise ConfigError("TR105", f"an environment variable cannot be used: {error}", hint=hint) from None
    return _with_absolute_paths(config, path.absolute().parent)


_TOML_HINT = (
    "put text in quotes; if the name of a Spark property is the start of another one's, quote both names"
)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        hint = f"create one with `tailrace config example > {path}`, or name yours with --config FILE"
        raise ConfigError("TR100", f"there is no configuration file {path}", hint=hint) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("TR100", f"{path} cannot be read: {error}") from None


def _inner(annotation: Any) -> type[Section] | None:
    """Return the section in an annotation such as ``Source | None`` or ``tuple[Filter, ...]``."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next(filter(None, map(_inner, get_args(annotation))), None)


# The fields of the model by their names in the file, but with underscores.
_FIELDS = {field.alias or name: field for name, field in Config.model_fields.items()}


def _sections(*, lists: bool) -> dict[str, type[Section]]:
    found = {}
    for name, field in _FIELDS.items():
        section = _inner(field.annotation)
        if name != "channel" and section is not None and _is_list(field.annotation) == lists:
            found[name] = section
    return found


def _is_list(annotation: Any) -> bool:
    return tuple in (get_origin(annotation), *map(get_origin, get_args(annotation)))


SECTIONS = _sections(lists=False)
#: sections that the file may repeat as ``[[name]]``
LISTS = _sections(lists=True)


def field_names(section: type[BaseModel]) -> list[str]:
    """Return the section's fields by their names in the file."""
    return [kebab(name) for name in section.model_fields]


def _snake_sections(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data with Python's field names, as in the environment; Spark's names stay."""
    out: dict[str, Any] = {}
    for name, section in data.items():
        if name not in SECTIONS:
            out[name.replace("-", "_")] = section
            continue
        fields: dict[str, Any] = {}
        for key, value in section.items():
            if name == "consumer" and key.startswith("spark."):
                fields.setdefault("spark", {})[key] = value
            elif name == "consumer" and key == "spark" and isinstance(value, Mapping):
                fields.setdefault("spark", {}).update(value)
            else:
                fields[key.replace("-", "_")] = value
        out[name] = fields
    return out


class _Reader:
    """Turns the errors of one file into a ConfigError each, with the line."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._lines = text.splitlines()

    def reject_unknown(self, data: Mapping[str, Any]) -> None:
        """Raise ConfigError for unknown sections and fields, before values are checked: most errors are typos."""
        for name, section in data.items():
            if name.replace("-", "_") not in _FIELDS or "_" in name:
                allowed = [*SECTIONS, *map(kebab, LISTS), "channel"]
                raise self._unknown("section", f"[{name}]", name, allowed, self._line(name, None))
            self._reject_in(name, section, _FIELDS[name.replace("-", "_")].annotation)

    def _reject_in(self, name: str, value: Any, annotation: Any) -> None:
        """Raise ConfigError for unknown fields in a section, a list of sections, or the channels."""
        top = name.split(".")[0]
        model = _inner(annotation)
        assert model is not None
        if _is_list(annotation):
            if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
                raise self._error("TR102", f"{name} is a list of rules", f"write [[{name}]]", top, None)
            items = value
        elif not isinstance(value, Mapping):
            raise self._error("TR102", f"{name} is a section, not a value", f"write [{name}]", top, None)
        elif name == "channel":
            for channel, section in value.items():
                self._reject_in(f"channel.{channel}", section, Channel)
            return
        else:
            items = [value]
        allowed = field_names(model)
        for item in items:
            for key, inner in item.items():
                if key not in allowed and not (name == "consumer" and key.startswith("spark.")):
                    raise self._unknown("field", f"{key} in [{name}]", key, allowed, self._line(top, key))
                if model is Channel:
                    nested = Channel.model_fields[key.replace("-", "_")].annotation
                    if _inner(nested) is not None:
                        self._reject_in(f"{name}.{key}", inner, nested)

    def explain(self, error: ErrorDetails) -> ConfigError:
        """Return a ConfigError for the first error of the model."""
        section, *rest = [str(part) for part in error["loc"] if not isinstance(part, int)]
        field = kebab(rest[-1]) if rest else ""
        own = section in SECTIONS
        variable = f"TAILRACE_{section}{'_' + rest[0] if rest and own else ''}".upper()
        name = f"[{'.'.join(map(kebab, [section, *rest[:-1]]))}] {field}".strip()
        if error["type"] == "missing":
            hint = f"add it to the file, or set {variable}"
            return self._error("TR103", f"{name} is missing", hint, section, None)
        hidden = field.endswith(("password", "token", "url")) or isinstance(
            error["input"], Mapping | BaseModel
        )
        shown = "" if hidden else f" is {error['input']!r}"
        message = error["msg"].removeprefix("Value error, ").replace("a valid tuple", "a list")
        return self._error(
            "TR103",
            f"{name}{shown}: {message}",
            f"see `tailrace config example`; the environment variable {variable} overrides the file",
            section,
            field,
        )

    def _unknown(
        self, kind: str, what: str, name: str, allowed: Iterable[str], line: int | None
    ) -> ConfigError:
        allowed = list(allowed)
        near = difflib.get_close_matches(name.replace("_", "-"), allowed, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}? " if near else ""
        where = f"{self._path}" + (f", line {line}" if line else "")
        text = f"{where}: unknown {kind} {what}"
        return ConfigError("TR102", text, hint=f"{hint}allowed: {', '.join(allowed)}")

    def _error(self, code: str, what: str, hint: str, section: str, field: str | None) -> ConfigError:
        line = self._line(section, field)
        where = f"{self._path}" + (f", line {line}" if line else "")
        return ConfigError(code, f"{where}: {what}", hint=hint)

    def _line(self, section: str, field: str | None) -> int | None:
        inside = False
        for number, line in enumerate(self._lines, 1):
            if header := re.match(r"\s*\[+\s*\"?([^\].\"]+)", line):
                inside = header[1].strip() == section
                if inside and field is None:
                    return number
            elif inside and field and re.match(rf"\s*\"?{re.escape(field)}\"?\s*[=.]", line):
                return number
        return None


def _with_absolute_paths(config: Config, base: Path) -> Config:
    updates = {name: _absolute(value, base) for name, value in config if isinstance(value, Section)}
    channels = {name: _absolute(channel, base) for name, channel in config.channel.items()}
    return config.model_copy(update={**updates, "channel": channels})


def _absolute(section: Section, base: Path) -> Section:
    updates: dict[str, Any] = {}
    for field, value in section:
        if isinstance(value, Path):
            updates[field] = base / value
        elif field == "url" and "?" in value:
            updates[field] = with_absolute_files(value, base)
        elif isinstance(value, Section):
            updates[field] = _absolute(value, base)
    return section.model_copy(update=updates)
