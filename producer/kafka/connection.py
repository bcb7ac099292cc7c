"""The producer's access to Kafka: settings, Kafka's errors as ours, and how long a Kafka that is away is waited for."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import structlog
from confluent_kafka import KafkaError, KafkaException

from schemas.access.kafka_security import KafkaSecurity, Refusal
from schemas.access.topic import reader_settings
from schemas.errors import LogError
from schemas.tally import retried

log = structlog.get_logger()
# librdkafka would write to stderr by itself; what matters of it comes back as errors.
LIBRDKAFKA = logging.getLogger("librdkafka")
LIBRDKAFKA.addHandler(logging.NullHandler())
LIBRDKAFKA.propagate = False

MAX_MESSAGE = 64 << 20
TIMEOUT = 10.0  # seconds of one attempt
_T = TypeVar("_T")
_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
# No broker is reachable; this is temporary.
_AWAY = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._WAIT_COORD,
    KafkaError._MSG_TIMED_OUT,
}
_AWAY_HINT = "check kafka.bootstrap-servers and the brokers' logs; starting again goes on where it stopped"
_TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}


class RecordTooLarge(LogError):
    """TR502: a record is larger than its topic takes."""


class ProducerStopped(Exception):
    """The producer was stopped while Kafka or the registry was away; the next start writes the open epoch."""

    def __init__(self, why: str = "Kafka does not answer") -> None:
        super().__init__(why)


def log_error(error: KafkaException, doing: str) -> LogError:
    """Return the error for a Kafka error: TR502, TR505 or TR501."""
    cause = error.args[0]
    if cause.code() in _TOO_LARGE:
        return RecordTooLarge(
            "TR502",
            f"{doing}: a record is larger than its topic takes",
            hint=f"raise max.message.bytes of the prefix's topics to {MAX_MESSAGE}; nothing of the epoch is committed",
        )
    if cause.code() in _FENCED:
        return LogError(
            "TR505",
            f"{doing}: another producer with the same prefix has taken over",
            hint="only one producer may run per prefix; this one stopped without losing data",
        )
    return LogError(
        "TR501",
        f"{doing}: {cause.str()}",
        hint=_AWAY_HINT,
        retryable=cause.retriable() or cause.code() in _AWAY,
        another_start=True,
    )


class KafkaConnection:
    """Librdkafka's settings, and the waits of one producer.

    Args:
        patience: seconds to wait for an unavailable Kafka.

    Attributes:
        settings: of every client.
        reader_settings: of a client that reads.
        refusal: set while Kafka refuses the client.
        stop_waiting: set it to end a wait with ``ProducerStopped``.
    """

    def __init__(self, bootstrap_servers: str, security: KafkaSecurity, patience: float) -> None:
        self._patience, self.stop_waiting = patience, threading.Event()
        self.refusal = Refusal(bootstrap_servers)
        self.settings = {
            "bootstrap.servers": bootstrap_servers,
            "error_cb": self.refusal,
            **security.librdkafka(),
        }
        self.reader_settings = reader_settings(bootstrap_servers, security, self.refusal, "tailrace")

    def retry(self, work: Callable[[], _T]) -> _T:
        """Repeat ``work`` until Kafka answers."""
        deadline = self.deadline()
        while True:
            try:
                return work()
            except LogError as error:
                if not error.retryable or time.monotonic() > deadline:
                    raise
                log.warning("kafka_retry", reason=str(error))
                retried("kafka", error.code)
                if self.stop_waiting.wait(1.0):
                    raise ProducerStopped from error

    def deadline(self) -> float:
        """Return when a wait that begins now ends, seconds, monotonic."""
        return time.monotonic() + self._patience

    def check_deadline(self, deadline: float, doing: str) -> None:
        """Raise if a wait was aborted or is over: TR501, TR508, ProducerStopped."""
        if refusal := self.refusal.error:
            raise refusal
        if self.stop_waiting.is_set():
            raise ProducerStopped
        if time.monotonic() > deadline:
            raise LogError(
                "TR501",
                f"{doing}: Kafka has not answered for {self._patience:.0f} s",
                hint=_AWAY_HINT,
                retryable=True,
            )
