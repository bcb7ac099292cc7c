"""A new channel's tables, which the consumer makes while it waits for the producer."""

from __future__ import annotations

import pytest

from compose.databases import Database
from schemas.access.server_url import ServerUrl
from spark_consumer.rules.config import ConsumerConfig
from tailrace.assemble.sink import make_tables

THERE = (
    "SELECT COUNT(*) FROM information_schema.TABLES"
    " WHERE TABLE_SCHEMA = 'tailrace' AND TABLE_NAME = 'validation_run'"
)


@pytest.mark.servers
def test_what_is_missing_is_made(downstream: Database) -> None:
    config = ConsumerConfig("", "p", ServerUrl.parse(downstream.url()))
    make_tables(config)
    downstream.execute("DROP TABLE tailrace.validation_run")
    make_tables(config)
    assert downstream.execute(THERE) == [(1,)]


def test_a_server_that_is_not_there_is_left_to_the_run() -> None:
    make_tables(ConsumerConfig("", "p", ServerUrl.parse("mysql://root@127.0.0.1:1/")))
