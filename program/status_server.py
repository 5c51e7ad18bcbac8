"""Metrics and health of a process, and the HTTP server for them.

`/metrics` is for Prometheus, `/healthz` and `/readyz` are for a supervisor; a program may add pages
of JSON.  Metrics are a closed set of names, each with its kind, meaning and labels.  A stream
partition's token is never a label: splits would create labels without limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, TypeVar
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    make_wsgi_app,
)

from tidegate.program.web_server import WebServer
from tidegate.version import __version__

if TYPE_CHECKING:
    from tidegate.program.settings_stream import StreamSettings

_STALLED_AFTER_S = 180.0
"""Longer than any wait for a broker within one step, which ends after about 100 s."""


class Health:
    """The state of a process: written by the main loop, read by any thread.

    A process is alive while its loop steps; it is ready from `set_ready` to `set_not_ready`.
    """

    def __init__(
        self,
        *,
        stalled_after_s: float = _STALLED_AFTER_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start alive and not ready; `clock` returns seconds and never goes back."""
        self._stalled_after_s = stalled_after_s
        self._clock = clock
        self._stepped_at = clock()
        self._not_ready = "starting"
        self._warning = ""

    def step(self) -> None:
        """Record that the loop completed a step."""
        self._stepped_at = self._clock()

    def set_ready(self) -> None:
        """Mark the process as ready."""
        self._not_ready = ""

    def set_not_ready(self, reason: str) -> None:
        """Mark the process as not ready; probes show `reason`."""
        self._not_ready = reason

    def set_warning(self, text: str) -> None:
        """Set a warning that the readiness page shows; an empty text removes it."""
        self._warning = text

    @property
    def warning(self) -> str:
        """A warning for the operator while the process is ready; empty if there is none."""
        return self._warning

    @property
    def fault(self) -> str:
        """Why the process is not alive; empty if it is."""
        elapsed_s = self._clock() - self._stepped_at
        return f"no step for {elapsed_s:.0f} s" if elapsed_s > self._stalled_after_s else ""

    @property
    def not_ready(self) -> str:
        """Why the process is not ready; empty if it is."""
        return self.fault or self._not_ready


CounterName = TypeVar("CounterName", bound=str)
GaugeName = TypeVar("GaugeName", bound=str)
HistogramName = TypeVar("HistogramName", bound=str)

_BUCKETS_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600)
"""Upper bounds of a histogram's buckets: from a stream that keeps up to one in a catch-up."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, by its name in a scrape without the program's prefix."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()


class Metrics(Generic[CounterName, GaugeName, HistogramName]):
    """The metrics of one program, with those of its process and its build.

    The type arguments are the literal names of counters, gauges and histograms, so that a name that
    is not defined fails the type check.  Histograms are in seconds.  Every object has its own
    registry.  Safe to use from several threads.
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
        """Call `value` for the gauge at each scrape, from any thread; `set` then has no effect."""
        self._gauges[name].set_function(value)

    def observe(self, name: HistogramName, seconds: float) -> None:
        """Add a duration to a histogram; a negative one, from clocks that differ, counts as 0."""
        self._histograms[name].observe(max(seconds, 0.0))


_TEXT = ("Content-Type", "text/plain; charset=utf-8")
_JSON = ("Content-Type", "application/json")


class StatusServer(WebServer):
    """Serves metrics and health from its thread until it is closed."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        registry: CollectorRegistry,
        health: Health,
        pages: Mapping[str, Callable[[], str]] | None = None,
    ) -> None:
        """Start to serve; port 0 selects a free one.  Raises ConfigError for a port in use.

        `pages` return JSON, by their paths; any thread may call them.
        """
        self._pages = dict(pages or {})
        self._metrics = make_wsgi_app(registry)
        self._health = health
        hint = "Choose another, or 0 for no server"
        super().__init__(self._answer, host, port, settings="metrics_", hint=hint)

    def _answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        match environ["PATH_INFO"]:
            case "/metrics":
                page: Iterable[bytes] = self._metrics(environ, start_response)
                return page
            case "/healthz":
                status, text = _status(self._health.fault)
            case "/readyz":
                status, text = _status(self._health.not_ready, warning=self._health.warning)
            case path if path in self._pages:
                start_response("200 OK", [_JSON])
                return [_line(self._pages[path]())]
            case _:
                pages = ", ".join(["/metrics", *self._pages, "/healthz"])
                status, text = "404 Not Found", f"try {pages} or /readyz"
        start_response(status, [_TEXT])
        return [_line(text)]


def serve_status(
    settings: StreamSettings,
    *,
    registry: CollectorRegistry,
    health: Health,
    pages: Mapping[str, Callable[[], str]] | None = None,
) -> AbstractContextManager[object]:
    """Serve while the context lasts, if the settings name a port.  Raises ConfigError."""
    if not settings.metrics_port:
        return nullcontext()
    return StatusServer(
        settings.metrics_host, settings.metrics_port, registry=registry, health=health, pages=pages
    )


def _line(text: str) -> bytes:
    """Return a line in UTF-8; characters without UTF-8, such as a byte of a name, are escaped."""
    return f"{text}\n".encode(errors="backslashreplace")


def _status(fault: str, *, warning: str = "") -> tuple[str, str]:
    if fault:
        return "503 Service Unavailable", fault
    return "200 OK", f"ok, but {warning}" if warning else "ok"
