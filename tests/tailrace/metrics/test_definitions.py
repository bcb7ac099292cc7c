"""docs/METRICS.md describes each metric, and Prometheus' own linter accepts them."""

from __future__ import annotations

import re
import subprocess

from tailrace.metrics.definitions import ALL, CONSUMER, EVERY_PROCESS, PRODUCER, VALIDATOR
from tailrace.metrics.exposition import Sample, render
from tests.support.paths import CHECKOUT

PAGE = (CHECKOUT / "docs/METRICS.md").read_text()
PROMTOOL = CHECKOUT / ".cache/promtool"


def _row(name: str, kind: str, labels: tuple[str, ...], meaning: str) -> str:
    return f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {meaning} |".replace(
        "|  |", "| |"
    )


def test_the_page_has_each_metric_where_it_belongs() -> None:
    groups = re.split(
        r"^### ", PAGE.partition("## The metrics")[2].partition("\n## ")[0], flags=re.MULTILINE
    )[1:]
    for group, text in zip((EVERY_PROCESS, PRODUCER, CONSUMER, VALIDATOR), groups, strict=True):
        rows = re.findall(r"^\| `.*\|$", text, re.MULTILINE)
        assert rows == [_row(one.name, one.kind, one.labels, one.help) for one in group]


def test_prometheus_accepts_names_and_types() -> None:
    samples = [Sample(one.name, 1.5, ("x",) * len(one.labels), count=2) for one in ALL.values()]
    text = render([*samples, Sample("tailrace_ready", None)])
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    for one in ALL.values():
        assert f"# TYPE {one.name} {one.kind}\n" in text.decode()
    assert b'tailrace_channel_batch_seconds_sum{channel="x",stage="x"} 1.5' in text


def test_a_label_cannot_break_out() -> None:
    text = render([Sample("tailrace_memory_bytes", 1, ('a"} 1\nevil 2',))]).decode()
    assert text.splitlines()[-1] == r'tailrace_memory_bytes{program="a\"} 1\nevil 2"} 1.0'
