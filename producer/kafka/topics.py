"""The four topics of a prefix: creates and checks them, and reads back what they hold."""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from producer.copy.state import check_record as check_copy_record
from producer.epochs.open_epoch import LogState
from producer.kafka.connection import LIBRDKAFKA, MAX_MESSAGE, TIMEOUT, KafkaConnection, log_error
from producer.structures.store import check_record
from schemas.access.kafka_security import metadata
from schemas.access.topic import CommittedTopic, Silent
from schemas.errors import LogError
from schemas.structure import has_full_images
from schemas.wire.epoch import EpochCommitted
from schemas.wire.log_records import At, LoggedVersion, last_epoch_of, no_record, versions_of
from schemas.wire.rows import LEAST_PART

log = structlog.get_logger()

#: what Kafka's framing, the key and the headers may take of a record's size
FRAMING = 16 << 10


class Topics:
    """The topics of one prefix.

    Args:
        partition_count: of the rows topic; an existing topic with another number is refused.

    Attributes:
        rows, epochs, schemas, tracked: their names.
    """

    def __init__(self, connection: KafkaConnection, prefix: str, partition_count: int) -> None:
        self._connection, self._prefix, self._count = connection, prefix, partition_count
        self.rows, self.epochs = f"{prefix}.rows", f"{prefix}.epochs"
        self.schemas, self.tracked = f"{prefix}.schemas", f"{prefix}.tracked"

    # -- creation --------------------------------------------------------------------------------

    def create(self) -> int:
        """Create what is missing; returns the largest record that the rows topic takes, bytes.

        Raises:
            KafkaException: Kafka does not answer.
            LogError: TR502 the rows topic takes small records only, TR508 refused, TR509 as ``_existing``.
        """
        admin = AdminClient(self._connection.settings, logger=LIBRDKAFKA)
        there = self._existing(admin)
        # An event-sourced log is kept until its operator says otherwise.
        forever = {"retention.ms": "-1", "max.message.bytes": str(MAX_MESSAGE)}
        compacted = {"cleanup.policy": "compact", "max.message.bytes": str(MAX_MESSAGE)}
        wanted = {
            self.rows: (self._count, forever),
            self.epochs: (1, forever),
            self.schemas: (1, compacted),
            self.tracked: (1, compacted),
        }
        missing = [
            NewTopic(name, num_partitions=count, config=config)
            for name, (count, config) in wanted.items()
            if name not in there
        ]
        for created in admin.create_topics(missing, request_timeout=TIMEOUT).values() if missing else ():
            try:
                created.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
        return self._record_limit(admin) if self.rows in there else MAX_MESSAGE

    def _existing(self, admin: Any) -> Any:
        """The topics that there are, by name. Raises LogError: TR509, one has other partitions than it should."""
        there = metadata(admin, self._connection.refusal, TIMEOUT).topics
        for name, wanted in ((self.rows, self._count), (self.epochs, 1)):
            found = len(there[name].partitions) if name in there else wanted
            if found != wanted:
                raise LogError(
                    "TR509",
                    f"topic {name} has {found} partitions, and {wanted} are wanted",
                    hint=f"set [kafka] partitions = {found}: with another number a row's changes would not be in"
                    " one partition any more"
                    if name == self.rows
                    else "use another [kafka] prefix; the producer makes its topics itself",
                )
        return there

    def _record_limit(self, admin: Any) -> int:
        resource = ConfigResource(ResourceType.TOPIC, self.rows)
        try:
            settings = admin.describe_configs([resource], request_timeout=TIMEOUT)[resource].result()
        except KafkaException as error:
            # Whoever may not look at the topic's settings finds out when the broker refuses a record.
            log.warning("topic_settings_unknown", topic=self.rows, reason=error.args[0].str())
            return MAX_MESSAGE
        limit = int(settings["max.message.bytes"].value)
        if limit < FRAMING + LEAST_PART:
            raise LogError(
                "TR502",
                f"topic {self.rows} takes records of {limit} bytes at most",
                hint=f"raise its max.message.bytes: at least {FRAMING + LEAST_PART}, better {MAX_MESSAGE}",
            )
        return limit

    # -- before they are written -----------------------------------------------------------------

    def peek_last_epoch(self) -> EpochCommitted | None:
        """Read the last committed epoch without fencing its producer. None if there is none.

        Raises LogError: as ``EpochLog.open`` does, and TR510 there were epochs, or rows of this one, and they are gone.
        """
        try:
            there = self._existing(AdminClient(self._connection.settings, logger=LIBRDKAFKA))
        except KafkaException as error:
            raise log_error(error, "looking at the epoch log") from error
        last = self._last_epoch() if self.epochs in there else None
        if last is None:
            self._check_not_emptied(there)
        elif self.rows in there:
            self._check_rows_are_there(last)
        else:
            raise self._emptied(f"there is no topic {self.rows}, and epochs that name its rows")
        return last

    def _check_rows_are_there(self, last: EpochCommitted) -> None:
        """Rows of a topic that was made anew would have the offsets of others that epochs name."""
        with self._reading(self.rows) as reader:
            for part in last.ranges:
                end = reader.bounds(part.partition)[1] if part.partition < self._count else 0
                if end < part.end:
                    what = f"{self.rows}, partition {part.partition}, ends at offset {end}, and epoch"
                    raise self._emptied(f"{what} {last.epoch} has rows up to {part.end}")

    def _check_not_emptied(self, there: Container[str]) -> None:
        """A log begins once: after epochs that were deleted another epoch 0 would hide what they held."""
        where = f"{self.epochs} holds no epoch"
        if self.epochs in there:
            with self._reading(self.epochs) as reader:
                first_offset = reader.bounds()[0]
            if first_offset > 0:
                raise self._emptied(f"{where}, and its first {first_offset} offsets were deleted")
        # Epoch 0 is committed before the first row is sent.
        for topic, count in ((self.rows, self._count), (self.schemas, 1)):
            if topic not in there:
                continue
            with self._reading(topic) as reader:
                if any(reader.bounds(partition)[1] for partition in range(count)):
                    raise self._emptied(f"{where}, but {topic} has records")

    def _emptied(self, what: str) -> LogError:
        prefix = self._prefix
        return LogError(
            "TR510",
            f"{what}: a topic was emptied, by its retention or by hand, or made anew; what it held is lost to every"
            " channel that has not applied it",
            hint="nothing was published. To begin a new log, set another kafka.prefix, or delete the topics"
            f" {prefix}.rows, .epochs, .schemas and .tracked; where it begins is then up to the relay log,"
            " [source] start and [relay]",
        )

    # -- reading back ----------------------------------------------------------------------------

    def read_state(self) -> LogState:
        """Read what a producer goes on from; the topics have to be there."""
        last_epoch = self._last_epoch()
        versions = self.structures()
        current = {(v.db, v.table): v.fingerprint for v in versions if has_full_images(v.structure)}
        return LogState(last_epoch, current, self._tracked_records())

    def structures(self) -> list[LoggedVersion]:
        """Read all structures that the log names, in the order of their epochs."""
        with self._reading(self.schemas) as reader:
            found = versions_of(reader.records(), self.schemas)
        return sorted(found, key=lambda version: version.epoch)

    def _last_epoch(self) -> EpochCommitted | None:
        with self._reading(self.epochs) as reader:
            found = last_epoch_of(reader.records, self.epochs, *reader.bounds())
        return found[1] if found else None

    def _tracked_records(self) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        with self._reading(self.tracked) as reader:
            for offset, key, value in reader.records():
                if value is None:
                    found.pop(key or b"", None)
                    continue
                try:
                    if not check_copy_record(key or b"", value):
                        check_record(key or b"", value)
                except (ValueError, LookupError, TypeError, RecursionError) as error:
                    at = At(self.tracked, offset)
                    raise no_record(at, "the record holds no tracked structure", error) from error
                found[key or b""] = value
        return found

    @contextmanager
    def _reading(self, topic: str) -> Iterator[CommittedTopic]:
        connection = self._connection
        try:
            with CommittedTopic(
                connection.reader_settings, topic, connection.refusal, TIMEOUT, 3 * TIMEOUT
            ) as found:
                yield found
        except KafkaException as error:
            raise log_error(error, "reading the epoch log") from error
        except Silent as error:
            raise LogError(
                "TR501", "Kafka does not answer", hint="check the brokers", retryable=True
            ) from error
