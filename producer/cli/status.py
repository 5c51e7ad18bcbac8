"""`tidegate-producer status`: the progress of a fleet, from its records, group and metrics."""

from __future__ import annotations

import http.client
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from prometheus_client.parser import text_string_to_metric_families

from tidegate.lineage.fleet_status import FleetStatus
from tidegate.producer.backfill.read_partition import is_of_backfill, reading_of
from tidegate.producer.backfill.table_run import place_of
from tidegate.producer.cli.fleet_reader import FleetReader, FleetRecords
from tidegate.producer.cli.stream_states import StreamState, state_since, stream_state
from tidegate.producer.config import ProducerConfig
from tidegate.producer.errors import StreamNotStarted
from tidegate.producer.observation.faults import ERRORS_PATH, RetriedFault, faults_of_json
from tidegate.schemas.instants import NS_PER_US, US_PER_SECOND
from tidegate.schemas.progress import StreamStarted


@dataclass(frozen=True, slots=True)
class BackfillProgress:
    """The progress of an open backfill."""

    rows: int
    """Number of rows of all its tables when the stream began."""
    published: int
    """Number of these rows that are published."""
    seconds_left: float | None = None
    """At the rate since the preceding status; None in the first one and without progress."""


def backfill_progress(
    started: StreamStarted, open_tokens: Iterable[str], *, changes: int, rate: float | None
) -> BackfillProgress | None:
    """Return the progress of the backfill; None without one, and once it is done.

    Until it is done only rows are published: `changes` in total, `rate` in a second.
    """
    if not any(is_of_backfill(token) and place_of(token) is None for token in open_tokens):
        return None
    ranges = [reading_of(child.token) for child in started.children]
    rows = sum(part.rows for part in ranges if part is not None)
    left = rows - changes
    return BackfillProgress(rows, changes, round(left / rate, 1) if rate and left >= 0 else None)


_TIMEOUT_S = 5.0
_PREFIX = "tidegate_producer_"


@dataclass(frozen=True, slots=True)
class WorkerCounts:
    """The stream partitions of one worker by their states; None if it does not answer."""

    address: str
    running: int | None = None
    queued: int | None = None
    paused: int | None = None
    held: int | None = None
    stopped: int | None = None
    retention_headroom_s: float | None = None
    """Until the unpublished changes of the slowest one expire; None if none do, as with files."""
    error: str = ""
    """Why it does not answer."""
    retried: tuple[RetriedFault, ...] | None = None
    """Faults retried since its start, the newest first; None for an older version."""
    retried_dropped: int = 0
    """Number of entries that did not fit its list."""


def ask_worker(address: str) -> WorkerCounts:
    """Read the metrics of the worker that serves them at `address`, a host and a port.

    Blocks for at most some seconds.  Raises nothing: if a worker does not answer, `error` has the
    reason.
    """
    try:
        text = fetch_page(address, "/metrics")
        samples = {
            sample.name.removeprefix(_PREFIX): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if not sample.labels and sample.name.startswith(_PREFIX)
        }
        retried, dropped = _retried(address)
        return WorkerCounts(
            address,
            running=int(samples["queries_running"]),
            queued=int(samples["stream_partitions_queued"]),
            paused=int(samples["stream_partitions_paused"]),
            # Workers of an older version have neither of these two.
            held=int(samples["stream_partitions_held"])
            if "stream_partitions_held" in samples
            else None,
            retention_headroom_s=_finite(samples.get("retention_headroom_seconds")),
            stopped=int(samples["stream_partitions_stopped"]),
            retried=retried,
            retried_dropped=dropped,
        )
    except (OSError, http.client.HTTPException) as error:
        return WorkerCounts(address, error=str(error) or type(error).__name__)
    except (ValueError, KeyError, OverflowError):  # OverflowError: an infinite number
        return WorkerCounts(address, error="these are not the metrics of a tidegate-producer")


def _finite(seconds: float | None) -> float | None:
    return seconds if seconds is not None and math.isfinite(seconds) else None


def _retried(address: str) -> tuple[tuple[RetriedFault, ...] | None, int]:
    """Return the faults that the worker retries; None if it does not serve them."""
    try:
        return faults_of_json(fetch_page(address, ERRORS_PATH))
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return None, 0


def fetch_page(address: str, path: str) -> str:
    """Return a page that a program of Tidegate serves; raises OSError and HTTPException."""
    with closing(http.client.HTTPConnection(address, timeout=_TIMEOUT_S)) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise http.client.HTTPException(f"HTTP {response.status} {response.reason}")
        return response.read().decode()


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """A stream and its fleet at one moment."""

    fleet: FleetStatus | None
    """As of the folded progress topic; None for a stream that has not begun."""
    state: StreamState
    members: tuple[str, ...]
    """Workers in the group."""
    now_us: int
    """By this machine's clock, from which lags are counted."""
    changes_a_second: float | None = None
    """Since the preceding status; None in the first one."""
    workers: tuple[WorkerCounts, ...] = ()
    """The workers that were asked for their metrics."""
    backfill: BackfillProgress | None = None
    """While rows from before the stream are being published."""
    reason: str = ""
    """Why there is nothing to show."""
    since_us: int | None = None
    """The state has lasted since then or longer; None if no record shows it."""


def follow(
    config: ProducerConfig,
    *,
    metrics: Sequence[str] = (),
    interval_s: float = 0.0,
    on_records: Callable[[FleetRecords], None] = lambda _records: None,
) -> Iterator[StreamStatus]:
    """Yield the status now, and again after each interval, as long as the caller iterates.

    `metrics` are addresses of workers' metrics.  A stream that has not begun has a status, too.
    `on_records` gets the records of each one, which may be read until it returns.
    Otherwise raises as `FleetReader` does.
    """
    while True:
        try:
            reader = FleetReader(config)
            break
        except StreamNotStarted as error:
            state, now_us = StreamState.NOT_STARTED, time.time_ns() // NS_PER_US
            yield StreamStatus(None, state, (), now_us=now_us, reason=str(error))
            time.sleep(interval_s)
    with closing(reader):
        before: tuple[int, float] | None = None
        while True:
            records, at_s = reader.read(), time.monotonic()
            changes = records.changes
            rate = None
            if before is not None:
                rate = max(changes - before[0], 0) / (at_s - before[1])
            before = changes, at_s
            members = tuple(reader.members())
            fleet = records.fleet()
            on_records(records)
            state = stream_state(fleet, members)
            yield StreamStatus(
                fleet=fleet,
                state=state,
                members=members,
                now_us=time.time_ns() // NS_PER_US,
                changes_a_second=rate,
                workers=tuple(map(ask_worker, metrics)),
                backfill=backfill_progress(
                    records.started,
                    (entry.token for entry in fleet.partitions),
                    changes=changes,
                    rate=rate,
                ),
                since_us=state_since(fleet, state),
            )
            reader.wait(interval_s)


def lag_s(watermark_us: int | None, *, now_us: int) -> float | None:
    """Return a watermark's lag in seconds."""
    return None if watermark_us is None else round((now_us - watermark_us) / US_PER_SECOND, 3)


def as_json(status: StreamStatus) -> str:
    """Return the status as one JSON object, with the lag of each watermark in seconds."""
    if status.fleet is None:
        fields = {"state": status.state.value, "members": (), "reason": status.reason}
        return json.dumps(fields, ensure_ascii=False)
    plain = {
        "state": status.state.value,
        "since_us": status.since_us,
        "since": None if status.since_us is None else _instant(status.since_us),
        "members": status.members,
        "changes_a_second": status.changes_a_second,
        "backfill": None if status.backfill is None else asdict(status.backfill),
        **asdict(status.fleet),
        "workers": [asdict(worker) for worker in status.workers],
    }
    for entry in (plain, *plain["slots"], *plain["partitions"]):
        watermark_us = entry["watermark_us"]
        entry["lag_s"] = lag_s(watermark_us, now_us=status.now_us)
        if watermark_us is not None:
            entry["watermark"] = _instant(watermark_us)
    return json.dumps(plain, ensure_ascii=False)


def _instant(us: int) -> str:
    return datetime.fromtimestamp(us / US_PER_SECOND, UTC).isoformat()
