"""The address of a MySQL-compatible server: `mysql://user[:password]@host:port/?ssl-ca=…`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from schemas.errors import ConfigError

_SCHEMES = ("mysql", "mariadb")
_PARAMS = ("ssl-ca", "ssl-cert", "ssl-key", "ssl-mode", "unix-socket")
SSL_MODES = ("disabled", "required", "verify-ca", "verify-identity")


@dataclass(frozen=True)
class ServerUrl:
    """Where a server is and who asks. The password is in no text form of it."""

    host: str
    port: int = 3306
    user: str = "root"
    password: str = field(default="", repr=False)
    params: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str, password: str | None = None) -> ServerUrl:
        """Read an address; `password` (from environment or file) wins over one in the text.

        Raises ConfigError, which never repeats the password.
        """
        try:
            parts = urlsplit(text)
            port = parts.port or 3306
        except ValueError as error:
            raise _wrong("the port is not a number from 1 to 65535") from error
        if parts.scheme not in _SCHEMES:
            raise _wrong(f"the scheme is {parts.scheme!r}, allowed: {', '.join(_SCHEMES)}")
        if not parts.hostname:
            raise _wrong("the host is missing")
        params = dict(parse_qsl(parts.query, keep_blank_values=True))
        if unknown := sorted(set(params) - set(_PARAMS)):
            raise _wrong(f"unknown parameter {unknown[0]!r}, allowed: {', '.join(_PARAMS)}")
        if (mode := params.get("ssl-mode")) not in (None, *SSL_MODES):
            raise _wrong(f"ssl-mode is {mode!r}, allowed: {', '.join(SSL_MODES)}")
        given = unquote(parts.password or "") if password is None else password
        return cls(parts.hostname, port, unquote(parts.username or "root"), given, params)

    def with_password(self, password: str) -> ServerUrl:
        """The same address with another password."""
        return replace(self, password=password)

    def ssl_options(self) -> dict[str, object] | None:
        """What a pymysql connection takes as `ssl`; None for a connection without TLS.

        Without `ssl-mode`, a CA means verify-ca and nothing means no TLS.
        """
        mode = self.params.get("ssl-mode") or ("verify-ca" if "ssl-ca" in self.params else "disabled")
        if mode == "disabled":
            return None
        names = {"ssl-ca": "ca", "ssl-cert": "cert", "ssl-key": "key"}
        options: dict[str, object] = {
            ours: self.params[key] for key, ours in names.items() if key in self.params
        }
        options["check_hostname"] = mode == "verify-identity"
        options["verify_mode"] = "none" if mode == "required" else "required"
        return options

    def connection_options(self) -> dict[str, Any]:
        """What `pymysql.connect` takes for this address, in autocommit mode."""
        ssl = self.ssl_options()
        return {
            "host": self.host,
            "port": self.port,
            "user": self.user,
            "password": self.password,
            "charset": "utf8mb4",
            "autocommit": True,
            "connect_timeout": 10,
            "ssl": ssl,
            # Otherwise pymysql encrypts by itself where it can, which halves the speed unasked.
            "ssl_disabled": ssl is None,
            "unix_socket": self.params.get("unix-socket"),
        }

    def __str__(self) -> str:
        return f"mysql://{self.user}@{self.host}:{self.port}/"


def _wrong(why: str) -> ConfigError:
    return ConfigError(
        "TR150",
        f"a server address cannot be used: {why}",
        hint="write it as mysql://user@host:3306/, with the password in the environment or a file",
    )
