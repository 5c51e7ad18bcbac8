"""Line and bar charts: the places of their lines, bars and labels, which templates draw."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tidegate.schemas.instants import US_PER_SECOND

WIDTH = 720
HEIGHT = 180
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 10, 22
_POINTS_MAX = 240
"""More points would not be visible; the highest of neighbouring points is drawn."""
_LINES = 4
_STEPS = (1, 2, 4, 6, 8, 10)
"""First digits of round numbers: a quarter of each also has few digits."""
_FORMS = ((600, "%H:%M:%S"), (86_400, "%H:%M"), (math.inf, "%m-%d %H:%M"))
"""The format of times, by the length of the shown time: (less than these seconds, format)."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A label of an axis, and its place."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class LineChart:
    """Values over time."""

    paths: tuple[str, ...]
    """A path of SVG for each run of known values."""
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    summary: str
    """The chart in words."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar."""

    x: float
    y: float
    width: float
    height: float
    label: str
    amount: str


@dataclass(frozen=True, slots=True)
class BarChart:
    """Amounts by label."""

    bars: tuple[Bar, ...]
    summary: str


def line_chart(
    points: Sequence[tuple[int, float | None]], *, from_us: int, until_us: int, unit: str
) -> LineChart:
    """Return a chart of values at times in microseconds, in order; None is a gap."""
    known = [value for _, value in points if value is not None]
    if not known:
        return LineChart((), _times(from_us, until_us), (), "no values yet")
    top = _ceiling(max(known))
    span_us = max(until_us - from_us, 1)

    def place(at_us: int, value: float) -> str:
        x = LEFT + (at_us - from_us) / span_us * (WIDTH - LEFT - RIGHT)
        return f"{x:.1f} {_height(value, top):.1f}"

    paths = tuple(
        "M" + "L".join(place(*point) for point in run)
        for run in _runs(_thinned(points, from_us, span_us))
    )
    y_ticks = tuple(
        Tick(_height(top * line / _LINES, top), quantity(top * line / _LINES))
        for line in range(_LINES + 1)
    )
    newest = "unknown" if points[-1][1] is None else f"{quantity(points[-1][1])} {unit}"
    summary = f"now {newest}, at most {quantity(max(known))} {unit}"
    return LineChart(paths, _times(from_us, until_us), y_ticks, summary)


def bar_chart(bars: Sequence[tuple[str, float]]) -> BarChart:
    """Return a chart of amounts, in their order."""
    top = max((amount for _, amount in bars), default=0) or 1
    step = (WIDTH - LEFT - RIGHT) / max(len(bars), 1)
    drawn = tuple(
        Bar(
            x=round(LEFT + place * step + 2, 1),
            y=round(_height(amount, top), 1),
            width=round(step - 4, 1),
            height=round(_height(0, top) - _height(amount, top), 1),
            label=label,
            amount=quantity(amount),
        )
        for place, (label, amount) in enumerate(bars)
    )
    summary = ", ".join(f"{bar.label}: {bar.amount}" for bar in drawn if bar.amount != "0")
    return BarChart(drawn, summary or "nothing yet")


def quantity(value: float) -> str:
    """Return a number in few characters."""
    if value >= 10_000:
        for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
            if value >= size:
                return f"{value / size:.3g} {letter}"
    return f"{value:.0f}" if value == int(value) or value >= 100 else f"{value:.3g}"


def time_ticks(from_us: int, until_us: int, *, left: float, right: float) -> tuple[Tick, ...]:
    """Return labels for both ends of a time and three times between them."""
    form = next(form for span_s, form in _FORMS if until_us - from_us < span_s * US_PER_SECOND)
    return tuple(
        Tick(
            round(left + part / _LINES * (right - left), 1),
            datetime.fromtimestamp(
                (from_us + (until_us - from_us) * part / _LINES) / US_PER_SECOND, UTC
            ).strftime(form),
        )
        for part in range(_LINES + 1)
    )


def _times(from_us: int, until_us: int) -> tuple[Tick, ...]:
    return time_ticks(from_us, until_us, left=LEFT, right=WIDTH - RIGHT)


def _height(value: float, top: float) -> float:
    return TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM)


def _ceiling(value: float) -> float:
    """Return a round number that is not lower."""
    if value <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(value))
    return next(step * size for step in _STEPS if step * size >= value * 0.999_999)


def _thinned(
    points: Sequence[tuple[int, float | None]], from_us: int, span_us: int
) -> Iterator[tuple[int, float | None]]:
    """Yield at most one point for each narrow part of the picture: a gap, or the highest."""
    kept: dict[int, tuple[int, float | None]] = {}
    for at_us, value in points:
        if at_us < from_us:
            continue
        part = (at_us - from_us) * _POINTS_MAX // span_us
        before = kept.get(part)
        if before is None or _is_higher(value, before[1]):
            kept[part] = at_us, value
    yield from kept.values()


def _is_higher(value: float | None, other: float | None) -> bool:
    return other is not None and (value is None or value > other)


def _runs(points: Iterable[tuple[int, float | None]]) -> Iterator[list[tuple[int, float]]]:
    """Yield the points between gaps; one alone is drawn as a short line."""
    run: list[tuple[int, float]] = []
    for at_us, value in points:
        if value is not None:
            run.append((at_us, value))
        elif run:
            yield _line(run)
            run = []
    if run:
        yield _line(run)


def _line(run: list[tuple[int, float]]) -> list[tuple[int, float]]:
    return run if len(run) > 1 else run * 2
