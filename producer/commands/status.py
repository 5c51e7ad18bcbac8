"""`tidegate-producer status`: how far a fleet is, by its progress topic and its consumer group."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from tidegate.lineage.fleet_status import FleetStatus, fleet_status
from tidegate.producer.commands.backfill_progress import BackfillProgress, backfill_progress
from tidegate.producer.commands.fleet_reader import FleetReader
from tidegate.producer.commands.state_since import state_since
from tidegate.producer.commands.stream_state import StreamState, stream_state
from tidegate.producer.commands.worker_counts import WorkerCounts, ask_worker
from tidegate.producer.config import ProducerConfig
from tidegate.producer.errors import StreamNotStarted
from tidegate.schemas.instants import NS_PER_US, US_PER_SECOND


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """A stream and its fleet at one moment."""

    fleet: FleetStatus | None
    """As of what the progress topic held; None of a stream that has not begun."""
    state: StreamState
    members: tuple[str, ...]
    """Workers in the group."""
    now_us: int
    """By this machine's clock; lags are counted from here."""
    changes_a_second: float | None = None
    """Since the status before; None in the first one."""
    workers: tuple[WorkerCounts, ...] = ()
    """Those that were asked for their metrics."""
    backfill: BackfillProgress | None = None
    """While rows from before the stream are published."""
    reason: str = ""
    """Why there is nothing to show."""
    since_us: int | None = None
    """The state holds at least since then; None if no record says since when."""


def follow(
    config: ProducerConfig, *, metrics: Sequence[str] = (), interval_s: float = 0.0
) -> Iterator[StreamStatus]:
    """Yield the status now, and again after each interval, for as long as it is asked for.

    `metrics` are addresses of workers' metrics.  A stream that has not begun has a status, too.
    Raises as `FleetReader` does otherwise.
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
            found = fleet_status(records.view, records.started, epoch=records.epoch)
            state = stream_state(found, members)
            yield StreamStatus(
                fleet=found,
                state=state,
                members=members,
                now_us=time.time_ns() // NS_PER_US,
                changes_a_second=rate,
                workers=tuple(map(ask_worker, metrics)),
                backfill=backfill_progress(
                    records.started,
                    (one.token for one in found.partitions),
                    changes=changes,
                    rate=rate,
                ),
                since_us=state_since(found, state),
            )
            reader.wait(interval_s)


def lag_s(watermark_us: int | None, *, now_us: int) -> float | None:
    """Return how many seconds a watermark is behind."""
    return None if watermark_us is None else round((now_us - watermark_us) / US_PER_SECOND, 3)


def as_json(found: StreamStatus) -> str:
    """Return the status as one JSON object, with the lag of each watermark in seconds."""
    if found.fleet is None:
        nothing = {"state": found.state.value, "members": (), "reason": found.reason}
        return json.dumps(nothing, ensure_ascii=False)
    plain = {
        "state": found.state.value,
        "since_us": found.since_us,
        "since": None if found.since_us is None else _instant(found.since_us),
        "members": found.members,
        "changes_a_second": found.changes_a_second,
        "backfill": None if found.backfill is None else asdict(found.backfill),
        **asdict(found.fleet),
        "workers": [asdict(worker) for worker in found.workers],
    }
    for one in (plain, *plain["slots"], *plain["partitions"]):
        watermark_us = one["watermark_us"]
        one["lag_s"] = lag_s(watermark_us, now_us=found.now_us)
        if watermark_us is not None:
            one["watermark"] = _instant(watermark_us)
    return json.dumps(plain, ensure_ascii=False)


def _instant(us: int) -> str:
    return datetime.fromtimestamp(us / US_PER_SECOND, UTC).isoformat()
