"""Encryption and login for Kafka, as settings of librdkafka and of Kafka's Java client."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import wait
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
    """How to connect and log in to brokers. Neither its text form nor its pickle has a password: see
    ``schemas.access.secrets``.

    Attributes:
        protocol: ``plaintext``, ``ssl``, ``sasl_plaintext`` or ``sasl_ssl``.
        mechanism: with SASL: ``PLAIN``, ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``.
        ca: PEM file of the authorities that sign the brokers' certificates; None means those of the system.
        certificate: PEM file of the client's certificate, for brokers that require one.
        key: PEM file of the certificate's key, in PKCS #8.
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
        """Return librdkafka's properties; none without encryption and login. Raises ConfigError."""
        if self.protocol == "plaintext":
            return {}
        properties = {"security.protocol": self.protocol}
        if self.protocol.startswith("sasl"):
            properties |= {
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
                    # librdkafka would report a missing file in OpenSSL's words.
                    _text(path)
                    properties[name] = str(path)
            if self.key_password:
                properties["ssl.key.password"] = self.key_password
        return properties

    def __reduce__(self) -> tuple[Any, ...]:
        secret = {"password": KAFKA_PASSWORD, "key_password": KAFKA_KEY_PASSWORD}
        left = {name: variable for name, variable in secret.items() if getattr(self, name)}
        return _unpickled, ({name: value for name, value in vars(self).items() if name not in secret}, left)

    def environment(self) -> dict[str, str]:
        """Return the environment variables in which pickles and ``java`` look for the secrets."""
        secrets = {
            KAFKA_PASSWORD: self.password,
            KAFKA_JAAS_PASSWORD: _escaped(self.password),
            KAFKA_KEY_PASSWORD: self.key_password,
        }
        return {name: secret for name, secret in secrets.items() if secret}

    def java(self) -> dict[str, str]:
        """Return the properties of Kafka's Java clients, which take the text of PEM files. Raises ConfigError.

        They contain no secrets, so they may be shown, for example in a plan of Spark. Each client reads the
        passwords from the environment of its process, and the key from its file.
        """
        if self.protocol == "plaintext":
            return {}
        properties = {
            "security.protocol": self.protocol.upper(),
            "config.providers": "env,folder",
            "config.providers.env.class": f"{_PROVIDERS}.EnvVarConfigProvider",
            "config.providers.folder.class": f"{_PROVIDERS}.DirectoryConfigProvider",
        }
        if self.protocol.startswith("sasl"):
            login = f'username="{_escaped(self.username)}" password="${{env:{KAFKA_JAAS_PASSWORD}}}"'
            properties |= {
                "sasl.mechanism": self.mechanism,
                "sasl.jaas.config": f"{_LOGIN_MODULES[self.mechanism]} required {login};",
            }
        if self.protocol.endswith("ssl"):
            if self.ca is not None:
                properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": _text(self.ca)}
            if self.certificate is not None and self.key is not None:
                properties |= {
                    "ssl.keystore.type": "PEM",
                    "ssl.keystore.certificate.chain": _text(self.certificate),
                    "ssl.keystore.key": _named_file(self.key),
                }
            if self.key_password:
                properties["ssl.key.password"] = f"${{env:{KAFKA_KEY_PASSWORD}}}"
        return properties


OPEN = KafkaSecurity()

# librdkafka adds to a broker's answer the attempt and the state of the connection.
_ATTEMPT = re.compile(r"\s*\(after \d+ms in state \w+.*?\)|^\S+/(?:bootstrap|\d+): ")
LOGIN_HINT = "check sasl-username, sasl-password, sasl-mechanism and security-protocol in [kafka]"
CERTIFICATE_HINT = (
    "check that [kafka] ssl-ca has the authorities that sign the brokers' certificates, and that bootstrap-servers"
    " has the brokers' names as in their certificates"
)
FIRST_ATTEMPT = 0.75  # seconds; librdkafka itself waits for 0.3 before it reports a refused login
PROTOCOL_HINT = "check [kafka] security-protocol: it must be the protocol of this listener of the broker"


class KafkaRefused(LogError):
    """TR508: the brokers refuse the client."""


class Refusal:
    """Records why brokers refuse a client. librdkafka retries forever, so its calls only time out.

    Pass it to librdkafka as ``error_cb``, which is called while a client is polled.
    """

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._refusal: tuple[str, str] | None = None

    def __call__(self, error: Any) -> None:
        """Record an error from librdkafka."""
        text = " ".join(_ATTEMPT.sub("", error.str()).split())
        if error.name() == "_AUTHENTICATION":
            self._refusal = text, LOGIN_HINT
        elif error.name() == "_SSL":
            self._refusal = text, CERTIFICATE_HINT
        elif "PLAINTEXT broker listener" in text:
            self._refusal = text, PROTOCOL_HINT

    def forget(self) -> None:
        """Discard the recorded refusal, after a broker has accepted the client."""
        self._refusal = None

    @property
    def error(self) -> LogError | None:
        """The error to stop with; None if no broker has refused."""
        return refused(self._servers, *self._refusal) if self._refusal else None

    def ends(
        self,
        ask: Callable[[float], _T],
        seconds: float,
        serve: Callable[[], Any],
        *,
        first: float = FIRST_ATTEMPT,
    ) -> _T:
        """Call ``ask`` in growing attempts, so that a refusal is noticed before the time is over.

        Args:
            ask: called with the timeout of one attempt in seconds; raises when it is over.
            seconds: for all attempts.
            serve: polls the client, so that librdkafka reports its errors.
            first: seconds of the first attempt.

        Raises:
            LogError: TR508. Other errors of ``ask`` pass through, at the latest once the time is over.
        """
        attempt, left = first, seconds
        while True:
            started, attempt = time.monotonic(), min(attempt, left)
            try:
                return ask(attempt)
            except Exception as error:
                serve()
                if refusal := self.error:
                    raise refusal from error
                took = time.monotonic() - started
                left -= took
                # An error before the end of the attempt is an answer, not a timeout.
                if left <= 0 or took < attempt * 0.9:
                    raise
            attempt *= 2


def metadata(admin: Any, refusal: Refusal, seconds: float) -> Any:
    """Return what an admin client's brokers say about themselves and all topics.

    Raises:
        KafkaException: Kafka does not answer in time; LogError: TR508.
    """
    # For this librdkafka connects at once, and for a list of topics after 50 ms.
    described = admin.describe_cluster(request_timeout=FIRST_ATTEMPT)
    try:
        return refusal.ends(lambda each: admin.list_topics(timeout=each), seconds, lambda: admin.poll(0))
    finally:
        # librdkafka 2.16 crashes on an answer that comes while the client is being destroyed.
        wait([described], 2 * FIRST_ATTEMPT)


def refused(servers: str, why: str, hint: str) -> LogError:
    """Build the error for brokers that refuse the client; a retry cannot help."""
    return KafkaRefused("TR508", f"Kafka at {servers} refuses the connection: {why[:300]}", hint=hint)


def _unpickled(fields: dict[str, Any], left: dict[str, str]) -> KafkaSecurity:
    return KafkaSecurity(**(fields | {name: recall(variable) for name, variable in left.items()}))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _named_file(path: Path) -> str:
    """Return a reference to a file, which the client reads itself. Raises ConfigError TR104."""
    _text(path)
    if any(sign in str(path) for sign in ":}"):
        raise ConfigError(
            "TR104", f"Kafka's Java client cannot read {path}: the path contains a colon or a brace"
        )
    return f"${{folder:{path.parent}:{path.name}}}"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not PEM"
        raise ConfigError(
            "TR104", f"{path} cannot be read: {reason}", hint="[kafka] ssl-… files must be PEM files"
        ) from None
