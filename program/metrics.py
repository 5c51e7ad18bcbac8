"""The metrics of one process: a closed set of names, each with its kind, meaning and labels.

A stream partition's token is never a label: splits would create labels without limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from tidegate.version import __version__

CounterName = TypeVar("CounterName", bound=str)
GaugeName = TypeVar("GaugeName", bound=str)
HistogramName = TypeVar("HistogramName", bound=str)

_BUCKETS_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600)
"""Upper bounds of a histogram's buckets: from a stream that keeps up to one that catches up."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, by its name as a scrape shows it but for the program's prefix."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()


class Metrics(Generic[CounterName, GaugeName, HistogramName]):
    """The metrics of one program, with those of its process and its build.

    The type arguments are the literal names of counters, gauges and histograms, so that a name that
    is not defined fails the type check.  A histogram is of seconds.  Every object has a registry of
    its own.  Safe to use from several threads.
    """

    def __init__(self, prefix: str, definitions: Iterable[Metric]) -> None:
        """Start every metric at 0; `prefix` ends without an underscore."""
        self.registry = CollectorRegistry()
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        for metric in definitions:
            arguments = (f"{prefix}_{metric.name}", metric.meaning, metric.labels)
            match metric.kind:
                case "counter":
                    self._counters[metric.name] = Counter(*arguments, registry=self.registry)
                case "gauge":
                    self._gauges[metric.name] = Gauge(*arguments, registry=self.registry)
                case "histogram":
                    self._histograms[metric.name] = Histogram(
                        *arguments, buckets=_BUCKETS_S, registry=self.registry
                    )
        build = Gauge("tidegate_build_info", "Always 1", ("version",), registry=self.registry)
        build.labels(version=__version__).set(1)
        ProcessCollector(registry=self.registry)

    def add(self, name: CounterName, amount: float = 1, **labels: str) -> None:
        """Add to a counter; `labels` are exactly those of its definition."""
        counter = self._counters[name]
        (counter.labels(**labels) if labels else counter).inc(amount)

    def set(self, name: GaugeName, value: float, **labels: str) -> None:
        """Set a gauge; `labels` are exactly those of its definition."""
        gauge = self._gauges[name]
        (gauge.labels(**labels) if labels else gauge).set(value)

    def follow(self, name: GaugeName, value: Callable[[], float]) -> None:
        """Ask `value` for the gauge at each scrape, from any thread; `set` has no effect then."""
        self._gauges[name].set_function(value)

    def observe(self, name: HistogramName, seconds: float) -> None:
        """Count a duration in a histogram; one below 0, of clocks that differ, as 0."""
        self._histograms[name].observe(max(seconds, 0.0))
