"""Real servers for the tests: each is started once per session, when a test first asks for it.

`make pytest` shares the modules out among processes, and each of them is a session, with servers of its own.
Tests share them, so a test works in databases and topics of its own and leaves global settings as they were.
A test that must stop, kill or configure a server takes a fresh one from ``server``.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import structlog
from hypothesis import settings

from compose.databases import Database
from compose.kafka import Kafka
from compose.servers import Server
from tests.support.flavors import FLAVORS
from tests.support.producer_case import Case, producer_case

# How long an example takes depends on what else the machine does; hangs are for pytest's timeout.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

# Whoever asks for one of these needs real servers; `make unit` leaves it out.
_SERVERS = {
    *(f"{role}_{flavor}" for role in ("upstream", "downstream") for flavor in FLAVORS),
    *("upstream", "downstream", "server", "mysql_server", "mariadb_server", "kafka", "spark"),
}
_workers: list[int] = []


@pytest.hookimpl(tryfirst=True)  # the marker is there before "-m" is asked
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Unit tests, then the long modules, then the others; xdist hands them out in this order."""
    for item in items:
        if not _SERVERS.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.servers)
    items.sort(
        key=lambda item: (
            item.get_closest_marker("servers") is not None,
            item.get_closest_marker("long") is None,
        )
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Without the marker a test starts no server: `make unit` would have to wait for it."""
    if item.get_closest_marker("servers"):
        return (yield)
    with patch.object(Server, "start", side_effect=AssertionError("mark this test with `servers`")):
        return (yield)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodeready(node: Any) -> None:
    """One of xdist's processes runs tests from now on."""
    _workers.append(node.gateway._rinfo().pid)


def _terminated(*_: object) -> None:
    """What an unattended run gets to hear when it takes too long; the fixtures then stop the servers."""
    # It may come to the whole process group, so twice to xdist's processes: once is enough to stop in order.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for worker in _workers:
        # xdist would tell them too late, and kill them before their fixtures are done.
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGTERM)
    pytest.exit("terminated", returncode=143)


signal.signal(signal.SIGTERM, _terminated)
# `nohup` has it ignored, and programs that tests start and hang up would inherit that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _serve(server: Server) -> Iterator[Any]:
    try:
        server.start()
        yield server
    finally:
        server.kill()


def _role_fixture(flavor: str, role: Any) -> Callable[[pytest.TempPathFactory], Iterator[Database]]:
    def fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
        folder = tmp_path_factory.mktemp(f"{role}_{flavor}")
        yield from _serve(FLAVORS[flavor](folder, role=role, server_id=101 if role == "upstream" else 102))

    return fixture


upstream_mysql = pytest.fixture(_role_fixture("mysql", "upstream"), scope="session", name="upstream_mysql")
upstream_mariadb = pytest.fixture(
    _role_fixture("mariadb", "upstream"), scope="session", name="upstream_mariadb"
)
downstream_mysql = pytest.fixture(
    _role_fixture("mysql", "downstream"), scope="session", name="downstream_mysql"
)
downstream_mariadb = pytest.fixture(
    _role_fixture("mariadb", "downstream"), scope="session", name="downstream_mariadb"
)


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """A command run in this process points the log at a stream that ends with its test."""
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """The session's broker."""
    yield from _serve(Kafka(tmp_path_factory.mktemp("kafka")))


@pytest.fixture(params=["mysql", "mariadb"])
def flavor(request: pytest.FixtureRequest) -> str:
    """Each flavor in turn; ``@pytest.mark.parametrize("flavor", ["mysql"])`` narrows it."""
    return str(request.param)


@pytest.fixture
def upstream(flavor: str, request: pytest.FixtureRequest) -> Database:
    """The session's upstream of this flavor."""
    found: Database = request.getfixturevalue(f"upstream_{flavor}")
    return found


@pytest.fixture
def downstream(flavor: str, request: pytest.FixtureRequest) -> Database:
    """The session's downstream of this flavor."""
    found: Database = request.getfixturevalue(f"downstream_{flavor}")
    return found


@pytest.fixture
def compressed_events(upstream: Database) -> Iterator[None]:
    """MariaDB compresses every statement and rows event of ten bytes or more."""
    ((least,),) = upstream.execute("SELECT @@log_bin_compress_min_len")
    upstream.execute("SET GLOBAL log_bin_compress = ON", "SET GLOBAL log_bin_compress_min_len = 10")
    yield
    upstream.execute("SET GLOBAL log_bin_compress = OFF", f"SET GLOBAL log_bin_compress_min_len = {least}")


@pytest.fixture
def case(upstream: Database, kafka: Kafka, tmp_path: Path) -> Iterator[Case]:
    """A producer's log of the test's own."""
    with producer_case(upstream, kafka.bootstrap, tmp_path) as made:
        yield made


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Callable[..., Database]]:
    """``server(flavor, **options)`` starts a server of the test's own, to stop, kill or configure."""
    started: list[Database] = []

    def start(flavor: str, **options: Any) -> Database:
        made = FLAVORS[flavor](tmp_path / f"server{len(started)}", **options)
        started.append(made)
        made.start()
        return made

    try:
        yield start
    finally:
        for made in started:
            made.kill()


@pytest.fixture
def mysql_server(server: Callable[..., Database]) -> Callable[..., Database]:
    """``server`` for MySQL."""
    return lambda **options: server("mysql", **options)


@pytest.fixture
def mariadb_server(server: Callable[..., Database]) -> Callable[..., Database]:
    """``server`` for MariaDB."""
    return lambda **options: server("mariadb", **options)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One Spark for the module: it takes seconds to start."""
    from compose.artifacts import spark_kafka_jars
    from schemas.access.server_url import ServerUrl
    from spark_consumer.job.spark import start_spark
    from spark_consumer.rules.config import ConsumerConfig

    folder = tmp_path_factory.mktemp("spark")
    # Python workers have the target's password from the JVM's environment; that of all tests' accounts is one.
    target = ServerUrl("h", password="tailrace")
    config = ConsumerConfig("", "", target, checkpoint_dir=folder, jars=tuple(spark_kafka_jars()))
    session = start_spark(config)
    yield session
    session.stop()
