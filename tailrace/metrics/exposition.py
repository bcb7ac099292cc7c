"""Writes values in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.metrics.definitions import ALL

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as Family


@dataclass(frozen=True)
class Sample:
    """The value of one metric.

    Attributes:
        value: None if it is unknown; the sample is then left out.
        labels: the values of the metric's labels, in their order.
        count: of a summary, whose sum is ``value``.
    """

    name: str
    value: float | None
    labels: tuple[str, ...] = ()
    count: int = 0


class _Collector:
    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Family]:
        families: dict[str, list[Sample]] = {}
        for sample in self._samples:
            if sample.value is not None:
                families.setdefault(sample.name, []).append(sample)
        for name, samples in families.items():
            yield _family(name, samples)


def render(samples: Iterable[Sample]) -> bytes:
    """Return the samples as text."""
    # Its import takes a tenth of a second: not before somebody asks.
    from prometheus_client import generate_latest

    return generate_latest(_Collector(samples))


def _family(name: str, samples: list[Sample]) -> Family:
    from prometheus_client import core

    metric = ALL[name]
    if metric.kind == "summary":
        summary = core.SummaryMetricFamily(name, metric.help, labels=metric.labels)
        for one in samples:
            summary.add_metric(one.labels, one.count, one.value or 0.0)
        return summary
    kind = core.CounterMetricFamily if metric.kind == "counter" else core.GaugeMetricFamily
    family = kind(name, metric.help, labels=metric.labels)
    for one in samples:
        family.add_metric(one.labels, one.value or 0.0)
    return family
