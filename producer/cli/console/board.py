"""What the console shows: looked up in one thread, read by those that serve pages.

Nothing here changes the stream.  A look that fails leaves what the last one has found, with the
fault, and is repeated.
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
    """Yields the status of a stream again and again; `on_records` gets what it is made of."""

    def __call__(self, *, on_records: Callable[[FleetRecords], None]) -> Iterator[StreamStatus]:
        """Begin; raises TidegateError."""
        ...


@dataclass(frozen=True, slots=True)
class SinkTimes:
    """What one sink did since its consumer started."""

    sink: str
    release: int
    releases: int
    changes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ConsumerFigures:
    """What a consumer says in its metrics."""

    delays: tuple[tuple[str, float], ...]
    """From commit to release: how many changes, by the upper bound of a bucket in seconds."""
    sinks: tuple[SinkTimes, ...]


class Board:
    """The newest figures; `run` looks for them, any thread may read the fields."""

    def __init__(self, config: ConsoleConfig, statuses: Statuses) -> None:
        """Look for nothing yet.  Raises ConfigError for addresses that cannot be read."""
        self._statuses = statuses
        self._reader = ReleaseReader(config.output) if config.output else None
        self._audit_file = AuditFile(config.audit) if config.audit else None
        self._consumer = config.consumer_metrics
        self._lineage_due = 0.0
        self.history = History()
        self.status: StreamStatus | None = None
        """None before the first look."""
        self.lives: tuple[Life, ...] = ()
        self.fault = ""
        """Why the newest look at Kafka failed; empty if it has not."""
        self.output_fault = ""
        """Likewise of the output, the audit or the consumer."""
        self.consumer: ConsumerFigures | None = None
        self.audit: Audit | None = None
        self.looked_us = 0
        """When the newest look that did not fail was over."""

    @property
    def reader(self) -> ReleaseReader | None:
        """The releases; None where no output is given."""
        return self._reader

    def run(self, stopping: threading.Event) -> None:
        """Look until `stopping` is set; ends within a look."""
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
        """Compute the lineage, unless that was done a moment ago: it grows with its history."""
        begun = time.monotonic()
        if begun < self._lineage_due:
            return
        stream, now_us = records.started.stream, time.time_ns() // 1_000
        graph = lineage_graph(records.view, records.history, stream=stream, generations=None)
        self.lives = lives(graph, records.fleet(), now_us=now_us)
        took_s = time.monotonic() - begun
        self._lineage_due = begun + took_s * _SHARE

    def _look_at_output(self) -> None:
        try:
            if self._reader is not None:
                self._reader.refresh()
            if self._audit_file is not None:
                self.audit = self._audit_file.read()
            if self._consumer:
                self.consumer = consumer_figures(fetch_page(self._consumer, "/metrics"))
            self.output_fault = ""
        except TidegateError as error:
            self.output_fault = str(error)
        except (OSError, http.client.HTTPException) as error:
            self.output_fault = f"consumer_metrics: {self._consumer} does not answer: {error}"
        except ValueError:
            self.output_fault = f"consumer_metrics: {self._consumer} does not serve metrics"


def consumer_figures(text: str) -> ConsumerFigures:
    """Return the figures of a page of metrics; raises ValueError for another page."""
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
