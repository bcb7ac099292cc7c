"""Draws charts as SVG without a script: lines over the last hour, with a text that says the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.web.watch import KEPT, Point, rates

WIDTH, HEIGHT = 640, 120
_LEFT, _TOP, _BOTTOM = 0, 8, 4
Values = Sequence[tuple[float, float | None]]


@dataclass(frozen=True)
class Line:
    """A line of a chart.

    Attributes:
        number: its color's number in the style sheet.
        paths: the points of its pieces, as an SVG polyline has them; nothing is drawn where a value is not known.
        text: now and at most.
    """

    name: str
    number: int
    paths: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Chart:
    """A chart of the last hour; ``top`` is the value of its upper edge with its unit."""

    title: str
    top: str
    lines: tuple[Line, ...]


def throughput(points: Sequence[Point], now: float) -> Chart:
    """Return the chart of row changes per second: published, and applied by each channel."""
    values: dict[str, Values] = {"published": rates([(point.at, point.published) for point in points])}
    for name in _channels(points):
        rows = [(point.at, point.channels[name].rows if name in point.channels else None) for point in points]
        values[name] = rates(rows)
    return _chart("Row changes per second", values, "rows/s", now)


def lags(points: Sequence[Point], now: float) -> Chart:
    """Return the chart of each channel's lag in seconds, in the colors of the other chart."""
    values: dict[str, Values] = {
        name: [(point.at, point.channels[name].lag if name in point.channels else None) for point in points]
        for name in _channels(points)
    }
    return _chart("Lag in seconds", values, "s", now, first=1)


def _channels(points: Sequence[Point]) -> list[str]:
    return sorted({name for point in points for name in point.channels})


def _chart(title: str, values: dict[str, Values], unit: str, now: float, first: int = 0) -> Chart:
    known = [value for series in values.values() for _, value in series if value is not None]
    top = _round_up(max(known, default=0.0))
    lines = tuple(
        Line(name, number % 6, _paths(series, top, now), _text(series, unit))
        for number, (name, series) in enumerate(values.items(), first)
    )
    return Chart(title, f"{top:,.10g} {unit}", lines)


def _round_up(value: float) -> float:
    """Return the next number of the form 1, 2 or 5 times a power of ten."""
    if value <= 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= value)


def _paths(series: Values, top: float, now: float) -> tuple[str, ...]:
    found: list[list[str]] = [[]]
    height = HEIGHT - _TOP - _BOTTOM
    for at, value in series:
        if value is None:
            found.append([])
            continue
        x = _LEFT + (WIDTH - _LEFT) * (1 - (now - at) / KEPT)
        if x >= _LEFT:
            found[-1].append(f"{x:.1f},{_TOP + height * (1 - value / top):.1f}")
    return tuple(" ".join(piece if len(piece) > 1 else piece * 2) for piece in found if piece)


def _text(series: Values, unit: str) -> str:
    known = [value for _, value in series if value is not None]
    if not known:
        return "not known"
    last = series[-1][1]
    now = "not known" if last is None else f"{last:,.1f} {unit}"
    return f"now {now}, at most {max(known):,.1f} {unit}"
