"""Where an epoch is committed: the four topics, and one Kafka transaction per epoch.

An epoch's commit, in this order:

1. ``begin``: the Kafka transaction opens.
2. ``write``: row records, each to the partition that its key names.
3. ``commit``: every record is acknowledged, so the offset range of each partition is known; then new structures,
   changed tracked ones, the ``EpochCommitted`` record, and the transaction's commit. A ``read_committed`` reader sees
   all or nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from itertools import repeat
from operator import length_hint
from typing import Any, TypeVar

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from producer.epochs.open_epoch import Headers, Records
from producer.kafka.partitioner import partitions
from producer.structures.store import check_record
from schemas.access.kafka_security import OPEN, KafkaSecurity, Refusal
from schemas.access.topic import CommittedTopic, Silent, reader_settings
from schemas.crashpoints import reached
from schemas.errors import LogError, Where
from schemas.structure import has_full_images
from schemas.wire.epoch import (
    DIGEST_MODULUS,
    EPOCH_KEY,
    EpochCommitted,
    OffsetRange,
    digest_of,
    encode_structure_version,
)
from schemas.wire.log_records import At, LoggedVersion, last_epoch_of, no_record, versions_of
from schemas.wire.rows import LEAST_PART, key_table, split_value

log = structlog.get_logger()
# librdkafka would write to stderr by itself; what matters of it comes back as errors.
_LIBRDKAFKA = logging.getLogger("librdkafka")
_LIBRDKAFKA.addHandler(logging.NullHandler())
_LIBRDKAFKA.propagate = False

_MAX_MESSAGE = 64 << 20
# A row larger than this goes out in parts, so that neither broker nor readers need buffers for whole rows.
_PART = 8 << 20
# What Kafka's framing, the key and the headers may take of a record's size.
_FRAMING = 16 << 10
_BATCH = 1 << 20
_TIMEOUT = 10.0  # seconds of one attempt
_SLICE = 0.5  # seconds between checks whether to keep waiting
# As long as a broker keeps an open transaction: what is waited for longer could not be committed any more.
_TRANSACTION_MS = 600_000
_T = TypeVar("_T")
_Report = Callable[[KafkaError | None, Message], None]
_FENCED = {
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
}
# No broker is reachable; this is temporary.
_AWAY = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._WAIT_COORD,
    KafkaError._MSG_TIMED_OUT,
}
_TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}


class RecordTooLarge(LogError):
    """TR502: a record is larger than its topic takes."""


def log_error(error: KafkaException, doing: str) -> LogError:
    """A Kafka error as ours."""
    cause = error.args[0]
    if cause.code() in _TOO_LARGE:
        return RecordTooLarge(
            "TR502",
            f"{doing}: a record is larger than its topic takes",
            hint=f"raise max.message.bytes of the prefix's topics to {_MAX_MESSAGE}; nothing of the epoch is committed",
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
        hint="check kafka.bootstrap-servers and the brokers' logs; starting again goes on where it stopped",
        retryable=cause.retriable() or cause.code() in _AWAY,
        another_start=True,
    )


def _emptied(what: str, prefix: str) -> LogError:
    return LogError(
        "TR510",
        f"{what}: a topic was emptied, by its retention or by hand, or made anew; what it held is lost to every channel"
        " that has not applied it",
        hint=f"nothing was published. To begin a new log, set another kafka.prefix, or delete the topics {prefix}.rows,"
        " .epochs, .schemas and .tracked; where it begins is then up to the relay log, [source] start and [relay]",
    )


class Left(Exception):
    """The producer was stopped while Kafka or the registry was away; the next start writes the open epoch."""

    def __init__(self, why: str = "Kafka does not answer") -> None:
        super().__init__(why)


class EpochLog:
    """Writes epochs; one per prefix, since opening it fences every other.

    Args:
        bootstrap_servers: Kafka's addresses.
        prefix: the topics' common prefix, which is also the producer's identity.
        partition_count: of the rows topic; an existing topic with another number is refused.
        security: what Kafka asks for.
        patience: seconds to wait for an unavailable Kafka.

    Attributes:
        left: set it to abort such a wait with ``ProducerStopped``.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        prefix: str,
        partition_count: int,
        security: KafkaSecurity = OPEN,
        patience: float = 120.0,
    ) -> None:
        self._patience, self.left = patience, threading.Event()
        self._refusal = Refusal(bootstrap_servers)
        self._address = {
            "bootstrap.servers": bootstrap_servers,
            "error_cb": self._refusal,
            **security.librdkafka(),
        }
        self._reader = reader_settings(bootstrap_servers, security, self._refusal, "tailrace")
        self.prefix = prefix
        self.rows_topic, self.epochs_topic = f"{prefix}.rows", f"{prefix}.epochs"
        self.schemas_topic, self.tracked_topic = f"{prefix}.schemas", f"{prefix}.tracked"
        self._count = partition_count
        self._producer: Any = None
        self._starts: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._error: KafkaError | None = None
        self._part = _PART
        self._digest = 0

    def open(self) -> None:
        """Create missing topics and fence the previous producer; nothing if it is open already.

        Raises:
            LogError: TR501 unreachable, TR508 refused, TR502 the rows topic takes small records only, TR509 topics
                have other partitions than they should.
        """
        if self._producer is None:
            self._patiently(self._open)

    def look(self) -> EpochCommitted | None:
        """Read the last committed epoch without fencing, before ``open``. None if there is none.

        Raises LogError: as ``open`` does, and TR510 there were epochs, or rows of this one, and they are gone.
        """
        return self._patiently(self._look)

    def _look(self) -> EpochCommitted | None:
        try:
            there = self._topics(AdminClient(self._address, logger=_LIBRDKAFKA))
        except KafkaException as error:
            raise log_error(error, "looking at the epoch log") from error
        last = self._last_epoch() if self.epochs_topic in there else None
        if last is None:
            self._refuse_emptied(there)
        elif self.rows_topic in there:
            self._refuse_shortened(last)
        else:
            raise _emptied(f"there is no topic {self.rows_topic}, and epochs that name its rows", self.prefix)
        return last

    def _topics(self, admin: Any) -> Any:
        """The topics that there are, by name. Raises LogError TR509."""
        there = self._refusal.ends(
            lambda seconds: admin.list_topics(timeout=seconds), _TIMEOUT, lambda: admin.poll(0)
        ).topics
        for name, wanted in ((self.rows_topic, self._count), (self.epochs_topic, 1)):
            found = len(there[name].partitions) if name in there else wanted
            if found != wanted:
                raise LogError(
                    "TR509",
                    f"topic {name} has {found} partitions, and {wanted} are wanted",
                    hint=f"set [kafka] partitions = {found}: with another number a row's changes would not be in"
                    " one partition any more"
                    if name == self.rows_topic
                    else "use another [kafka] prefix; the producer makes its topics itself",
                )
        return there

    def _open(self) -> None:
        try:
            limit = self._create_topics()
            self._part = min(_PART, limit - _FRAMING)
            producer = Producer(
                {
                    **self._address,
                    "transactional.id": f"tailrace.{self.prefix}",
                    "transaction.timeout.ms": _TRANSACTION_MS,
                    "acks": "all",
                    "compression.type": "lz4",
                    # Rows come by blocks of thousands, and a commit waits for none of this.
                    "linger.ms": 20,
                    "batch.size": min(_BATCH, limit - _FRAMING),
                    "batch.num.messages": 100_000,
                    "message.max.bytes": _MAX_MESSAGE,
                    "queue.buffering.max.messages": 1_000_000,
                    "queue.buffering.max.kbytes": 512 << 10,
                },
                logger=_LIBRDKAFKA,
            )
            self._refusal.ends(producer.init_transactions, _TIMEOUT, lambda: producer.poll(0))
            self._producer = producer
        except KafkaException as error:
            raise log_error(error, "opening the epoch log") from error

    def _patiently(self, work: Callable[[], _T]) -> _T:
        """Do what can be repeated, until Kafka is there."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return work()
            except LogError as error:
                if not error.retryable or time.monotonic() > deadline:
                    raise
                log.warning("kafka_retry", reason=str(error))
                if self.left.wait(1.0):
                    raise Left from error

    def _create_topics(self) -> int:
        """Create what is missing; returns the largest record that the rows topic takes, bytes."""
        admin = AdminClient(self._address, logger=_LIBRDKAFKA)
        there = self._topics(admin)
        # An event-sourced log is kept until its operator says otherwise.
        forever = {"retention.ms": "-1", "max.message.bytes": str(_MAX_MESSAGE)}
        compacted = {"cleanup.policy": "compact", "max.message.bytes": str(_MAX_MESSAGE)}
        wanted = {
            self.rows_topic: (self._count, forever),
            self.epochs_topic: (1, forever),
            self.schemas_topic: (1, compacted),
            self.tracked_topic: (1, compacted),
        }
        missing = [
            NewTopic(name, num_partitions=count, config=config)
            for name, (count, config) in wanted.items()
            if name not in there
        ]
        for created in admin.create_topics(missing, request_timeout=_TIMEOUT).values() if missing else ():
            try:
                created.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
        if self.rows_topic not in there:
            return _MAX_MESSAGE
        return self._record_limit(admin)

    def _record_limit(self, admin: Any) -> int:
        resource = ConfigResource(ResourceType.TOPIC, self.rows_topic)
        try:
            settings = admin.describe_configs([resource], request_timeout=_TIMEOUT)[resource].result()
        except KafkaException as error:
            # Whoever may not look at the topic's settings finds out when the broker refuses a record.
            log.warning("topic_settings_unknown", topic=self.rows_topic, reason=error.args[0].str())
            return _MAX_MESSAGE
        limit = int(settings["max.message.bytes"].value)
        if limit < _FRAMING + LEAST_PART:
            raise LogError(
                "TR502",
                f"topic {self.rows_topic} takes records of {limit} bytes at most",
                hint=f"raise its max.message.bytes: at least {_FRAMING + LEAST_PART}, better {_MAX_MESSAGE}",
            )
        return limit

    # -- reading back ----------------------------------------------------------------------------

    def last_epoch(self) -> EpochCommitted | None:
        """The last committed epoch; None if there is none yet. Call after ``open``."""
        return self._patiently(self._last_epoch)

    def _last_epoch(self) -> EpochCommitted | None:
        topic = self.epochs_topic
        with self._reading(topic) as reader:
            found = last_epoch_of(reader.records, topic, *reader.bounds())
        return found[1] if found else None

    def _refuse_shortened(self, last: EpochCommitted) -> None:
        """Rows of a topic that was made anew would have the offsets of others that epochs name."""
        with self._reading(self.rows_topic) as reader:
            for part in last.ranges:
                end = reader.bounds(part.partition)[1] if part.partition < self._count else 0
                if end < part.end:
                    what = f"{self.rows_topic}, partition {part.partition}, ends at offset {end}, and epoch"
                    raise _emptied(f"{what} {last.epoch} has rows up to {part.end}", self.prefix)

    def _refuse_emptied(self, there: Container[str]) -> None:
        """A log begins once: behind epochs that were deleted another epoch 0 would hide what they held."""
        where = f"{self.epochs_topic} holds no epoch"
        if self.epochs_topic in there:
            with self._reading(self.epochs_topic) as reader:
                first_offset = reader.bounds()[0]
            if first_offset > 0:
                raise _emptied(f"{where}, and its first {first_offset} offsets were deleted", self.prefix)
        # Epoch 0 is committed before the first row is sent.
        for topic, count in ((self.rows_topic, self._count), (self.schemas_topic, 1)):
            if topic not in there:
                continue
            with self._reading(topic) as reader:
                if any(reader.bounds(partition)[1] for partition in range(count)):
                    raise _emptied(f"{where}, but {topic} has records", self.prefix)

    def versions(self) -> dict[tuple[str, str], str]:
        """The fingerprint of each table's newest structure."""
        return {(v.db, v.table): v.fingerprint for v in self.structures() if has_full_images(v.structure)}

    def structures(self) -> list[LoggedVersion]:
        """All structures that the log names, in the order of their epochs."""
        return self._patiently(self._structures)

    def _structures(self) -> list[LoggedVersion]:
        with self._reading(self.schemas_topic) as reader:
            found = versions_of(reader.records(), self.schemas_topic)
        return sorted(found, key=lambda version: version.epoch)

    def tracked(self) -> dict[bytes, bytes]:
        """The records of the tracked structures, as of the last epoch."""
        return self._patiently(self._tracked)

    def _tracked(self) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        with self._reading(self.tracked_topic) as reader:
            for offset, key, value in reader.records():
                if value is None:
                    found.pop(key or b"", None)
                    continue
                try:
                    check_record(key or b"", value)
                except (ValueError, LookupError, TypeError, RecursionError) as error:
                    at = At(self.tracked_topic, offset)
                    raise no_record(at, "the record holds no tracked structure", error) from error
                found[key or b""] = value
        return found

    @contextmanager
    def _reading(self, topic: str) -> Iterator[CommittedTopic]:
        try:
            with CommittedTopic(self._reader, topic, self._refusal, _TIMEOUT, 3 * _TIMEOUT) as found:
                yield found
        except KafkaException as error:
            raise log_error(error, "reading the epoch log") from error
        except Silent as error:
            raise LogError(
                "TR501", "Kafka does not answer", hint="check the brokers", retryable=True
            ) from error

    # -- writing ---------------------------------------------------------------------------------

    def begin(self) -> None:
        """Open the Kafka transaction of the next epoch."""
        self._starts, self._ends, self._error, self._digest = {}, {}, None, 0
        self._refusal.forget()
        self._call(self._producer.begin_transaction, "beginning an epoch")

    def write(self, records: Records) -> None:
        """Hand records to librdkafka; its threads send them while the caller goes on.

        Raises:
            LogError: TR502 a record that Kafka does not take.
        """
        if not records:
            return
        self._digest = (self._digest + digest_of(records.values)) % DIGEST_MODULUS
        if max(map(len, records.values)) > self._part:
            records = self._in_parts(records)
        keys, values, places = records.keys, records.values, partitions(records.keys, self._count)
        headers = {number - records.first: found for number, found in records.headers.items()}
        reports = self._reported(places)
        begin = 0
        for single in sorted(headers.keys() | reports):
            self._write_plain(keys[begin:single], values[begin:single], places[begin:single])
            begin = single + 1
            self._write_one(
                keys[single], values[single], places[single], headers.get(single), reports.get(single)
            )
        self._write_plain(keys[begin:], values[begin:], places[begin:])

    def _write_plain(self, keys: list[bytes], values: list[bytes], places: list[int]) -> None:
        """Records without headers, of which no delivery is reported: nearly all."""
        left = iter(values)
        calls = map(self._producer.produce, repeat(self.rows_topic), left, iter(keys), iter(places))
        while length_hint(left):
            try:
                deque(calls, 0)
            except (BufferError, KafkaException):
                at = len(values) - length_hint(left) - 1
                self._write_one(keys[at], values[at], places[at], None, None)

    def _write_one(
        self, key: bytes, value: bytes, partition: int, headers: Headers | None, report: _Report | None
    ) -> None:
        deadline = time.monotonic() + self._patience
        while True:
            try:
                self._producer.produce(
                    self.rows_topic, value, key, partition, on_delivery=report, headers=headers or []
                )
                return
            except BufferError:
                # librdkafka's queue is full: wait until it has sent some.
                self._call(lambda: self._producer.poll(0.05), "writing rows")
                self._go_on(deadline, "writing rows")
            except KafkaException as error:
                found = log_error(self._cause(error), "writing rows")
                if isinstance(found, RecordTooLarge):
                    found = found.but(where=Where(table=".".join(key_table(key))))
                raise found from error

    def _in_parts(self, records: Records) -> Records:
        """The records with large rows divided; the parts of a row stay neighbors, and so they do in Kafka."""
        divided = Records()
        for number, (key, value) in enumerate(zip(records.keys, records.values, strict=True), records.first):
            headers = records.headers.get(number)
            parts: Iterable[tuple[bytes, Headers | None]] = [(value, headers)]
            if len(value) > self._part:
                parts = ((part, [*(headers or ()), mark]) for part, mark in split_value(value, self._part))
            for part, found in parts:
                if found:
                    divided.headers[len(divided)] = found
                divided.keys.append(key)
                divided.values.append(part)
        return divided

    def commit(
        self,
        epoch_with: Callable[[tuple[OffsetRange, ...], int], EpochCommitted],
        tracked: tuple[tuple[bytes, bytes | None], ...] = (),
    ) -> EpochCommitted:
        """Complete the epoch.

        Args:
            epoch_with: makes the epoch's record, given its offset ranges and the digest of its rows.
            tracked: the records of tracked structures that the epoch changed; None for those that are gone.
        """
        self._flush()
        if self._error is not None:
            raise log_error(self._cause(KafkaException(self._error)), "writing rows")
        ranges = tuple(OffsetRange(p, self._starts[p], self._ends[p]) for p in sorted(self._starts))
        epoch = epoch_with(ranges, self._digest)
        for version in epoch.structures:
            self._produce(self.schemas_topic, encode_structure_version(version), version.topic_key)
        for key, record in tracked:
            self._produce(self.tracked_topic, record, key)
        self._produce(self.epochs_topic, epoch.encode(), EPOCH_KEY)
        reached("publish.before_commit")
        self._commit()
        reached("publish.after_commit")
        return epoch

    def _flush(self) -> None:
        """Wait until all records are acknowledged."""
        deadline, before = time.monotonic() + self._patience, 0
        while waiting := self._call(lambda: self._producer.flush(_SLICE), "writing rows"):
            if waiting < before:
                # As long as some arrive Kafka is there, however long the others take.
                deadline = time.monotonic() + self._patience
            else:
                self._go_on(deadline, "writing rows")
            before = waiting

    def _commit(self) -> None:
        deadline = time.monotonic() + self._patience
        while not self._call(self._committed, "committing an epoch"):
            self._go_on(deadline, "committing an epoch")

    def _committed(self) -> bool:
        try:
            self._producer.commit_transaction(_SLICE)
        except KafkaException as error:
            # The same call goes on where this one was.
            if error.args[0].code() == KafkaError._TIMED_OUT and error.args[0].retriable():
                return False
            raise
        return True

    def _go_on(self, deadline: float, doing: str) -> None:
        """Raise if the wait was aborted or timed out."""
        if refusal := self._refusal.error:
            raise refusal
        if self.left.is_set():
            raise Left
        if time.monotonic() > deadline:
            raise LogError(
                "TR501",
                f"{doing}: Kafka has not answered for {self._patience:.0f} s",
                hint="check kafka.bootstrap-servers and the brokers' logs; starting again goes on where it stopped",
                retryable=True,
            )

    def abort(self) -> None:
        """Give the open transaction up, if there is one that can still be given up."""
        try:
            self._producer.purge()
            self._producer.abort_transaction(_SLICE if self.left.is_set() else _TIMEOUT)
        except KafkaException as error:
            # The broker aborts it when the next producer opens the log.
            log.warning("abort_failed", reason=error.args[0].str())

    def _reported(self, places: list[int]) -> dict[int, _Report]:
        """The records whose delivery must be reported: each partition's last, and the epoch's first."""
        backwards, last = places[::-1], len(places) - 1
        reported: dict[int, _Report] = {}
        for partition in set(places):
            reported[last - backwards.index(partition)] = self._delivered
            if partition not in self._starts:
                self._starts[partition] = -1
                reported[places.index(partition)] = self._delivered
        return reported

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._error = self._error or error
            return
        partition, offset = message.partition(), message.offset()
        if self._starts[partition] < 0:
            self._starts[partition] = offset
        self._ends[partition] = offset + 1

    def _produce(self, topic: str, value: bytes | None, key: bytes) -> None:
        self._call(lambda: self._producer.produce(topic, value, key, 0), f"writing to {topic}")

    def _call(self, action: Callable[[], _T], doing: str) -> _T:
        try:
            return action()
        except KafkaException as error:
            raise log_error(self._cause(error), doing) from error
        except SystemError as error:
            # A fatal error was raised among callbacks, and the next of them stumbled over it.
            cause = error.__cause__ if isinstance(error.__cause__, KafkaException) else self._fatal_error()
            raise log_error(cause, doing) from error

    def _cause(self, error: KafkaException) -> KafkaException:
        """Return the original fatal error behind a generic follow-up error."""
        return self._fatal_error() if error.args[0].code() == KafkaError._FATAL else error

    def _fatal_error(self) -> KafkaException:
        """Return the fatal error of the librdkafka producer, None if there is none."""
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            return error
        return KafkaException(KafkaError(KafkaError._FAIL, "librdkafka failed without a reason"))
