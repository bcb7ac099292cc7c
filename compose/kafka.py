"""One Kafka broker, its own KRaft controller, on 127.0.0.1."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import uuid
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from compose import artifacts
from compose.processes import spawn, wait_until
from compose.servers import Server
from schemas.errors import StackError
from tailrace.artifacts import cache
from tailrace.artifacts.maven import java

_LOGGING = Path(__file__).with_name("kafka-log4j2.xml")
# A broker that runs for minutes spends more CPU on optimizing code than it saves.
_JVM = ["-Xms256m", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
broker.heartbeat.interval.ms=1000
metadata.max.idle.interval.ms=0
broker.session.timeout.ms=4000
group.initial.rebalance.delay.ms=0
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""


class Kafka(Server):
    """A broker; its ``args`` are settings of ``server.properties``, as ``name=value``."""

    name = "kafka"

    @property
    def bootstrap(self) -> str:
        """``127.0.0.1:port``, for ``bootstrap.servers``."""
        return f"127.0.0.1:{self.port}"

    def healthy(self) -> bool:
        try:
            # Not logged, since the broker refuses connections while it starts.
            admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
            return bool(admin.list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def _before_start(self) -> None:
        self._write_settings(self.directory, self.data)

    def _write_settings(self, directory: Path, data: Path) -> None:
        controller = self._kept_port("controller-port")
        settings = _SETTINGS.format(port=self.port, controller=controller, data=data)
        (directory / "server.properties").write_text(settings + "".join(f"{arg}\n" for arg in self.args))

    def _command(self) -> list[str]:
        archive = f"-XX:SharedArchiveFile={self._template().parent / 'classes.jsa'}"
        return _broker(["-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off", archive], self.directory)

    def _template(self) -> Path:
        jars = artifacts.kafka_jars()
        name = f"{jars[0].parent.name}-data-{_java_digest()}"
        return cache.bundle(name, _build_template) / "data"

    def _copy_template(self) -> None:
        super()._copy_template()
        properties = self.data / "meta.properties"
        properties.write_text(
            re.sub(r"(?m)^cluster\.id=.*$", f"cluster.id={_cluster_id()}", properties.read_text())
        )


def _build_template(folder: Path) -> None:
    """Format a data folder, then run a broker once on a copy to dump the classes it loads.

    The dump (Java's class data sharing) makes every later start a second or two faster.
    """
    cache.print_progress("preparing an empty Kafka")
    trainee = _Trainee(folder)
    trainee._write_settings(folder, folder / "data")
    format_it = [
        *_class_path(),
        "kafka.tools.StorageTool",
        "format",
        "--config",
        f"{folder}/server.properties",
    ]
    done = subprocess.run(
        [java(), *format_it, f"--cluster-id={_cluster_id()}"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise StackError(
            "TR700 template-failed", f"Kafka's storage was not formatted:\n{done.stdout}{done.stderr}"
        )
    trainee.train()


class _Trainee(Kafka):
    """A broker that runs once, to dump its classes."""

    def train(self) -> None:
        subprocess.run(["cp", "-a", self.data, self.directory / "trained"], check=True)
        self._write_settings(self.directory, self.directory / "trained")
        dump = f"-XX:ArchiveClassesAtExit={self.directory / 'classes.jsa'}"
        process = spawn(_broker([dump], self.directory), self.log, self.directory)
        wait_until(lambda: self.healthy() or not process.alive(), self.start_timeout)
        process.stop(self.start_timeout)
        for left_over in ("trained", "port", "controller-port", "server.properties", "server.log"):
            subprocess.run(["rm", "-rf", self.directory / left_over], check=True)


def _cluster_id() -> str:
    """A random one, as Kafka writes them; one of 64 begins with ``-``, as an option does."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _class_path() -> list[str]:
    return ["-cp", ":".join(str(jar) for jar in artifacts.kafka_jars())]


def _broker(options: list[str], directory: Path) -> list[str]:
    logging = [f"-Dlog4j2.configurationFile={_LOGGING}", "-Dlog4j2.disableJmx=true"]
    jvm = [java(), *_JVM, *options, "-XX:+ExitOnOutOfMemoryError", *logging]
    return [*jvm, *_class_path(), "kafka.Kafka", str(directory / "server.properties")]


def _java_digest() -> str:
    # The class dump can only be used by the Java that wrote it.
    program = Path(java()).resolve()
    return hashlib.sha256(f"{program}{program.stat().st_mtime_ns}".encode()).hexdigest()[:8]
