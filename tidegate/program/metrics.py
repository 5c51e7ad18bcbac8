"""The metrics of one process: a closed set of names, each with its kind, meaning and labels.

A stream partition's token is never a label: splits would create labels without limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector

from tidegate.version import __version__

CounterName = TypeVar("CounterName", bound=str)
GaugeName = TypeVar("GaugeName", bound=str)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, by its name as a scrape shows it but for the program's prefix."""

    name: str
    kind: Literal["counter", "gauge"]
    meaning: str
    labels: tuple[str, ...] = ()


class Metrics(Generic[CounterName, GaugeName]):
    """The metrics of one program, with those of its process and its build.

    The two type arguments are the literal names of counters and gauges, so that a name that is not
    defined fails the type check.  Every object has a registry of its own.  Safe to use from several
    threads.
    """

    def __init__(self, prefix: str, definitions: Iterable[Metric]) -> None:
        """Start every metric at 0; `prefix` ends without an underscore."""
        self.registry = CollectorRegistry()
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        for metric in definitions:
            arguments = (f"{prefix}_{metric.name}", metric.meaning, metric.labels)
            if metric.kind == "counter":
                self._counters[metric.name] = Counter(*arguments, registry=self.registry)
            else:
                self._gauges[metric.name] = Gauge(*arguments, registry=self.registry)
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
