"""How a Kafka that asks for it is reached: encryption and login, in librdkafka's words and in those of Java."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from schemas.errors import ConfigError

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


@dataclass(frozen=True)
class KafkaSecurity:
    """What brokers ask for. No text form of it holds a password.

    Attributes:
        protocol: ``plaintext``, ``ssl``, ``sasl_plaintext`` or ``sasl_ssl``.
        mechanism: with SASL: ``PLAIN``, ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``.
        ca: PEM file of the authorities that sign the brokers' certificates; the system's own without it.
        certificate: PEM file of the client's certificate, for brokers that ask for one.
        key: PEM file of its key, in PKCS #8.
    """

    protocol: str = "plaintext"
    mechanism: str = "SCRAM-SHA-512"
    username: str = ""
    password: str = field(default="", repr=False)
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    key_password: str = field(default="", repr=False)

    def librdkafka(self) -> dict[str, str]:
        """librdkafka's properties; none for a Kafka that asks for nothing."""
        if self.protocol == "plaintext":
            return {}
        said = {"security.protocol": self.protocol}
        if self.protocol.startswith("sasl"):
            said |= {
                "sasl.mechanism": self.mechanism,
                "sasl.username": self.username,
                "sasl.password": self.password,
            }
        if self.protocol.endswith("ssl"):
            files = {
                "ssl.ca.location": self.ca,
                "ssl.certificate.location": self.certificate,
                "ssl.key.location": self.key,
            }
            said |= {name: str(path) for name, path in files.items() if path is not None}
            if self.key_password:
                said["ssl.key.password"] = self.key_password
        return said

    def java(self) -> dict[str, str]:
        """The same for Kafka's Java clients, which take PEM by its text. Raises ConfigError."""
        if self.protocol == "plaintext":
            return {}
        said = {"security.protocol": self.protocol.upper()}
        if self.protocol.startswith("sasl"):
            login = f"username={_quoted(self.username)} password={_quoted(self.password)}"
            said |= {
                "sasl.mechanism": self.mechanism,
                "sasl.jaas.config": f"{_LOGIN_MODULES[self.mechanism]} required {login};",
            }
        if self.protocol.endswith("ssl"):
            if self.ca is not None:
                said |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": _text(self.ca)}
            if self.certificate is not None and self.key is not None:
                said |= {
                    "ssl.keystore.type": "PEM",
                    "ssl.keystore.certificate.chain": _text(self.certificate),
                    "ssl.keystore.key": _text(self.key),
                }
            if self.key_password:
                said["ssl.key.password"] = self.key_password
        return said


OPEN = KafkaSecurity()


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not PEM"
        raise ConfigError(
            "TR104", f"{path} cannot be read: {reason}", hint="[kafka] ssl-… files are PEM files"
        ) from None
