"""What a running worker says of its queries: read from its `/metrics`, since no record holds it.

Whether a stream partition is queued or paused is its worker's choice of the moment
(docs/decisions/query-schedule.md), and what it retries is in its process alone, which serves it as
`/errors`.
"""

from __future__ import annotations

import http.client
import math
from contextlib import closing
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from tidegate.producer.retried_faults import ERRORS_PATH, RetriedFault, faults_of_json

_TIMEOUT_S = 5.0
_PREFIX = "tidegate_producer_"


@dataclass(frozen=True, slots=True)
class WorkerCounts:
    """The stream partitions of one worker by what it does with them; None where it says nothing."""

    address: str
    running: int | None = None
    queued: int | None = None
    paused: int | None = None
    held: int | None = None
    stopped: int | None = None
    retention_headroom_s: float | None = None
    """Until what the slowest one has not published expires; None if nothing does, as with files."""
    error: str = ""
    """Why it says nothing."""
    retried: tuple[RetriedFault, ...] | None = None
    """What it has retried since its start, the newest first; None of an older version."""
    retried_dropped: int = 0
    """Entries that its list had no place for."""


def ask_worker(address: str) -> WorkerCounts:
    """Ask the worker whose metrics are served at `address`, a host and a port.

    Blocks for some seconds at most.  Raises nothing: that a worker does not answer is in `error`.
    """
    try:
        text = _fetch(address, "/metrics")
        found = {
            sample.name.removeprefix(_PREFIX): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if not sample.labels and sample.name.startswith(_PREFIX)
        }
        retried, dropped = _retried(address)
        return WorkerCounts(
            address,
            running=int(found["queries_running"]),
            queued=int(found["stream_partitions_queued"]),
            paused=int(found["stream_partitions_paused"]),
            # Workers of an older version have neither of these two.
            held=int(found["stream_partitions_held"])
            if "stream_partitions_held" in found
            else None,
            retention_headroom_s=_finite(found.get("retention_headroom_seconds")),
            stopped=int(found["stream_partitions_stopped"]),
            retried=retried,
            retried_dropped=dropped,
        )
    except (OSError, http.client.HTTPException) as error:
        return WorkerCounts(address, error=str(error) or type(error).__name__)
    except (ValueError, KeyError):
        return WorkerCounts(address, error="these are not the metrics of a tidegate-producer")


def _finite(seconds: float | None) -> float | None:
    return seconds if seconds is not None and math.isfinite(seconds) else None


def _retried(address: str) -> tuple[tuple[RetriedFault, ...] | None, int]:
    """Return what the worker retries; None of one that does not serve it."""
    try:
        return faults_of_json(_fetch(address, ERRORS_PATH))
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return None, 0


def _fetch(address: str, path: str) -> str:
    """Return a page; raises OSError and HTTPException."""
    with closing(http.client.HTTPConnection(address, timeout=_TIMEOUT_S)) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise http.client.HTTPException(f"HTTP {response.status} {response.reason}")
        return response.read().decode()
