"""The first knock at Kafka: who is refused there hears it at once, and not after a time-out."""

from __future__ import annotations

import socket
import ssl
from typing import Any

from schemas.access.kafka_security import FIRST_ATTEMPT, OPEN, PROTOCOL_HINT, KafkaSecurity, Refusal, refused
from schemas.errors import ConfigError, LogError

_PATIENCE = 8.0  # seconds


def brokers(servers: str, security: KafkaSecurity = OPEN, patience: float = _PATIENCE) -> tuple[Any, Any]:
    """A client for questions to the brokers, and what they say of themselves and their topics.

    Args:
        patience: seconds after which none answers.

    Raises:
        ConfigError: TR104, files of [kafka] cannot be used.
        LogError: TR508 they let nobody in, TR500 none answers.
    """
    from confluent_kafka import KafkaException

    refusal = Refusal(servers)
    admin = _client(servers, security, refusal)

    def ask(seconds: float) -> Any:
        return refusal.ends(lambda each: admin.list_topics(timeout=each), seconds, lambda: admin.poll(0))

    try:
        return admin, ask(FIRST_ATTEMPT)
    except KafkaException:
        if not security.protocol.endswith("ssl") and any(map(_speaks_tls, servers.split(","))):
            why = f"it speaks TLS, and security-protocol is {security.protocol}"
            raise refused(servers, why, PROTOCOL_HINT) from None
    try:
        return admin, ask(patience - FIRST_ATTEMPT)
    except KafkaException as error:
        raise LogError(
            "TR500",
            f"Kafka at {servers} cannot be reached: {error.args[0].str()}",
            hint=f"check [kafka] bootstrap-servers and that a broker runs; {PROTOCOL_HINT}",
            retryable=True,
        ) from error


def probe(servers: str, security: KafkaSecurity = OPEN) -> None:
    """Raises what ``brokers`` raises, but for TR500: whoever knocks has a way of its own to wait for an answer."""
    try:
        brokers(servers, security, 2 * FIRST_ATTEMPT)
    except LogError as error:
        if not error.retryable:
            raise


def _client(servers: str, security: KafkaSecurity, refusal: Refusal) -> Any:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    settings = {
        "bootstrap.servers": servers,
        **security.librdkafka(),
        "log_level": 0,
        "error_cb": refusal,
        "socket.connection.setup.timeout.ms": 5000,
    }
    try:
        return AdminClient(settings)
    except KafkaException as error:
        raise ConfigError(
            "TR104",
            f"[kafka] cannot be used: {error.args[0].str()}",
            hint="ssl-… files are PEM files, and ssl-key-password is that of ssl-key",
        ) from error


def _speaks_tls(server: str) -> bool:
    """Whether what listens there answers to TLS; a broker just hangs up on who does not begin with it."""
    host, _, port = server.strip().rpartition(":")
    # Whom it belongs to does not matter: nothing is sent.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((host.strip("[]"), int(port)), 2.0) as connection:
            connection.settimeout(2.0)
            with context.wrap_socket(connection):
                return True
    except ssl.SSLError as error:
        # An alert is TLS as well, such as that a certificate of ours is missing.
        return "ALERT" in (error.reason or "")
    except (OSError, ValueError):
        return False
