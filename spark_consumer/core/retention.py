"""Records that retention has removed from Kafka: before a query began, or before it read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from tidegate.lineage.frontier import EndOffsets
from tidegate.schemas.instants import US_PER_MS, US_PER_SECOND
from tidegate.spark_consumer.errors import ChangesExpired, DataTopicChanged


@dataclass(frozen=True, slots=True)
class FirstRecord:
    """Where a topic partition begins today, and when its first record was written.

    `timestamp_ms` is the worker's clock in milliseconds since 1970; None without a record.
    """

    offset: int
    timestamp_ms: int | None
    end: int | None = None
    """The next offset today, of any record; None if it is not known."""


def complete_from_us(kept: Mapping[str, Mapping[int, FirstRecord]], *, now_us: int) -> int | None:
    """Return the time from which on a query that begins now has every change; None: from the first.

    A change is committed before its record is written, so every record that was removed from a
    topic partition is older than the first one that is left there.  It is wrong by as much as the
    workers' clocks are.
    """
    cut = [
        first.timestamp_ms * US_PER_MS if first.timestamp_ms is not None else now_us
        for of_topic in kept.values()
        for first in of_topic.values()
        if first.offset > 0
    ]
    return max(cut, default=None)


def require_kept(
    read: EndOffsets,
    kept: Mapping[str, Mapping[int, FirstRecord]],
    *,
    watermark_us: int | None = None,
) -> None:
    """Raise ChangesExpired for a topic partition that begins after the next offset to read.

    Raises DataTopicChanged for one that ends before that offset, since offsets never fall, or that
    no longer exists.  `read` holds the next offsets.  Everything up to `watermark_us` was read;
    None: that is not known.
    """
    for topic, offsets in sorted(read.items()):
        for topic_partition, following in sorted(offsets.items()):
            first = kept.get(topic, {}).get(topic_partition)
            if first is None and following:
                raise DataTopicChanged(
                    "a topic that was read is not there any more: it was deleted",
                    hint=(
                        "Its changes are gone: reset the stream, and start with a new output. If "
                        "the topic is there, allow this principal to describe it"
                    ),
                    topic=topic,
                    topic_partition=topic_partition,
                    read=following,
                )
            if first is not None and first.end is not None and first.end < following:
                raise DataTopicChanged(
                    "a topic ends before what was read of it: it was deleted and re-created",
                    hint="Its changes are gone: reset the stream, and start with a new output",
                    topic=topic,
                    topic_partition=topic_partition,
                    read=following,
                    end=first.end,
                )
            if first is None or first.offset <= following:
                continue
            raise ChangesExpired(
                "Kafka has removed records that were not read yet",
                hint=(
                    "They are lost for this query: reset the stream, and start with a new output; "
                    "a longer retention of the data topics prevents it"
                ),
                topic=topic,
                topic_partition=topic_partition,
                lost_from=following,
                lost_through=first.offset - 1,
                **_interval(first, watermark_us),
            )


def _interval(first: FirstRecord, watermark_us: int | None) -> dict[str, str]:
    """Return between which times the changes were committed whose records are gone.

    Those up to the watermark were read, and a record is written after its change is committed.
    """
    begin_us = None if watermark_us is None or watermark_us < 0 else watermark_us
    end_us = None if first.timestamp_ms is None else (first.timestamp_ms + 1) * US_PER_MS
    bounds = {"committed_after": begin_us, "committed_before": end_us}
    return {
        name: datetime.fromtimestamp(us / US_PER_SECOND, UTC).isoformat()
        for name, us in bounds.items()
        if us is not None
    }
