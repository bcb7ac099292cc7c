"""The address at which a process of ours listens: ``host:port``, with an IPv6 address in brackets."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+)):(?P<port>[0-9]{1,5})")


@dataclass(frozen=True)
class ListenAddress:
    """A host, without brackets, and a port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> ListenAddress:
        """Return the parts of ``host:port``. Raises ValueError."""
        found = _ADDRESS.fullmatch(text)
        if found is None or not 0 < int(found["port"]) < 1 << 16 or not _is_ipv6(found["v6"]):
            raise ValueError("write host:port, such as 127.0.0.1:9464 or [::1]:9464")
        return cls(found["v6"] or found["name"], int(found["port"]))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only programs on this machine can connect. A name other than localhost is not looked up."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def later(self, ports: int) -> ListenAddress:
        """Return the address so many ports further on. Raises ValueError beyond the last port."""
        return self.parse(str(ListenAddress(self.host, self.port + ports)))


def _is_ipv6(host: str | None) -> bool:
    try:
        return host is None or bool(ipaddress.IPv6Address(host))
    except ValueError:
        return False


def listen_text(text: str) -> str:
    """Return a valid ``host:port``, or an empty text for one or ``off``. Raises ValueError.

    An empty variable of the environment counts as none, so a word can say it there.
    """
    if text in ("", "off"):
        return ""
    return str(ListenAddress.parse(text))
