"""The demo from start to end. Nothing is left running, even after an error."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from compose.databases import Database
from compose.processes import Program
from compose.stack import Stack, StackInfo
from demo import schema
from demo.display import Display
from demo.probes import Probes, Published
from demo.summary import Summary, applied
from demo.workload import Workload
from schemas.access.server_url import ServerUrl
from schemas.errors import ExitCode, StackError
from tailrace.validate import Report, compare_servers

#: the configuration file, which works for every command too
FILE = "tailrace.toml"
_WORKLOAD = 30.0  # seconds
_KILL_PRODUCER = 8.0  # seconds into the workload
_KILL_CONSUMER = 15.0
_AFTER_KILL = 5.0  # seconds of workload at least after the last kill
_PATIENCE = 120.0  # seconds to wait for a condition
_STOP = 60.0  # seconds to wait for a program's end
_TICK = 0.1


class Demo:
    """One run in one directory."""

    def __init__(self, directory: Path, display: Display, keep: bool) -> None:
        self._directory, self._display, self._keep = directory, display, keep
        self._stack = Stack(directory)

    def run(self) -> tuple[Summary, ExitCode]:
        """Run the demo. Raises TailraceError or StackError."""
        with ExitStack() as cleanup:
            self._clear()
            cleanup.callback(self._stop_stack)
            upstream, downstream = self._start_servers()
            config = _write_config(self._directory, self._stack.info())
            programs = [_program("produce", config), _program("consume", config)]
            for program in programs:
                cleanup.callback(program.kill_all)
            probes = Probes(upstream, downstream)
            cleanup.callback(probes.close)
            published = Published(self._stack.kafka.bootstrap, "demo")
            cleanup.callback(published.close)
            workload = Workload(upstream, _WORKLOAD)
            cleanup.callback(workload.stop)
            scene = _Scene(self._display, workload, probes, published, downstream, *programs)
            scene.play()
            result = self._compare()
            summary = self._summary(downstream, scene, result)
            summary.write(self._directory / "summary.json")
        return summary, ExitCode.OK if summary.equal else ExitCode.DIVERGED

    def _clear(self) -> None:
        """Remove an earlier run, which --keep or a SIGKILL may have left running."""
        if self._directory.exists():
            self._stack.down()
            shutil.rmtree(self._directory)
        self._directory.mkdir(parents=True)

    def _start_servers(self) -> tuple[Database, Database]:
        self._display.milestone("starting Kafka and two MariaDB servers")
        self._stack.up()
        upstream, downstream = self._stack.upstream, self._stack.downstream
        schema.create(upstream)
        self._display.milestone(f"created {len(schema.TABLES)} tables upstream, with some rows")
        return upstream, downstream

    def _stop_stack(self) -> None:
        if not self._keep:
            self._stack.down()

    def _compare(self) -> Report:
        self._display.milestone("comparing both servers, row by row and SHOW CREATE TABLE")
        info = self._stack.info()
        source, target = ServerUrl.parse(info.upstream), ServerUrl.parse(info.downstream)
        result = compare_servers(source, target, exclude=["tailrace.*"])
        for line in result.not_equal:
            self._display.milestone(line, "red")
        return result

    def _summary(self, downstream: Database, scene: _Scene, result: Report) -> Summary:
        sums = applied(downstream)
        return Summary(
            events=sums.events,
            rows_per_s=round(sums.events / scene.seconds),
            epochs=sums.epochs,
            statements=sums.statements,
            lag_p50_s=round(scene.probes.percentile(50), 3),
            lag_p99_s=round(scene.probes.percentile(99), 3),
            kills=scene.kills,
            tables=len(result.tables),
            equal=result.is_equal and bool(result.tables),
        )


def _write_config(directory: Path, info: StackInfo) -> Path:
    """Write the configuration for a running stack; its passwords belong to the stack and are public."""
    sections: dict[str, dict[str, object]] = {
        "source": {"url": info.upstream, "server-id": 7001},
        "relay": {"dir": "relay"},
        "kafka": {"bootstrap-servers": info.kafka, "prefix": "demo", "partitions": 2},
        "target": {"url": info.downstream},
        "consumer": {"checkpoint-dir": "checkpoint"},
    }
    lines = []
    for name, fields in sections.items():
        lines.append(f"[{name}]")
        lines += [f"{field} = {json.dumps(value)}" for field, value in fields.items()]
        lines.append("")
    path = directory / FILE
    path.write_text("\n".join(lines))
    return path


def _program(name: str, config: Path) -> Program:
    arguments = ["tailrace", name, "--config", str(config)]
    return Program(name, arguments, config.parent, ended="TR710", late="TR710", failed="TR711")


class _Scene:
    """The part of the demo between the servers' start and the comparison."""

    def __init__(
        self,
        display: Display,
        workload: Workload,
        probes: Probes,
        published: Published,
        downstream: Database,
        produce: Program,
        consume: Program,
    ) -> None:
        self._display, self._workload, self.probes = display, workload, probes
        self._published, self._downstream = published, downstream
        self._produce, self._consume = produce, consume
        self._begin = self.seconds = 0.0

    @property
    def kills(self) -> int:
        return self._produce.kills + self._consume.kills

    def play(self) -> None:
        with self._display.live(self._rows):
            self._start()
            self._run_and_kill()
            self._catch_up()
            self._end()

    def _start(self) -> None:
        self._display.milestone("starting tailrace produce, which copies these tables first")
        self._produce.start()
        self._published.start()
        # The producer creates the topics, so the consumer starts after it.
        self._until(lambda: self._published.epoch >= 0, "the producer's first epoch")
        self._display.milestone("starting tailrace consume")
        self._consume.start()
        # Wait for Spark's start, so that the workload and the kills happen while replication works.
        self.probes.start_watching()
        self._until(lambda: self.probes.ready, "the first tables downstream")
        self._display.milestone("replicating; the workload begins: DML and DDL from 5 threads")
        self._begin = time.monotonic()
        self._workload.start()
        self.probes.start_sending()

    def _run_and_kill(self) -> None:
        self._until(lambda: self._elapsed() > _KILL_PRODUCER, "the workload")
        self._kill(self._produce)
        self._until(
            lambda: self._elapsed() > _KILL_CONSUMER and self.probes.seen > 0, "the first probe downstream"
        )
        self._kill(self._consume)
        rest = max(_WORKLOAD, self._elapsed() + _AFTER_KILL)
        self._until(lambda: self._elapsed() > rest, "the workload")

    def _kill(self, program: Program) -> None:
        pid = program.pid
        program.kill()
        program.start()
        self._display.milestone(f"kill -9 {pid} (tailrace {program.name}), and started it again", "yellow")

    def _catch_up(self) -> None:
        self._workload.stop()
        self._workload.check()
        last = self.probes.stop_sending()
        done = self._workload.done
        self._display.milestone(
            f"workload done: {done.transactions:,} transactions, {done.ddl} DDL statements; catching up"
        )
        self._until(lambda: self.probes.seen >= last, "the last transaction downstream")
        self.seconds = self._elapsed()
        self._display.milestone("caught up")

    def _end(self) -> None:
        for program in (self._produce, self._consume):
            program.stop(_STOP)
        self._display.milestone("stopped both with SIGTERM")

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for ``condition``; an error of any part is raised here, on the main thread."""
        deadline = time.monotonic() + _PATIENCE
        while not condition():
            self._produce.check()
            self._consume.check()
            self._workload.check()
            self.probes.check()
            if time.monotonic() > deadline:
                logs = f"see {self._produce.log} and {self._consume.log}"
                raise StackError("TR712", f"waited {_PATIENCE:.0f} s without success for {what}", hint=logs)
            time.sleep(_TICK)

    def _elapsed(self) -> float:
        return time.monotonic() - self._begin

    def _rows(self) -> list[tuple[str, str]]:
        done = self._workload.done
        return [
            ("upstream", f"{done.transactions:,} transactions, {done.ddl} DDL statements"),
            ("produce", f"{_state(self._produce)}; epoch {max(self._published.epoch, 0):,} in Kafka"),
            ("consume", f"{_state(self._consume)}; {_seen(self.probes)}"),
            ("lag", f"now {self.probes.behind:5.2f} s, p50 {self.probes.percentile(50):.2f} s"),
        ]


def _state(program: Program) -> str:
    killed = f", killed {program.kills}×" if program.kills else ""
    return f"pid {program.pid}{killed}" if program.pid else "not running"


def _seen(probes: Probes) -> str:
    return f"probe {probes.seen:,} seen downstream" if probes.ready else "starting Spark"


@contextmanager
def only_one(directory: Path) -> Iterator[None]:
    """Lock the directory, since two demos in it would stop each other's servers."""
    import fcntl

    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".demo.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StackError("TR713", "another demo is running here", hint="wait for its end") from None
        yield
