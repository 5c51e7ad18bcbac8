"""A small release: collected in one Spark job, and decoded in the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.schemas.errors import invariant
from tidegate.schemas.order_key import OrderKey, first_key_after
from tidegate.spark_consumer.batch.release_order import PLACE, numbered
from tidegate.spark_consumer.core.row_sums import Conflict, ReleaseCount
from tidegate.spark_consumer.sinks.collected_table import CollectedTable
from tidegate.spark_consumer.sinks.decoding import decode_changes
from tidegate.spark_consumer.sinks.port import Release
from tidegate.spark_consumer.sinks.row_decoding import decode_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Row

    from tidegate.spark_consumer.batch.segments import ReleaseRows
    from tidegate.spark_consumer.core.plan import Plan, ReleaseBounds
    from tidegate.spark_consumer.core.topic_schemas import TopicSchemas

__all__ = ["collected_release"]


def collected_release(
    rows: ReleaseRows, bounds: ReleaseBounds, *, plan: Plan, topics: Mapping[str, TopicSchemas]
) -> tuple[Release, ReleaseCount]:
    """Collect and decode a release's rows, as `decoded_release` does in Spark.

    Raises InvariantViolation if rows lie outside the bounds or ordinals are not dense, SchemaError
    for bytes that do not fit their schema.
    """
    found = rows.frame.collect()
    waiting, waiting_due = rows.waiting
    _require_bounds(found, bounds)
    of_topic: dict[str, list[dict[str, Any]]] = {topic: [] for topic in topics}
    for row in found:
        of_topic.setdefault(row["topic"], []).append({**row.asDict(), "ordinal": row[PLACE]})

    ordered = numbered(rows.frame, [0], release=bounds.number)

    def table(topic: str, schemas: TopicSchemas) -> CollectedTable:
        return CollectedTable(
            rows.frame.sparkSession,
            lambda: decode_changes(ordered, schemas, topic=topic),
            decode_rows(of_topic[topic], schemas, release=bounds.number),
            schemas,
        )

    copies = sum(row["copies"] for row in found)
    tables = {topic: table(topic, schemas) for topic, schemas in topics.items()}
    release = Release.of(bounds, tables, plan=plan, rows=len(found), records=copies)
    return release, ReleaseCount(len(found), copies, waiting, waiting_due, _conflict(found))


def _conflict(rows: Sequence[Row]) -> Conflict | None:
    """Return the conflict with the lowest order key."""
    found = [row for row in rows if row["is_conflict"]]
    if not found:
        return None
    return Conflict(
        changes=len(found),
        commit_timestamp_us=OrderKey.decode(bytes(found[0]["order_key"])).commit_timestamp_us,
        first=_place(found[0]),
        last=_place(found[0]["last"]),
    )


def _place(row: Row) -> str:
    return f"{row['topic']}/{row['topic_partition']}/{row['offset']}"


def _require_bounds(rows: Sequence[Row], bounds: ReleaseBounds) -> None:
    low, high = first_key_after(bounds.after_us), first_key_after(bounds.through_us)
    for ordinal, row in enumerate(rows):
        invariant(
            low <= bytes(row["order_key"]) < high,
            "a release holds changes outside its bounds",
            release=bounds.number,
            topic=row["topic"],
        )
        invariant(
            row[PLACE] == ordinal,
            "a release's ordinals are not dense",
            release=bounds.number,
        )
