"""Questions to a log on one connection: no answer has anything of what was asked before."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from compose.kafka import Kafka
from schemas.access.kafka_security import OPEN, Refusal
from schemas.access.topic import Clients, CommittedTopic, reader_settings
from tests.support.names import own_name

pytestmark = pytest.mark.servers

MANY = 3000


class Log:
    """Topics whose records are committed together."""

    def __init__(self, servers: str, prefix: str) -> None:
        self.topics = [f"{prefix}-{number}" for number in range(2)]
        self._servers, self._refusal = servers, Refusal(servers)
        admin = AdminClient({"bootstrap.servers": servers})
        for made in admin.create_topics([NewTopic(topic, 1, 1) for topic in self.topics]).values():
            made.result()
        self._producer = Producer({"bootstrap.servers": servers, "transactional.id": prefix, "log_level": 0})
        self._producer.init_transactions()
        self._written: list[list[bytes]] = [[], []]
        self.clients = Clients()

    def write(self, topic: int, count: int) -> None:
        here = self._written[topic]
        self._producer.begin_transaction()
        for _ in range(count):
            here.append(b"%d %d" % (topic, len(here)))
            self._producer.produce(self.topics[topic], here[-1], b"key")
            self._producer.poll(0)
        self._producer.commit_transaction()

    def reading(self, topic: int) -> CommittedTopic:
        settings = reader_settings(self._servers, OPEN, self._refusal, "questions")
        return CommittedTopic(settings, self.topics[topic], self._refusal, 20.0, 10.0, clients=self.clients)

    def values(self, topic: int) -> Iterator[bytes | None]:
        with self.reading(topic) as found:
            for _, _, value in found.records():
                yield value

    def check(self, topic: int) -> None:
        assert list(self.values(topic)) == self._written[topic]


@pytest.fixture
def log(kafka: Kafka, request: pytest.FixtureRequest) -> Iterator[Log]:
    found = Log(kafka.bootstrap, own_name("conn", request))
    yield found
    found.clients.close()


def test_each_answer_is_that_of_its_own_question(log: Log) -> None:
    log.write(0, MANY)
    log.write(1, 3)
    for _ in range(20):
        # Librdkafka has much of the first topic when it is left.
        assert len(list(islice(log.values(0), 5))) == 5
        log.check(1)
        log.check(0)
        with log.reading(1) as found:
            low, high = found.bounds()
        assert low == 0
        assert high > 3
        log.write(1, 2)
        log.write(0, 1)


def test_a_question_within_another(log: Log) -> None:
    log.write(0, MANY)
    log.write(1, 3)
    for number, value in enumerate(log.values(0)):
        assert value == b"0 %d" % number
        if number % 500 == 0:
            log.check(1)
            log.check(0)


def test_the_connection_is_the_same(log: Log) -> None:
    log.write(0, 1)
    with log.reading(0) as one:
        first = one._consumer
    with log.reading(1) as other:
        assert other._consumer is first
        with log.reading(0) as third:
            assert third._consumer is not first
