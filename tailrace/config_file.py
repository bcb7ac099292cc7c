"""Reads the configuration: file and environment through the model, with errors that name field and remedy."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import SettingsError

from schemas.errors import ConfigError
from schemas.server_url import ServerUrl
from tailrace.config import Config, Section, Server, kebab

DEFAULT_FILE = Path("tailrace.toml")


def load(path: Path) -> Config:
    """The configuration in `path`, overlaid by the environment; relative paths resolved against the file.

    Raises ConfigError naming field, value, what is allowed, and the line.
    """
    text = _read(path)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError("TR101", f"{path} is not valid TOML: {error}", hint=_TOML_HINT) from None
    reader = _Reader(path, text)
    reader.reject_unknown(data)
    try:
        config = Config(**_snake_sections(data))
    except ValidationError as error:
        raise reader.explain(error.errors()[0]) from None
    except SettingsError as error:
        hint = 'in the environment lists and tables are JSON, such as ["shop.*"]'
        raise ConfigError("TR105", f"an environment variable cannot be used: {error}", hint=hint) from None
    return _with_absolute_paths(config, path.absolute().parent)


def server_url(server: Server) -> ServerUrl:
    """The server's address with its password: that of environment or file, else the url's."""
    url = ServerUrl.parse(server.url)
    if server.password is not None:
        return url.with_password(server.password.get_secret_value())
    if server.password_file is not None:
        return url.with_password(_password(server.password_file))
    return url


_TOML_HINT = "text needs quotes; where one Spark property begins another's name, quote both names"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        hint = f"start one with `tailrace config example > {path}`, or name yours with --config FILE"
        raise ConfigError("TR100", f"there is no configuration file {path}", hint=hint) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("TR100", f"{path} cannot be read: {error}") from None


def _password(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise ConfigError("TR104", f"password-file {path} cannot be read: {error.strerror}") from None


def _sections() -> dict[str, type[Section]]:
    found = {}
    for name, field in Config.model_fields.items():
        types = getattr(field.annotation, "__args__", (field.annotation,))
        found[name] = next(t for t in types if isinstance(t, type) and issubclass(t, Section))
    return found


SECTIONS = _sections()


def field_names(section: type[BaseModel]) -> list[str]:
    """The section's fields as the file names them."""
    return [kebab(name) for name in section.model_fields]


def _snake_sections(data: Mapping[str, Any]) -> dict[str, Any]:
    """Python names for the fields, so that file and environment overlay each other; Spark's names stay."""
    out: dict[str, Any] = {}
    for name, section in data.items():
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
    """Turns what is wrong in one file into errors that say where."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._lines = text.splitlines()

    def reject_unknown(self, data: Mapping[str, Any]) -> None:
        """Unknown sections and fields, before any value is looked at: a typo is the likelier cause."""
        for name, section in data.items():
            if name not in SECTIONS:
                raise self._unknown("section", f"[{name}]", name, list(SECTIONS), self._line(name, None))
            if not isinstance(section, Mapping):
                raise self._error("TR102", f"{name} is a section, not a value", f"write [{name}]", name, None)
            allowed = field_names(SECTIONS[name])
            for key in section:
                if key not in allowed and not (name == "consumer" and key.startswith("spark.")):
                    line = self._line(name, key)
                    raise self._unknown("field", f"{key} in [{name}]", key, allowed, line)

    def explain(self, error: ErrorDetails) -> ConfigError:
        """A ConfigError for the first thing that the model refused."""
        section, *rest = [str(part) for part in error["loc"]]
        field = kebab(rest[0]) if rest else ""
        variable = f"TAILRACE_{section}_{rest[0] if rest else ''}".upper()
        name = f"[{section}] {field}".strip()
        if error["type"] == "missing":
            hint = f"add it to the file, or set {variable}"
            return self._error("TR103", f"{name} is missing", hint, section, None)
        shown = "" if field in {"password", "url"} else f" is {error['input']!r}"
        message = error["msg"].removeprefix("Value error, ").replace("a valid tuple", "a list")
        return self._error(
            "TR103",
            f"{name}{shown}: {message}",
            f"see `tailrace config example`; the environment variable {variable} wins over the file",
            section,
            field,
        )

    def _unknown(
        self, kind: str, what: str, name: str, allowed: Iterable[str], line: int | None
    ) -> ConfigError:
        allowed = list(allowed)
        near = difflib.get_close_matches(name.replace("_", "-"), allowed, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}? " if near else ""
        place = f"{self._path}" + (f", line {line}" if line else "")
        text = f"{place}: unknown {kind} {what}"
        return ConfigError("TR102", text, hint=f"{hint}allowed: {', '.join(allowed)}")

    def _error(self, code: str, what: str, hint: str, section: str, field: str | None) -> ConfigError:
        line = self._line(section, field)
        place = f"{self._path}" + (f", line {line}" if line else "")
        return ConfigError(code, f"{place}: {what}", hint=hint)

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
    updates: dict[str, Section] = {}
    for name in SECTIONS:
        section = getattr(config, name)
        if section is None:
            continue
        paths = {f: base / v for f, v in section if isinstance(v, Path)}
        updates[name] = section.model_copy(update=paths)
    return config.model_copy(update=updates)
