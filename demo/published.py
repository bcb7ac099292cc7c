"""How far the publisher is, as the epoch log itself says."""

from __future__ import annotations

import threading

from schemas.errors import LogError
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.rules.config import LogAddress

_EVERY = 1.0  # seconds


class Published:
    """Looks up the log's last epoch now and then, on a thread of its own."""

    def __init__(self, bootstrap_servers: str, prefix: str) -> None:
        self._reader = LogReader(LogAddress(bootstrap_servers, prefix))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.epoch = -1

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.2 if self.epoch < 0 else _EVERY):
            try:
                last = self._reader.last_epoch()
            except LogError:
                continue  # the topics are not there yet; if Kafka fails, the programs say so
            self.epoch = last.record.epoch if last else -1
