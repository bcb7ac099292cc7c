"""The demo's measurements: the delay until the downstream shows upstream rows, and the log's last epoch."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from statistics import quantiles

import pymysql

from compose.databases import Database
from demo.schema import DATABASE
from schemas.errors import LogError
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.rules.config import LogAddress

_EVERY = 0.1  # seconds between two probes
_POLL = 0.01  # seconds: the precision of the measurement
_LOOK_EVERY = 1.0  # seconds between two reads of the last epoch
_NOT_YET = frozenset({1049, 1146})  # unknown database, no such table


class Probes:
    """Watches the downstream from ``start_watching`` on; sends probes between ``start_`` and ``stop_sending``.

    Attributes:
        ready: whether the downstream has the probes' table, which means that replication works.
    """

    def __init__(self, upstream: Database, downstream: Database) -> None:
        self._upstream, self._downstream = upstream, downstream
        self._sent: dict[int, float] = {}
        self._lags: list[float] = []
        self._seen = 0
        self.ready = False
        self._no_more, self._closed = threading.Event(), threading.Event()
        self._pool = ThreadPoolExecutor(2)
        self._running: list[Future[None]] = []

    def start_watching(self) -> None:
        self._running.append(self._pool.submit(self._watch))

    def start_sending(self) -> None:
        self._running.append(self._pool.submit(self._send))

    def stop_sending(self) -> int:
        """Send a last probe after all other writes; returns its number."""
        self._no_more.set()
        self._running[-1].result()
        with self._upstream.connect(database=DATABASE) as connection, connection.cursor() as cursor:
            return self._one(cursor)

    def close(self) -> None:
        self._no_more.set()
        self._closed.set()
        self._pool.shutdown()

    def check(self) -> None:
        """Raise the error that ended a thread early, if any."""
        for thread in self._running:
            if thread.done():
                thread.result()

    @property
    def seen(self) -> int:
        """The last probe seen downstream, 0 before the first."""
        return self._seen

    @property
    def behind(self) -> float:
        """Seconds since the oldest probe was sent that has not arrived yet."""
        sent = self._sent.get(self._seen + 1)
        return 0.0 if sent is None else time.monotonic() - sent

    def percentile(self, percent: int) -> float:
        """Seconds, of the probes seen so far."""
        lags = list(self._lags)
        if len(lags) < 2:
            return lags[0] if lags else 0.0
        return quantiles(lags, n=100, method="inclusive")[percent - 1]

    def _send(self) -> None:
        with self._upstream.connect(database=DATABASE) as connection, connection.cursor() as cursor:
            while not self._no_more.wait(_EVERY):
                self._one(cursor)

    def _one(self, cursor: pymysql.cursors.Cursor) -> int:
        number = len(self._sent) + 1
        cursor.execute("INSERT INTO probes VALUES (%s, %s)", (number, time.time()))
        self._sent[number] = time.monotonic()  # it is committed now, so the lag starts here
        return number

    def _watch(self) -> None:
        with self._downstream.connect() as connection, connection.cursor() as cursor:
            while not self._closed.wait(_POLL):
                try:
                    cursor.execute(f"SELECT MAX(id) FROM {DATABASE}.probes")
                    last = int((cursor.fetchone() or (0,))[0] or 0)
                except pymysql.MySQLError as error:
                    if error.args[0] not in _NOT_YET:
                        raise
                    continue
                now = time.monotonic()
                self.ready = True
                while self._seen < last and self._seen + 1 in self._sent:
                    self._seen += 1
                    self._lags.append(max(0.0, now - self._sent[self._seen]))


class Published:
    """Reads the log's last epoch periodically, in its own thread."""

    def __init__(self, bootstrap_servers: str, prefix: str) -> None:
        self._reader = LogReader(LogAddress(bootstrap_servers, prefix))
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self.epoch = -1

    def start(self) -> None:
        self._pool.submit(self._watch)

    def close(self) -> None:
        self._stop.set()
        self._pool.shutdown()

    def _watch(self) -> None:
        while not self._stop.wait(0.2 if self.epoch < 0 else _LOOK_EVERY):
            try:
                last = self._reader.last_epoch()
            except LogError:
                continue  # the topics are not there yet; if Kafka fails, the programs say so
            self.epoch = last.record.epoch if last else -1
