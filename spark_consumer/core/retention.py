"""What retention has removed from Kafka: before a query began, and before it had read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.schemas.instants import US_PER_MS
from tidegate.spark_consumer.errors import ChangesExpired, DataTopicChanged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.lineage.frontier import EndOffsets

__all__ = ["FirstRecord", "complete_from_us", "require_kept"]


@dataclass(frozen=True, slots=True)
class FirstRecord:
    """Where a topic partition begins today, and when its first record was written.

    `timestamp_ms` is the worker's clock in milliseconds since 1970; None without a record.
    """

    offset: int
    timestamp_ms: int | None
    end: int | None = None
    """The next offset today, of whatever is written; None if it is not known."""


def complete_from_us(kept: Mapping[str, Mapping[int, FirstRecord]], *, now_us: int) -> int | None:
    """Return the time from which on a query that begins now has every change; None: from the first.

    A change is committed before its record is written, so every record that was removed from a
    topic partition is older than the first one that is left there.  Clocks of workers that are
    wrong make it wrong by as much.
    """
    cut = [
        one.timestamp_ms * US_PER_MS if one.timestamp_ms is not None else now_us
        for of_topic in kept.values()
        for one in of_topic.values()
        if one.offset > 0
    ]
    return max(cut, default=None)


def require_kept(read: EndOffsets, kept: Mapping[str, Mapping[int, FirstRecord]]) -> None:
    """Raise ChangesExpired for a topic partition that begins after what was read of it.

    And DataTopicChanged for one that ends before it: offsets never fall.  `read` holds the next
    offsets.
    """
    for topic, offsets in sorted(read.items()):
        for topic_partition, following in sorted(offsets.items()):
            first = kept.get(topic, {}).get(topic_partition)
            if first is not None and first.end is not None and first.end < following:
                message = "a topic ends before what was read of it: it was deleted and re-created"
                hint = "Its changes are gone: reset the stream, and start with a new output"
                raise DataTopicChanged(
                    message,
                    hint=hint,
                    topic=topic,
                    topic_partition=topic_partition,
                    read=following,
                    end=first.end,
                )
            if first is None or first.offset <= following:
                continue
            message = "Kafka has removed records that were not read yet"
            hint = (
                "They are lost for this query: reset the stream, and start with a new output; "
                "a longer retention of the data topics prevents it"
            )
            raise ChangesExpired(
                message,
                hint=hint,
                topic=topic,
                topic_partition=topic_partition,
                lost_from=following,
                lost_through=first.offset - 1,
            )
