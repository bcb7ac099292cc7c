"""Whether a server's connections are encrypted, and whether its certificate is verified."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from schemas.access.server_url import ServerUrl, SslMode
from tailrace.preflight.finding import Finding, Part


@dataclass(frozen=True)
class Encryption:
    """How the connections to a server are made.

    Attributes:
        tls: version and cipher; empty without TLS.
        here: whether they do not leave this machine.
    """

    tls: str
    mode: SslMode
    here: bool

    @classmethod
    def of(cls, url: ServerUrl, tls: str) -> Encryption:
        """That of an address, where a connection to it is encrypted by ``tls``."""
        return cls(tls, url.ssl_mode, "unix-socket" in url.params or _is_loopback(url.host))


UNENCRYPTED = Encryption("", "disabled", True)
_PROVED: dict[SslMode, str] = {
    "verify-ca": "its certificate is proved, its name is not",
    "verify-identity": "certificate and name are proved",
}


def encryption_finding(part: Part, found: Encryption) -> Finding:
    """What protects the connections to a server."""
    if found.tls:
        proved = _PROVED.get(found.mode, "nobody proves that it is this server: ssl-ca in the url would")
        return Finding("ok", part, "encryption", f"connections are encrypted ({found.tls}); {proved}")
    why = "ssl-mode is disabled" if found.mode == "disabled" else "the server offers no TLS"
    what = f"connections are not encrypted: {why}"
    if found.here:
        return Finding("ok", part, "encryption", f"{what}; they do not leave this machine")
    remedy = "give the server a certificate, and take ssl-mode=disabled out of the url; see docs/SECURITY.md"
    return Finding("warn", part, "encryption", what, remedy)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
