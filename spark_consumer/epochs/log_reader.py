"""Reads the epoch log without Spark: its ends, epochs and structures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from schemas.access.kafka_security import PROTOCOL_HINT, Refusal
from schemas.access.topic import Clients, CommittedTopic, Record, Silent, reader_settings
from schemas.errors import LogError
from schemas.wire.log_records import LoggedVersion, epochs_of, last_epoch_of, versions_of
from spark_consumer.epochs.slices import LoggedEpoch
from spark_consumer.rules.config import LogAddress

_TIMEOUT = 30.0
# For what is there already the broker must not wait; while following it answers as soon as there is a record.
_NO_WAIT, _FETCH_WAIT = 0.01, 0.2  # seconds


class LogReader:
    """Reads the epochs and schemas topics as a ``read_committed`` reader; each call reads them again.

    Each call connects to Kafka, but for those inside a block of ``connected``.

    A run has one reader. Another thread needs a reader of its own, because a refusal of Kafka's is kept for the current
    call.
    """

    def __init__(self, log: LogAddress) -> None:
        self._log = log
        self._refusal = Refusal(log.bootstrap_servers)
        group = f"tailrace-{log.prefix}-lookup"
        self._settings = reader_settings(log.bootstrap_servers, log.kafka_security, self._refusal, group)
        self._clients: Clients | None = None

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Keep the connections for the calls inside the block."""
        self._clients = Clients()
        try:
            yield
        finally:
            self._clients.close()
            self._clients = None

    def bounds(self) -> tuple[int, int]:
        """Return the first offset that the epochs topic still has, and the offset after its last committed record."""
        with self._reading(self._log.epochs_topic) as epochs:
            return epochs.bounds()

    def first_row_offset(self, partition: int) -> int | None:
        """Return the first offset that a partition of the rows topic still has; None if it cannot be read."""
        try:
            with self._reading(self._log.rows_topic) as rows:
                return rows.bounds(partition)[0]
        except LogError:
            return None

    def has_first_rows(self) -> bool:
        """Return whether nothing of the rows topic was deleted."""
        with self._reading(self._log.rows_topic) as rows:
            return all(rows.bounds(partition)[0] == 0 for partition in rows.partitions())

    def has_open_rows(self) -> bool:
        """Return whether rows are there that the producer has not committed yet; False if nobody knows."""
        try:
            # For a read_committed reader an open transaction is the end.
            with (
                self._reading(self._log.rows_topic) as committed,
                self._reading(self._log.rows_topic, isolation="read_uncommitted") as rows,
            ):
                return any(
                    committed.bounds(partition)[1] < rows.bounds(partition)[1]
                    for partition in committed.partitions()
                )
        except LogError:
            return False

    def epochs(self, start: int | None = None) -> Iterator[LoggedEpoch]:
        """Yield the epochs from offset ``start`` (default: the first kept) to the current end of the log.

        Raises LogError: TR568, a record is not an epoch; TR551 and TR567, an epoch does not follow the one before it.
        """
        topic = self._log.epochs_topic
        for offset, epoch in epochs_of(self._records(topic, start), topic):
            yield LoggedEpoch(epoch, offset)

    @contextmanager
    def following(self, start: int) -> Iterator[Callable[[int, float], list[Record]]]:
        """Yield a function for the epochs topic's records from an offset on (``CommittedTopic.follow``)."""
        with self._reading(self._log.epochs_topic, _FETCH_WAIT) as epochs:
            yield epochs.follow(start)

    def epochs_after(self, offset: int) -> Iterator[LoggedEpoch]:
        """Yield the epochs after the one at ``offset`` that the topic still has."""
        return self.epochs(max(offset + 1, self.bounds()[0]))

    def last_epoch(self) -> LoggedEpoch | None:
        """Return the last committed epoch; None if there was none yet. Raises LogError TR555 if all were deleted."""
        topic = self._log.epochs_topic
        if found := last_epoch_of(partial(self._records, topic), topic, *self.bounds()):
            offset, epoch = found
            return LoggedEpoch(epoch, offset)
        self.refuse_emptied()
        return None

    def refuse_emptied(self) -> None:
        """For a log without epochs: raise LogError TR555 if it has had some."""
        low, _ = self.bounds()
        if low > 0:
            raise LogError(
                "TR555",
                f"topic {self._log.epochs_topic} has no epochs: everything up to offset {low} was deleted",
                hint="rebuild the downstream from a copy, and increase the topics' retention",
            )

    def structures(self, up_to_epoch: int) -> list[LoggedVersion]:
        """Return all structure versions up to epoch ``up_to_epoch``. Raises LogError TR568."""
        topic = self._log.schemas_topic
        versions = versions_of(self._records(topic), topic)
        return [version for version in versions if version.epoch <= up_to_epoch]

    def tables(self, up_to_epoch: int) -> set[tuple[str, str]]:
        """Return the upstream's tables that have had rows up to an epoch."""
        return {(version.db, version.table) for version in self.structures(up_to_epoch)}

    def tracked(self, start: int | None = None) -> Iterator[Record]:
        """Yield offset, key and value of the producer's records in the tracked topic from an offset on."""
        return self._records(self._log.tracked_topic, start)

    def _records(self, topic: str, start: int | None = None) -> Iterator[Record]:
        with self._reading(topic) as found:
            yield from found.records(start)

    @contextmanager
    def _reading(
        self, topic: str, fetch_wait: float = _NO_WAIT, isolation: str = "read_committed"
    ) -> Iterator[CommittedTopic]:
        settings = {**self._settings, "isolation.level": isolation}
        try:
            with CommittedTopic(
                settings, topic, self._refusal, _TIMEOUT, fetch_wait=fetch_wait, clients=self._clients
            ) as found:
                yield found
        except KafkaException as error:
            raise _unreadable(topic, error.args[0]) from error
        except Silent as error:
            raise LogError("TR557", f"no response for topic {topic}", retryable=True) from error


def _unreadable(topic: str, error: Any) -> LogError:
    missing = error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION)
    return LogError(
        "TR557",
        f"topic {topic} cannot be read: {error.str()}",
        hint="start the producer first: it creates the topics"
        if missing
        else f"check that Kafka is running; {PROTOCOL_HINT}",
        retryable=True,
    )
