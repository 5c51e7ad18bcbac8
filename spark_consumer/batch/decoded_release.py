"""A release, made from its rows: counted in one Spark job, each table decoded once."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.schemas.errors import invariant
from tidegate.schemas.order_key import OrderKey, first_key_after
from tidegate.spark_consumer.core.row_sums import Conflict, ReleaseCount
from tidegate.spark_consumer.sinks.decoding import decode_changes
from tidegate.spark_consumer.sinks.port import DecodedTable, Release

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, Row

    from tidegate.spark_consumer.batch.segments import ReleaseRows
    from tidegate.spark_consumer.core.plan import Plan, ReleaseBounds
    from tidegate.spark_consumer.core.topic_schemas import TopicSchemas
    from tidegate.spark_consumer.sinks.port import AnyTable

__all__ = ["decoded_release"]


@contextmanager
def decoded_release(
    rows: ReleaseRows, bounds: ReleaseBounds, *, plan: Plan, topics: Mapping[str, TopicSchemas]
) -> Iterator[tuple[Release, ReleaseCount]]:
    """Decode a release's rows (the gate's columns, `COPY_COLUMNS`, `ordinal`) for the sinks.

    Frames are persisted as they are first read, and freed after the block.  Raises
    InvariantViolation if rows lie outside the bounds or ordinals are not dense.
    """
    with ExitStack() as frames:

        def persisted(frame: DataFrame) -> DataFrame:
            frames.callback(frame.unpersist)
            return frame.persist(StorageLevel.MEMORY_AND_DISK)

        kept = persisted(rows.frame)
        total, copies, by_topic, conflict = _counted(kept, bounds)
        waiting, waiting_due = rows.waiting
        tables: dict[str, AnyTable] = {}
        for topic, schemas in topics.items():
            count = by_topic.get(topic, 0)
            frame = decode_changes(kept, schemas, topic=topic, release=bounds.number)
            tables[topic] = DecodedTable(persisted(frame) if count else frame, count, schemas)
        release = Release.of(bounds, tables, plan=plan, rows=total, records=copies)
        yield release, ReleaseCount(total, copies, waiting, waiting_due, conflict)


def _counted(
    rows: DataFrame, bounds: ReleaseBounds
) -> tuple[int, int, dict[str, int], Conflict | None]:
    """Return the numbers of rows and records, those with a value by topic, and a conflict.

    Checks the bounds and the ordinals.
    """
    first = F.concat_ws("/", "topic", "topic_partition", "offset").alias("first")
    last = F.concat_ws("/", "last.topic", "last.topic_partition", "last.offset").alias("last")
    conflict = F.when(F.col("is_conflict"), F.struct("order_key", first, last))
    found = (
        rows.groupBy("topic")
        .agg(
            F.count("*").alias("rows"),
            F.sum("copies").alias("copies"),
            F.count_if("is_conflict").alias("conflicts"),
            F.min(conflict).alias("conflict"),
            F.count("value").alias("values"),
            F.min("order_key").alias("first"),
            F.max("order_key").alias("last"),
            F.max("ordinal").alias("ordinal_max"),
        )
        .collect()
    )
    total = sum(row["rows"] for row in found)
    for row in found:
        invariant(
            bytes(row["first"]) >= first_key_after(bounds.after_us)
            and bytes(row["last"]) < first_key_after(bounds.through_us),
            "a release holds changes outside its bounds",
            release=bounds.number,
            topic=row["topic"],
        )
    invariant(
        max((row["ordinal_max"] for row in found), default=-1) == total - 1,
        "a release's ordinals are not dense",
        release=bounds.number,
    )
    copies = sum(row["copies"] for row in found)
    return total, copies, {row["topic"]: row["values"] for row in found}, _conflict(found)


def _conflict(found: list[Row]) -> Conflict | None:
    """Return the conflict with the lowest order key."""
    examples = [row["conflict"] for row in found if row["conflict"] is not None]
    if not examples:
        return None
    one = min(examples, key=lambda example: bytes(example["order_key"]))
    return Conflict(
        changes=sum(row["conflicts"] for row in found),
        commit_timestamp_us=OrderKey.decode(bytes(one["order_key"])).commit_timestamp_us,
        first=one["first"],
        last=one["last"],
    )
