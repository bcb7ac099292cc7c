"""A standalone Spark cluster on 127.0.0.1, a master and workers, from PySpark's own jars."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from compose.processes import ProcessId, free_port, spawn, wait_until
from schemas.errors import StackError
from tailrace.artifacts.maven import pyspark_jars

_START_S = 60.0
_STOP_S = 10.0
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
# Their pages cannot be turned off, and their port is chosen by the system.
_COMMON = ["--host", "127.0.0.1", "--webui-port", "0"]


class SparkCluster:
    """A master and its workers, each of which gives an application one executor.

    Args:
        secret: of its ports, ``spark.authenticate.secret``.
        cores: of each worker.
        memory: of each worker.
        environment: variables of the executors, such as passwords.
    """

    def __init__(
        self,
        directory: Path,
        secret: str,
        workers: int = 2,
        cores: int = 2,
        memory: str = "1g",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.directory, self.workers = directory, workers
        self._secret, self._size = secret, ["--cores", str(cores), "--memory", memory]
        self._environment = {
            **os.environ,
            **(environment or {}),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        self._port = free_port()
        self._processes: list[ProcessId] = []

    @property
    def master(self) -> str:
        """The value of ``spark.master``."""
        return f"spark://127.0.0.1:{self._port}"

    def work(self, worker: int) -> Path:
        """Return a worker's folder of its executors' output."""
        return self.directory / f"worker{worker}"

    def start(self) -> None:
        """Start the master and all workers, and wait until they are registered. Raises StackError."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        settings = {
            "authenticate": "true",
            "authenticate.secret": self._secret,
            "network.crypto.enabled": "true",
        }
        properties = self.directory / "spark.properties"
        properties.touch(0o600)
        properties.write_text("".join(f"spark.{name}={value}\n" for name, value in settings.items()))
        self._spawn("master", _MASTER, "--port", str(self._port))
        self._await("master", "I have been elected leader", 1)
        for number in range(self.workers):
            self._spawn(
                f"worker{number}", _WORKER, self.master, "--work-dir", str(self.work(number)), *self._size
            )
        self._await("master", "Registering worker", self.workers)

    def kill_worker(self, number: int) -> None:
        """Kill a worker; its executors end with it."""
        self._processes[1 + number].kill()

    def stop(self) -> None:
        """End all processes."""
        for process in reversed(self._processes):
            process.stop(_STOP_S)

    def _spawn(self, name: str, *command: str) -> None:
        program = str(pyspark_jars().with_name("bin") / "spark-class")
        common = [*_COMMON, "--properties-file", str(self.directory / "spark.properties")]
        log = self.directory / f"{name}.log"
        self._processes.append(spawn([program, *command, *common], log, self.directory, self._environment))

    def _await(self, name: str, told: str, times: int) -> None:
        log = self.directory / f"{name}.log"
        if not wait_until(lambda: log.read_text(errors="replace").count(told) >= times, _START_S):
            self.stop()
            raise StackError("TR700 not-healthy", "the Spark cluster did not start", hint=f"see {log}")
