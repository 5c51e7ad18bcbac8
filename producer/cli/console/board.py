"""The figures that the console shows: one thread reads them, others serve pages from them.

Nothing here changes the stream.  After a read that failed, the earlier figures stay, next to the
fault, and the read is repeated.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from prometheus_client.parser import text_string_to_metric_families

from tidegate.lineage.lineage_graph import lineage_graph
from tidegate.producer.cli.console.config import ConsoleConfig
from tidegate.producer.cli.console.history import History, Sample
from tidegate.producer.cli.console.lives import Life, lives
from tidegate.producer.cli.console.releases import Audit, AuditFile, ReleaseReader
from tidegate.producer.cli.fleet_reader import FleetRecords
from tidegate.producer.cli.status import StreamStatus, fetch_page, lag_s
from tidegate.schemas.errors import TidegateError

_AGAIN_S = 5.0
_SHARE = 50
"""The lineage is computed again after this many times the seconds that it took."""
_CONSUMER = "tidegate_consumer_"


class Statuses(Protocol):
    """Yields the status of a stream again and again; `on_records` gets the records of each."""

    def __call__(self, *, on_records: Callable[[FleetRecords], None]) -> Iterator[StreamStatus]:
        """Return the iterator, which raises TidegateError."""
        ...


@dataclass(frozen=True, slots=True)
class SinkTimes:
    """The work of one sink since its consumer started."""

    sink: str
    release: int
    releases: int
    changes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ConsumerFigures:
    """The figures in a consumer's metrics."""

    delays: tuple[tuple[str, float], ...]
    """Numbers of changes by the time from commit to release: (upper bound of a bucket, number)."""
    sinks: tuple[SinkTimes, ...]


class Board:
    """The newest figures; `run` reads them, any thread may use the fields."""

    def __init__(self, config: ConsoleConfig, statuses: Statuses) -> None:
        """Read nothing yet.  Raises ConfigError for addresses that cannot be read."""
        self._statuses = statuses
        self._reader = ReleaseReader(config.output) if config.output else None
        self._audit_file = AuditFile(config.audit) if config.audit else None
        self._consumer = config.consumer_metrics
        self._lineage_due = 0.0
        self.history = History()
        self.status: StreamStatus | None = None
        """None before the first read."""
        self.lives: tuple[Life, ...] = ()
        self.fault = ""
        """Why the newest read of Kafka failed; empty if it did not."""
        self.output_fault = ""
        """The same for the output, the audit and the consumer."""
        self.consumer: ConsumerFigures | None = None
        self.audit: Audit | None = None
        self.looked_us = 0
        """When the newest read that did not fail ended."""

    @property
    def reader(self) -> ReleaseReader | None:
        """The reader of releases; None without an output."""
        return self._reader

    def run(self, stopping: threading.Event) -> None:
        """Read until `stopping` is set; ends after the current read."""
        while not stopping.is_set():
            try:
                for status in self._statuses(on_records=self._note_lineage):
                    self._take(status)
                    self._look_at_output()
                    if stopping.is_set():
                        return
            except TidegateError as error:
                self.fault = str(error)
                self._look_at_output()
            stopping.wait(_AGAIN_S)

    def _take(self, status: StreamStatus) -> None:
        self.status, self.fault, self.looked_us = status, "", status.now_us
        if status.fleet is not None:
            lag = lag_s(status.fleet.watermark_us, now_us=status.now_us)
            sample = Sample(status.now_us, lag, status.changes_a_second)
            self.history.add(sample, epoch=status.fleet.epoch)

    def _note_lineage(self, records: FleetRecords) -> None:
        """Compute the lineage, unless it is too early: the time that it takes grows."""
        begun = time.monotonic()
        if begun < self._lineage_due:
            return
        stream, now_us = records.started.stream, time.time_ns() // 1_000
        graph = lineage_graph(records.view, records.history, stream=stream, generations=None)
        self.lives = lives(graph, records.fleet(), now_us=now_us)
        took_s = time.monotonic() - begun
        self._lineage_due = begun + took_s * _SHARE

    def _look_at_output(self) -> None:
        setting = "output"
        try:
            if self._reader is not None:
                self._reader.refresh()
            setting = "audit"
            if self._audit_file is not None:
                self.audit = self._audit_file.read()
        except TidegateError as error:
            self.output_fault = str(error)
        except OSError as error:
            self.output_fault = f"{setting}: cannot be read: {error}"
        else:
            self.output_fault = self._look_at_consumer()

    def _look_at_consumer(self) -> str:
        """Read the consumer's metrics, if it has an address; return why that failed, if it did."""
        try:
            if self._consumer:
                self.consumer = consumer_figures(fetch_page(self._consumer, "/metrics"))
        except (OSError, http.client.HTTPException) as error:
            return f"consumer_metrics: {self._consumer} does not answer: {error}"
        except ValueError:
            return f"consumer_metrics: {self._consumer} does not serve metrics"
        return ""


def consumer_figures(text: str) -> ConsumerFigures:
    """Return the figures of a page of metrics; raises ValueError for another page."""
    try:
        return _figures(text)
    except (KeyError, OverflowError) as error:  # a metric without its label, or infinite
        raise ValueError("another program's metrics") from error


def _figures(text: str) -> ConsumerFigures:
    totals: dict[tuple[str, str], float] = {}
    buckets: list[tuple[str, float]] = []
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name.removeprefix(_CONSUMER)
            if name == "commit_to_release_seconds_bucket":
                buckets.append((sample.labels["le"], sample.value))
            elif "sink" in sample.labels:
                totals[sample.labels["sink"], name] = sample.value
    return ConsumerFigures(
        delays=_differences(buckets),
        sinks=tuple(_sink(sink, totals) for sink in sorted({sink for sink, _ in totals})),
    )


def _sink(sink: str, totals: Mapping[tuple[str, str], float]) -> SinkTimes:
    return SinkTimes(
        sink,
        release=int(totals.get((sink, "sink_release"), -1)),
        releases=int(totals.get((sink, "sink_releases_total"), 0)),
        changes=int(totals.get((sink, "sink_changes_total"), 0)),
        seconds=totals.get((sink, "sink_seconds_total"), 0.0),
    )


def _differences(buckets: list[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    """Return the count of each bucket: a histogram's are sums of all lower ones."""
    before, counts = 0.0, []
    for bound, total in buckets:
        label = "more" if bound == "+Inf" else f"{float(bound):g} s"
        counts.append((label, total - before))
        before = total
    return tuple(counts)
