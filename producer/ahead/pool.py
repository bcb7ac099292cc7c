"""Processes that decode blocks for the publisher, each served by a thread.

A process has nothing that would be missed. If one fails, the publisher decodes its block by itself.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue

import structlog

from producer.ahead.worker import FINGERPRINTS, IDS, receive, send
from producer.decode.decoded_groups import BlockToDecode, DecodedBlock, DecodedGroups
from producer.decode.open_group import EventFile
from producer.decode.rows_events import KnownTables
from relay_store.read.reader import RelayBlock
from schemas.gtid.sets import Flavor

log = structlog.get_logger()

_MOST_WORKERS = 4
_MOST_FAILURES = 5  # of all processes of a pool
_PATIENCE, _IDLE = 30.0, 30.0  # seconds for a block; and without one, behind which the processes end
_PIPE = 1 << 20  # bytes; as much as Linux gives to anybody
_QUOTA = Path("/sys/fs/cgroup/cpu.max")
# Nothing else of the environment, which may hold passwords.
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "PYTHONHOME", "LANG", "LC_ALL", "TZ")


def worker_count() -> int:
    """How many processes are worth it on the processors that this one may use; none beside fewer than three.

    The publisher, Kafka's client and the mirror need one.
    """
    processors = len(os.sched_getaffinity(0))
    with suppress(OSError, ValueError):
        quota, period = _QUOTA.read_text().split()
        if quota != "max":
            processors = min(processors, int(quota) // int(period))
    return min(processors - 1, _MOST_WORKERS) if processors > 2 else 0


class BlockJob:
    """A block that a process decodes, or that waits for one."""

    def __init__(self, block: RelayBlock, format_description: bytes) -> None:
        self.block, self.format_description = block, format_description
        self.result: Future[DecodedBlock] = Future()


class DecodePool:
    """Processes that decode blocks. They start when they are first wanted, and end when they are idle.

    Args:
        size: how many.
        by_fingerprint: whether fingerprints name schemas on the wire, and not ids that a registry gave.
        known: returns the tables that are known now.
    """

    def __init__(
        self, size: int, flavor: Flavor, *, by_fingerprint: bool, known: Callable[[], KnownTables]
    ) -> None:
        self.size, self.known = size, known
        self.arguments = (flavor, FINGERPRINTS if by_fingerprint else IDS)
        self._workers: list[_Worker] = []
        self._jobs: SimpleQueue[BlockJob | None] = SimpleQueue()
        self._failures, self._used = 0, 0.0

    @property
    def is_ready(self) -> bool:
        """Whether a process can decode. The first question starts them all, and does not wait for them."""
        self._used = time.monotonic()
        if not self._workers and self._failures <= _MOST_FAILURES:
            log.info("decode_workers_start", workers=self.size)
            self._workers = [_Worker(self, self._jobs) for _ in range(self.size)]
        return any(worker.is_ready for worker in self._workers)

    def submit(self, block: RelayBlock, format_description: bytes) -> BlockJob:
        """Let a process decode a block of the file with this FORMAT_DESCRIPTION."""
        self._used = time.monotonic()
        job = BlockJob(block, format_description)
        self._jobs.put(job)
        return job

    def result(self, job: BlockJob) -> DecodedBlock | None:
        """What was decoded; None if that failed."""
        try:
            return job.result.result(_PATIENCE)
        except TimeoutError:
            for worker in self._workers:
                worker.fail()
            return None
        except BlockNotDecoded:
            return None

    def may_start_again(self, reason: Exception) -> bool:
        """A process failed. Whether another one may take its place."""
        self._failures += 1
        again = self._failures <= _MOST_FAILURES
        log.warning(
            "decode_worker_failed",
            reason=f"{type(reason).__name__}: {reason}",
            hint="the publisher decodes the block by itself; "
            + ("a new process starts" if again else "none starts"),
        )
        return again

    def rest(self) -> None:
        """End the processes if they were idle for a while; nothing is submitted just now."""
        if self._workers and time.monotonic() - self._used > _IDLE:
            log.info("decode_workers_end", reason="idle")
            self.close()

    def close(self) -> None:
        """End the processes. What was submitted is not decoded any more."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.end()
        for _ in workers:
            self._jobs.put(None)
        for worker in workers:
            worker.join()
        self._jobs, self._failures = SimpleQueue(), 0


class BlockNotDecoded(Exception):
    """The process failed, or there is none."""


class _Worker(threading.Thread):
    """Serves one process.

    Attributes:
        is_ready: whether the process can decode.
    """

    def __init__(self, pool: DecodePool, jobs: SimpleQueue[BlockJob | None]) -> None:
        super().__init__(name="decode", daemon=True)
        self._pool, self._jobs = pool, jobs
        self._process: subprocess.Popen[bytes] | None = None
        self._known: KnownTables | None = None
        self._told = self._known_id = 0
        self._is_ending = False
        self.is_ready = False
        self.start()

    def run(self) -> None:
        self._start_process()
        while (job := self._jobs.get()) is not None:
            if self._process is None:
                job.result.set_exception(BlockNotDecoded())
                continue
            try:
                job.result.set_result(self._decode(job, self._process))
            except Exception as error:
                job.result.set_exception(BlockNotDecoded())
                self._process_failed(error)
        self._end_process()

    def fail(self) -> None:
        """Kill the process; its block fails."""
        if self._process is not None:
            self._process.kill()

    def end(self) -> None:
        """Kill the process, for good."""
        self._is_ending = True
        self.fail()

    def _start_process(self) -> None:
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
        self._known = None
        try:
            # A process group of its own: what a terminal sends to the publisher's group is for the publisher.
            self._process = process = subprocess.Popen(
                [sys.executable, "-P", "-m", "producer.ahead.worker", *self._pool.arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                process_group=0,
            )
            if self._is_ending:
                self.fail()
            assert process.stdin is not None
            assert process.stdout is not None
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):
                    fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, _PIPE)
            receive(process.stdout)
            self.is_ready = True
        except (OSError, EOFError) as error:
            self._process_failed(error)

    def _process_failed(self, error: Exception) -> None:
        self._end_process()
        if not self._is_ending and self._pool.may_start_again(error):
            self._start_process()

    def _end_process(self) -> None:
        self.is_ready = False
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(OSError):
                process.communicate()

    def _decode(self, job: BlockJob, process: subprocess.Popen[bytes]) -> DecodedBlock:
        assert process.stdin is not None
        assert process.stdout is not None
        known = self._pool.known()
        send(process.stdin, self._message(job, known).encode())
        groups = DecodedGroups.decoded(receive(process.stdout))
        block = job.block
        return DecodedBlock(groups, known, EventFile.of(block.subdir, block.file, job.format_description))

    def _message(self, job: BlockJob, known: KnownTables) -> BlockToDecode:
        """The job for the process, with the tables that it does not know yet."""
        if known is not self._known:
            self._known, self._told, self._known_id = known, 0, self._known_id + 1
        before, news = self._told, known.tables[self._told :]
        self._told += len(news)
        tables: list[tuple[bytes, str, bytes] | tuple[bytes, None, None]] = [
            (body, None, None)
            if table is None
            else (body, table.decoder.structure.to_json(), table.decoder.fingerprint)
            for body, table in news
        ]
        block = job.block
        return BlockToDecode(
            self._known_id,
            before,
            tables,
            block.subdir,
            block.file,
            block.pos,
            job.format_description,
            block.data,
        )
