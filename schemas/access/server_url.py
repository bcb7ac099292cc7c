"""The address of a MySQL-compatible server: `mysql://user[:password]@host:port/?ssl-ca=…`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast, get_args
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from schemas.access.secrets import TARGET_PASSWORD, recall
from schemas.errors import ConfigError

_SCHEMES = ("mysql", "mariadb")
_PARAMS = ("ssl-ca", "ssl-cert", "ssl-key", "ssl-mode", "unix-socket")
_FILES = ("ssl-ca", "ssl-cert", "ssl-key")
SslMode = Literal["disabled", "preferred", "required", "verify-ca", "verify-identity"]
SSL_MODES = get_args(SslMode)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ENDS = re.compile(r"[\0\r\n]")


@dataclass(frozen=True)
class ServerUrl:
    """A server's address and account. Its text form does not have the password.

    Only addresses of targets are pickled, for the tasks that write to them; a pickle does not have the password
    either: see ``schemas.access.secrets``.
    """

    host: str
    port: int = 3306
    user: str = "root"
    password: str = field(default="", repr=False)
    params: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str, password: str | None = None) -> ServerUrl:
        """Parse an address; `password` (from the environment or a file) overrides one in the text.

        Raises ConfigError, which never repeats the password.
        """
        # urlsplit silently removes some of them; others end a name or a password early.
        if _CONTROL.search(text) or _ENDS.search(unquote(text)) or _ENDS.search(password or ""):
            raise _wrong("it or its password contains a control character")
        try:
            parts = urlsplit(text)
            port = 3306 if parts.port is None else parts.port
        except ValueError as error:
            raise _wrong("the port is not a number from 1 to 65535") from error
        if parts.scheme not in _SCHEMES:
            raise _wrong(f"the scheme is {parts.scheme!r}, allowed: {', '.join(_SCHEMES)}")
        if not port:
            raise _wrong("the port is not a number from 1 to 65535")
        if not parts.hostname or not _can_be_looked_up(parts.hostname):
            raise _wrong("the host is missing" if not parts.hostname else "the host's name is not valid")
        given = unquote(parts.password or "") if password is None else password
        return cls(parts.hostname, port, unquote(parts.username or "root"), given, _params(parts.query))

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.host, self.port, self.user, dict(self.params), bool(self.password))

    @property
    def ssl_mode(self) -> SslMode:
        """Whether connections are encrypted and how the server is verified.

        By default ssl-ca implies verify-ca, ssl-cert implies required, and a unix socket implies disabled.
        """
        if "ssl-ca" in self.params and self.params.get("ssl-mode", "required") == "required":
            return "verify-ca"
        if mode := self.params.get("ssl-mode"):
            return cast(SslMode, mode)
        if "ssl-cert" in self.params:
            return "required"
        return "disabled" if "unix-socket" in self.params else "preferred"

    def __str__(self) -> str:
        return f"mysql://{self.user}@{self.host}:{self.port}/"


def with_absolute_files(text: str, folder: Path) -> str:
    """Make the relative paths of the files in an address absolute, starting from ``folder``."""
    address, _, query = text.partition("?")
    pairs = [(name, str(folder / value) if name in _FILES else value) for name, value in parse_qsl(query)]
    return f"{address}?{urlencode(pairs, safe='/')}"


def _params(query: str) -> dict[str, str]:
    pairs = parse_qsl(query, keep_blank_values=True)
    params = dict(pairs)
    for name, value in params.items():
        if name not in _PARAMS:
            raise _wrong(f"unknown parameter {name!r}, allowed: {', '.join(_PARAMS)}")
        if not value or [key for key, _ in pairs].count(name) > 1:
            raise _wrong(f"{name} is empty or given twice")
    if (mode := params.get("ssl-mode")) is not None:
        # MySQL's own programs write it with underscores and capitals.
        params["ssl-mode"] = mode = mode.lower().replace("_", "-")
        if mode not in SSL_MODES:
            raise _wrong(f"ssl-mode is {mode!r}, allowed: {', '.join(SSL_MODES)}")
    if mode in ("disabled", "preferred") and (files := [name for name in _FILES if name in params]):
        raise _wrong(f"ssl-mode is {mode}, which does not use {files[0]}: remove one of the two")
    if "ssl-key" in params and "ssl-cert" not in params:
        raise _wrong("ssl-key needs ssl-cert")
    return params


def _can_be_looked_up(host: str) -> bool:
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


def _unpickled(host: str, port: int, user: str, params: dict[str, str], has_password: bool) -> ServerUrl:
    return ServerUrl(host, port, user, recall(TARGET_PASSWORD) if has_password else "", params)


def _wrong(why: str) -> ConfigError:
    return ConfigError(
        "TR150",
        f"a server address cannot be used: {why}",
        hint="write it as mysql://user@host:3306/, with the password in the environment or a file",
    )
