"""The result, as a table for the screen and as a JSON file for comparisons."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from bench.drain import Drained
from bench.lag import SteadyLag
from bench.meter import Usage


class Turn(NamedTuple):
    """Rows per second of the publisher, and of mysql-replication directly after it."""

    publish: float
    decode: float


@dataclass(frozen=True)
class BacklogResult:
    """A whole drain of one backlog, and the seconds of a MySQL replica for the same.

    Attributes:
        equal: whether the downstream had the upstream's rows after the drain.
        debezium: Debezium's seconds for the same, if it was measured.
    """

    drained: Drained
    replica: float
    replica_usage: Usage
    equal: bool
    debezium: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return an entry of ``backlogs``; CPU is that of both processes, memory that of the consumer."""
        produce, consume = (self.drained.usage[f"drain.{name}"] for name in ("produce", "consume"))
        return {
            "rows": self.drained.rows,
            "drain_rows_per_s": round(self.drained.rows / self.drained.seconds, 1),
            "replica_rows_per_s": round(self.drained.rows / self.replica, 1),
            "ratio": round(self.replica / self.drained.seconds, 2),
            "start_s": round(self.drained.start_s, 2),
            "cpu_seconds": round(produce.cpu_seconds + consume.cpu_seconds, 1),
            "peak_rss_mb": consume.peak_rss_mb,
            "equal": self.equal,
            **({"debezium_rows_per_s": round(self.drained.rows / self.debezium, 1)} if self.debezium else {}),
        }


@dataclass
class Result:
    """The measurements of one run of the benchmark: seconds and usage of each process, by name.

    Measurements in turns have the mean of their seconds, and the usage of the last turn.
    """

    rows: int = 0
    turns: list[Turn] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    usage: dict[str, Usage] = field(default_factory=dict)
    publisher_peak_mb: dict[str, float] = field(default_factory=dict)
    where: dict[str, float] = field(default_factory=dict)
    equal: bool = False
    hot: BacklogResult | None = None
    lag: SteadyLag | None = None

    def rate(self, name: str) -> float:
        """Return rows per second."""
        seconds = self.seconds.get(name, 0.0)
        return round(self.rows / seconds, 1) if seconds else 0.0

    def ratio(self, part: str, peer: str) -> float:
        """Return the ratio of the speeds of two measurements."""
        rate = self.rate(peer)
        return round(self.rate(part) / rate, 2) if rate else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the contents of ``latest.json``."""
        return {
            "rows": self.rows,
            "mirror_rows_per_s": self.rate("mirror"),
            "publish_rows_per_s": self.rate("publish"),
            "consume_rows_per_s": self.rate("consume"),
            "drain_rows_per_s": self.rate("drain"),
            "peers": {
                "mysql_replication_decode_rows_per_s": self.rate("decode"),
                "mysql_replica_drain_rows_per_s": self.rate("replica"),
            },
            "ratios": {
                "publish_vs_mysql_replication": self.ratio("publish", "decode"),
                "drain_vs_mysql_replica": self.ratio("drain", "replica"),
            },
            "turns": [turn._asdict() for turn in self.turns],
            "cpu_seconds": {name: usage.cpu_seconds for name, usage in self.usage.items()},
            "peak_rss_mb": {name: usage.peak_rss_mb for name, usage in self.usage.items()},
            "publisher_peak_rss_mb": self.publisher_peak_mb,
            "publisher_time_percent": self.where,
            "equal": self.equal,
            "backlogs": {"hot": self.hot.as_dict()} if self.hot else {},
            "lag": self.lag and self.lag._asdict(),
        }


def write_merged(path: Path, found: dict[str, Any]) -> None:
    """Write figures into a JSON file. What the file has besides them stays, other backlogs too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before = json.loads(path.read_text()) if path.exists() else {}
    backlogs = {**before.get("backlogs", {}), **found["backlogs"]}
    path.write_text(json.dumps({**before, **found, "backlogs": backlogs}, indent=2) + "\n")


def print_backlogs(backlogs: dict[str, dict[str, Any]], console: Console) -> None:
    """Print entries of ``backlogs``."""
    table = Table(title="whole drains, beside a MySQL replica with default settings", title_justify="left")
    for heading in ("", "rows", "rows/s", "replica's", "ratio", "start s", "CPU s", "peak MB", ""):
        table.add_column(heading, justify="right" if heading else "left")
    for name, entry in backlogs.items():
        table.add_row(
            name,
            f"{entry['rows']:,}",
            f"{entry['drain_rows_per_s']:,.0f}",
            f"{entry['replica_rows_per_s']:,.0f}",
            f"{entry['ratio']:.2f}",
            f"{entry['start_s']:.1f}",
            f"{entry['cpu_seconds']:.1f}",
            f"{entry['peak_rss_mb']:,.0f}",
            "equal" if entry["equal"] else "[red]DIFFERS[/]",
        )
    console.print(table)
    for name, entry in backlogs.items():
        if "debezium_rows_per_s" in entry:
            console.print(f"{name}: Debezium {entry['debezium_rows_per_s']:,.0f} rows/s")


_LINES = (
    ("mirror", "mirror alone", ("mirror",)),
    ("publish", "publisher alone", ("publish",)),
    ("consume", "consumer alone, query running", ("consume",)),
    ("consume_whole", "consumer alone, with the start of Spark", ()),
    ("drain", "whole drain, both processes from their start", ("drain.produce", "drain.consume")),
    ("decode", "peer: mysql-replication, decoding only", ("mysql_replication",)),
    ("replica", "peer: MySQL replica, default settings", ("mysql_replica",)),
)


def print_table(result: Result, console: Console) -> None:
    """Print the figures, Tailrace's first."""
    table = Table(title=f"{result.rows:,} row events", title_justify="left")
    for heading in ("", "rows/s", "seconds", "CPU s", "peak MB"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, text, processes in _LINES:
        used = [result.usage[p] for p in processes if p in result.usage]
        table.add_row(
            text,
            f"{result.rate(name):,.0f}",
            f"{result.seconds.get(name, 0):.1f}",
            " + ".join(f"{u.cpu_seconds:.1f}" for u in used),
            " + ".join(f"{u.peak_rss_mb:,.0f}" for u in used),
        )
    console.print(table)
    beside = [f"{name.split('.')[1]} {result.usage[name].cpu_seconds:.1f} CPU s"
              for name in ("drain.kafka", "drain.downstream") if name in result.usage]  # fmt: skip
    console.print(f"beside the drain: {', '.join(beside)}")
    stages = ", ".join(f"{stage} {share:.0f} %" for stage, share in result.where.items())
    console.print(f"the publisher's time: {stages}")
    peak = result.publisher_peak_mb
    console.print(
        f"the publisher's memory: {peak['tenth']:,.0f} MB after a tenth, {peak['whole']:,.0f} MB after all"
    )
    turns = ", ".join(f"{turn.publish:,.0f} to {turn.decode:,.0f}" for turn in result.turns)
    console.print(f"publisher and mysql-replication in turns, rows/s: {turns}")
    console.print(
        f"publisher {result.ratio('publish', 'decode')} times mysql-replication's decoding, "
        f"drain {result.ratio('drain', 'replica')} times the replica"
    )
    if result.lag is not None:
        lag = result.lag
        console.print(
            f"a row arrives after {lag.p50_s} s (median), {lag.p99_s} s (99 %) at {lag.rows_per_s:,.0f} rows/s"
        )
    console.print(
        "downstream equals upstream" if result.equal else "[red]downstream DIFFERS from upstream[/]"
    )
