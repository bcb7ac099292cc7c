"""The consumer alone on a standalone Spark cluster: one executor with two cores, then two of them."""

from __future__ import annotations

import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import drain
from bench.backlog import Backlog
from bench.processes import measured
from compose.kafka import Kafka
from compose.spark_cluster import SparkCluster
from schemas.access.secrets import TARGET_PASSWORD
from schemas.access.server_url import ServerUrl
from tailrace.validate import compare_servers

_CORES = 2
_PREFIX = "cluster"


@dataclass(frozen=True)
class ClusterResult:
    """The consumer's row events per second, from the query's start to the last batch.

    Attributes:
        cores: of this machine, on which everything runs.
    """

    rows: int
    one_rows_per_s: float
    two_rows_per_s: float
    equal: bool
    cores: int

    def as_dict(self) -> dict[str, Any]:
        """Return the entry ``cluster``."""
        return {**asdict(self), "ratio": round(self.two_rows_per_s / self.one_rows_per_s, 2)}


def measure_cluster(
    directory: Path, backlog: Backlog, kafka: Kafka, rows: int, talk: Console
) -> ClusterResult:
    """Publish the backlog once; apply it with one and with two executors, each time to a new downstream.

    Args:
        rows: the row events that the backlog has.
    """
    rates: list[float] = []
    equal = True
    for executors in (1, 2):
        talk.print(f"{executors} executors of {_CORES} cores")
        target = backlog.copy(directory / f"executors{executors}", server_id=10 + executors)
        config = drain.write_config(target.directory, backlog, kafka, target, _PREFIX)
        if not rates:
            arguments = ["tailrace", "produce", "--config", str(config), "--until-caught-up"]
            with measured("produce", arguments, config.parent) as program:
                program.usage_at_end()
        secret = secrets.token_hex(16)
        cluster = SparkCluster(
            directory / f"cluster{executors}",
            secret,
            executors,
            _CORES,
            environment={TARGET_PASSWORD: "tailrace"},
        )
        try:
            cluster.start()
            with config.open("a") as file:
                file.write(
                    f'[consumer]\ndirect = false\n"spark.master" = "{cluster.master}"\n'
                    f'"spark.authenticate.secret" = "{secret}"\n'
                )
            seconds, _, _ = drain.consume_alone(config)
        finally:
            cluster.stop()
        rates.append(round(rows / seconds, 1))
        compared = compare_servers(ServerUrl.parse(backlog.upstream.url()), ServerUrl.parse(target.url()))
        equal = equal and compared.is_equal
        target.stop()
    one, two = rates
    return ClusterResult(rows, one, two, equal, len(os.sched_getaffinity(0)))
