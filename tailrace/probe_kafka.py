"""Makes the first connection to Kafka, so that a refused login is reported at once and not after a time-out."""

from __future__ import annotations

import socket
import ssl
from typing import Any

from schemas.access.kafka_security import (
    FIRST_ATTEMPT,
    OPEN,
    PROTOCOL_HINT,
    KafkaSecurity,
    Refusal,
    metadata,
    refused,
)
from schemas.errors import ConfigError, LogError

_TIMEOUT = 8.0  # seconds


def brokers(servers: str, security: KafkaSecurity = OPEN, timeout: float = _TIMEOUT) -> tuple[Any, Any]:
    """Return an admin client, and the metadata of brokers and topics.

    Args:
        timeout: seconds to wait for an answer.

    Raises:
        ConfigError: TR104, files of [kafka] cannot be used.
        LogError: TR508, the login is refused; TR500, no broker answers.
    """
    from confluent_kafka import KafkaException

    refusal = Refusal(servers)
    admin = _client(servers, security, refusal)

    try:
        return admin, metadata(admin, refusal, FIRST_ATTEMPT)
    except KafkaException:
        if not security.protocol.endswith("ssl") and any(map(_speaks_tls, servers.split(","))):
            why = f"it requires TLS, and security-protocol is {security.protocol}"
            raise refused(servers, why, PROTOCOL_HINT) from None
    try:
        return admin, metadata(admin, refusal, timeout - FIRST_ATTEMPT)
    except KafkaException as error:
        raise LogError(
            "TR500",
            f"Kafka at {servers} cannot be reached: {error.args[0].str()}",
            hint=f"check [kafka] bootstrap-servers and that a broker is running; {PROTOCOL_HINT}",
            retryable=True,
        ) from error


def probe(servers: str, security: KafkaSecurity = OPEN) -> None:
    """Raise the errors of ``brokers`` except TR500: callers wait for Kafka in their own ways."""
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
            hint="ssl-… files must be PEM files, and ssl-key-password must be the password of ssl-key",
        ) from error


def _speaks_tls(server: str) -> bool:
    """Return whether a broker answers TLS. Without TLS such a broker closes the connection without an error."""
    host, _, port = server.strip().rpartition(":")
    # The certificate is not verified, because no data is sent.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((host.strip("[]"), int(port)), 2.0) as connection:
            connection.settimeout(2.0)
            with context.wrap_socket(connection):
                return True
    except ssl.SSLError as error:
        # An alert is also an answer in TLS, for example about a missing client certificate.
        return "ALERT" in (error.reason or "")
    except (OSError, ValueError):
        return False
