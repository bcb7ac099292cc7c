"""Who may read the page and act: a secret token, sessions of browsers that were given it, and the log-in link."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from schemas.access.private_files import make_folder, opener
from schemas.errors import ConfigError
from tailrace.config.listen import ListenAddress

_SESSION = 12 * 3600  # seconds
_LINK = 600  # seconds
_LEAST = 16  # characters of a configured token
_LONGEST = 1024


@dataclass
class Access:
    """Decides by token, session and address.

    Args:
        token: the secret. Sessions are signed with it, so another token ends them.
        reads_freely: whether reading needs no token.
        clock: seconds since 1970.
    """

    token: str = field(repr=False)
    listen: ListenAddress
    reads_freely: bool = False
    clock: Callable[[], float] = time.time
    _link: tuple[str, float] | None = field(default=None, repr=False)

    @property
    def cookie(self) -> str:
        """The name of the session's cookie. Browsers send cookies to all ports of a host, so it has the port."""
        return f"tailrace-{self.listen.port}"

    def is_token(self, given: str) -> bool:
        """Whether a text is the token, in a time that does not depend on the text."""
        return hmac.compare_digest(given.encode(), self.token.encode())

    def new_session(self) -> str:
        """Return the value of a new session's cookie."""
        claim = f"{int(self.clock()) + _SESSION}.{secrets.token_hex(16)}"
        return f"{claim}.{self._sign('session', claim)}"

    def is_session(self, cookie: str) -> bool:
        """Whether a cookie is one of our sessions that has not ended."""
        claim, _, signature = cookie.rpartition(".")
        end = claim.partition(".")[0]
        if not hmac.compare_digest(signature.encode(), self._sign("session", claim).encode()):
            return False
        return end.isdecimal() and int(end) > self.clock()

    def form_key(self, cookie: str) -> str:
        """Return the secret that forms of a session contain, so that no other site can send them."""
        return self._sign("form", cookie)

    def is_form_key(self, cookie: str, given: str) -> bool:
        """Whether a form comes from a page of the session."""
        return self.is_session(cookie) and hmac.compare_digest(given.encode(), self.form_key(cookie).encode())

    def new_link(self) -> str:
        """Return a word that logs in once, within ten minutes."""
        word = secrets.token_urlsafe(24)
        self._link = word, self.clock() + _LINK
        return word

    def use_link(self, word: str) -> bool:
        """Whether a word is that of the link; it is not any more afterwards."""
        link = self._link
        if link is None or link[1] < self.clock() or not hmac.compare_digest(word.encode(), link[0].encode()):
            return False
        self._link = None
        return True

    def is_our_host(self, host: str) -> bool:
        """Whether a Host header names this machine: a page of another site cannot pretend that by its own DNS."""
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        name = name.removeprefix("[").removesuffix("]").lower()
        if name in ("localhost", self.listen.host.lower(), socket.gethostname().lower()):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _sign(self, purpose: str, text: str) -> str:
        return hmac.new(self.token.encode(), f"{purpose} {text}".encode(), hashlib.sha256).hexdigest()


def check_address(listen: ListenAddress, *, has_token: bool, reads_freely: bool) -> None:
    """Raise ConfigError TR160 for an address that other machines reach, if the secret is not chosen for that."""
    if listen.is_loopback:
        return
    if not has_token:
        raise ConfigError(
            "TR160",
            f"{listen} is reached from other machines, and [serve] has no token",
            hint="set token-file in [serve], or listen at 127.0.0.1 and reach it through ssh -L",
        )
    if reads_freely:
        raise ConfigError(
            "TR160",
            f"read-without-token is only for a loopback address, and {listen} is reached from other machines",
            hint="remove read-without-token, or listen at 127.0.0.1",
        )


def check_token(token: str) -> str:
    """Return a configured token. Raises ConfigError TR160 if it could be guessed or cannot be sent."""
    if not _LEAST <= len(token) <= _LONGEST or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(
            "TR160",
            f"the token of [serve] must have {_LEAST} to {_LONGEST} visible ASCII characters",
            hint="make one with: openssl rand -hex 32",
        )
    return token


def kept_token(path: Path) -> str:
    """Return the token of a file that only this user can read; a random one is made if there is no file.

    Raises ConfigError TR160 if the file cannot be read or written, or holds something else.
    """
    try:
        make_folder(path.parent, chosen=True)
        with open(path, "x", encoding="ascii", opener=opener) as file:
            token = secrets.token_urlsafe(32)
            file.write(token + "\n")
            return token
    except FileExistsError:
        pass
    except OSError as error:
        raise _unusable(path, error) from None
    try:
        if path.stat().st_uid == os.getuid() and path.stat().st_mode & 0o077:
            path.chmod(0o600)
        with path.open(encoding="ascii") as file:
            return check_token(file.read(_LONGEST + 2).strip())
    except (OSError, ValueError) as error:
        raise _unusable(path, error) from None


def _unusable(path: Path, error: Exception) -> ConfigError:
    why = getattr(error, "strerror", None) or "it is not a token"
    return ConfigError(
        "TR160",
        f"the file of the page's token {path} cannot be used: {why}",
        hint="remove it, or set token-file",
    )
