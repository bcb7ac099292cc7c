"""Encryption and login for Kafka, as settings of librdkafka and of Kafka's Java client."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from schemas.access.secrets import KAFKA_JAAS_PASSWORD, KAFKA_KEY_PASSWORD, KAFKA_PASSWORD, recall
from schemas.errors import ConfigError, LogError

_T = TypeVar("_T")
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_PROVIDERS = "org.apache.kafka.common.config.provider"


@dataclass(frozen=True)
class KafkaSecurity:
    """What brokers ask for. No text form of it holds a password, and no pickle: see ``schemas.access.secrets``.

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
        """librdkafka's properties; none for a Kafka that asks for nothing. Raises ConfigError."""
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
            for name, path in files.items():
                if path is not None:
                    # librdkafka would say in OpenSSL's words that there is no such file.
                    _text(path)
                    said[name] = str(path)
            if self.key_password:
                said["ssl.key.password"] = self.key_password
        return said

    def __reduce__(self) -> tuple[Any, ...]:
        secret = {"password": KAFKA_PASSWORD, "key_password": KAFKA_KEY_PASSWORD}
        left = {name: variable for name, variable in secret.items() if getattr(self, name)}
        return _unpickled, ({name: value for name, value in vars(self).items() if name not in secret}, left)

    def environment(self) -> dict[str, str]:
        """The variables by which pickles and ``java`` name the secrets."""
        secrets = {
            KAFKA_PASSWORD: self.password,
            KAFKA_JAAS_PASSWORD: _escaped(self.password),
            KAFKA_KEY_PASSWORD: self.key_password,
        }
        return {name: secret for name, secret in secrets.items() if secret}

    def java(self) -> dict[str, str]:
        """The same for Kafka's Java clients, which take PEM by its text. Raises ConfigError.

        Secrets are named only; each client looks for them in the environment of its process, and for the key in its
        file. What holds these properties, such as a plan of Spark's, may be shown.
        """
        if self.protocol == "plaintext":
            return {}
        said = {
            "security.protocol": self.protocol.upper(),
            "config.providers": "env,folder",
            "config.providers.env.class": f"{_PROVIDERS}.EnvVarConfigProvider",
            "config.providers.folder.class": f"{_PROVIDERS}.DirectoryConfigProvider",
        }
        if self.protocol.startswith("sasl"):
            login = f'username="{_escaped(self.username)}" password="${{env:{KAFKA_JAAS_PASSWORD}}}"'
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
                    "ssl.keystore.key": _named_file(self.key),
                }
            if self.key_password:
                said["ssl.key.password"] = f"${{env:{KAFKA_KEY_PASSWORD}}}"
        return said


OPEN = KafkaSecurity()

# What librdkafka adds to a broker's answer: which attempt it was, and in what state of the connection.
_ATTEMPT = re.compile(r"\s*\(after \d+ms in state \w+.*?\)|^\S+/(?:bootstrap|\d+): ")
LOGIN_HINT = "check sasl-username, sasl-password, sasl-mechanism and security-protocol in [kafka]"
CERTIFICATE_HINT = (
    "check [kafka] ssl-ca, the authorities that sign the brokers' certificates, and that bootstrap-servers names"
    " the brokers as their certificates do"
)
FIRST_ATTEMPT = 0.75  # seconds; librdkafka itself waits for 0.3 before it tells of a refused login
PROTOCOL_HINT = "check [kafka] security-protocol: it must be the one that this listener of the broker speaks"


class KafkaRefused(LogError):
    """TR508: brokers do not let a client in."""


class Refusal:
    """Why brokers do not let a client in, which librdkafka tries for ever: the calls themselves only time out.

    Give it to librdkafka as ``error_cb``; it is told while a client is polled.
    """

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._said: tuple[str, str] | None = None

    def __call__(self, error: Any) -> None:
        """Take in an error of librdkafka's."""
        text = " ".join(_ATTEMPT.sub("", error.str()).split())
        if error.name() == "_AUTHENTICATION":
            self._said = text, LOGIN_HINT
        elif error.name() == "_SSL":
            self._said = text, CERTIFICATE_HINT
        elif "PLAINTEXT broker listener" in text:
            self._said = text, PROTOCOL_HINT

    def forget(self) -> None:
        """A broker has let the client in."""
        self._said = None

    @property
    def error(self) -> LogError | None:
        """What to stop with; None if no broker has refused."""
        return refused(self._servers, *self._said) if self._said else None

    def ends(self, ask: Callable[[float], _T], seconds: float, serve: Callable[[], Any]) -> _T:
        """Ask brokers for something, in attempts that grow, so that a refusal ends it and not the time.

        Args:
            ask: is given the seconds after which it shall raise.
            serve: polls the client, so that it is told what librdkafka has met.

        Raises:
            LogError: TR508. What ``ask`` raises of its own, or once the time is over.
        """
        attempt, left = FIRST_ATTEMPT, seconds
        while True:
            begun, attempt = time.monotonic(), min(attempt, left)
            try:
                return ask(attempt)
            except Exception as error:
                serve()
                if refusal := self.error:
                    raise refusal from error
                took = time.monotonic() - begun
                left -= took
                # Whatever comes before the time is over is an answer.
                if left <= 0 or took < attempt * 0.9:
                    raise
            attempt *= 2


def refused(servers: str, why: str, hint: str) -> LogError:
    """The error of brokers that answer and let nobody in: trying again cannot help."""
    return KafkaRefused("TR508", f"Kafka at {servers} does not let us in: {why[:300]}", hint=hint)


def _unpickled(fields: dict[str, Any], left: dict[str, str]) -> KafkaSecurity:
    return KafkaSecurity(**(fields | {name: recall(variable) for name, variable in left.items()}))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _named_file(path: Path) -> str:
    """A file's text, for a client that reads it itself."""
    _text(path)
    if any(sign in str(path) for sign in ":}"):
        raise ConfigError(
            "TR104", f"{path} cannot be named to Kafka's Java client: it has a colon or a brace in it"
        )
    return f"${{folder:{path.parent}:{path.name}}}"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not PEM"
        raise ConfigError(
            "TR104", f"{path} cannot be read: {reason}", hint="[kafka] ssl-… files are PEM files"
        ) from None
