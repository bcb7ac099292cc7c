"""Findings about the encryption of a server's connections and the verification of its certificate."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from schemas.access.server_url import ServerUrl, SslMode
from tailrace.preflight.finding import Finding, Part


@dataclass(frozen=True)
class Encryption:
    """How the connections to a server are protected.

    Attributes:
        tls: version and cipher; empty without TLS.
        local: whether they do not leave this machine.
    """

    tls: str
    mode: SslMode
    local: bool

    @classmethod
    def of(cls, url: ServerUrl, tls: str) -> Encryption:
        """Return the encryption of connections to ``url``, of which one uses ``tls``."""
        return cls(tls, url.ssl_mode, "unix-socket" in url.params or _is_loopback(url.host))


UNENCRYPTED = Encryption("", "disabled", True)
_VERIFIED: dict[SslMode, str] = {
    "verify-ca": "the certificate is verified, its host name is not",
    "verify-identity": "certificate and host name are verified",
}


def encryption_finding(part: Part, found: Encryption) -> Finding:
    """Return a finding about the encryption of the connections to a server."""
    if found.tls:
        verified = _VERIFIED.get(found.mode, "the certificate is not verified: set ssl-ca in the url")
        return Finding("ok", part, "encryption", f"connections are encrypted ({found.tls}); {verified}")
    why = "ssl-mode is disabled" if found.mode == "disabled" else "the server offers no TLS"
    what = f"connections are not encrypted: {why}"
    if found.local:
        return Finding("ok", part, "encryption", f"{what}; they do not leave this machine")
    remedy = "give the server a certificate, and remove ssl-mode=disabled from the url; see docs/SECURITY.md"
    return Finding("warn", part, "encryption", what, remedy)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
