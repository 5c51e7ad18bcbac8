"""A release, made from its rows: counted in one Spark job, each table decoded once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.schemas.errors import invariant
from tidegate.schemas.order_key import OrderKey
from tidegate.spark_consumer.batch.bad_records import NO_SCHEMA_OF_TOPIC
from tidegate.spark_consumer.batch.release_order import (
    PLACE,
    SLICE,
    edges_of,
    is_outside,
    numbered,
)
from tidegate.spark_consumer.batch.row_sums import HALF_BITS, high_half, low_half
from tidegate.spark_consumer.batch.segments import ReleaseRows
from tidegate.spark_consumer.core.origin_sums import NO_CHANGES_OF_ORIGIN, OriginSum, Pair
from tidegate.spark_consumer.core.plan import Plan, ReleaseBounds
from tidegate.spark_consumer.core.release import first_ordinals
from tidegate.spark_consumer.core.row_sums import CHECKSUM_MODULUS, Conflict, ReleaseCount
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas, by_table
from tidegate.spark_consumer.errors import BAD_RECORD_HINT, UnknownSchema
from tidegate.spark_consumer.sinks.decoding import decode_changes
from tidegate.spark_consumer.sinks.port import AnyTable, DecodedTable, Release, SourceRecord

_KEY_HASH = "key_hash"


@contextmanager
def decoded_release(
    rows: ReleaseRows, bounds: ReleaseBounds, *, plan: Plan, topics: Mapping[str, TopicSchemas]
) -> Iterator[tuple[Release, ReleaseCount]]:
    """Decode a release's rows (a frame of `in_order`) for the sinks.

    Frames are persisted as they are first read, and freed after the block.  Raises
    InvariantViolation if rows lie outside their slice or its places are not dense.
    """
    with ExitStack() as frames:

        def persisted(frame: DataFrame) -> DataFrame:
            frames.callback(frame.unpersist)
            return frame.persist(StorageLevel.MEMORY_AND_DISK)

        kept = persisted(rows.frame)
        count = _counted(kept, bounds, rows.inner_cuts)
        _require_topics(kept, count, topics)
        waiting, waiting_due = rows.waiting
        ordered = numbered(kept, count.first_ordinals, release=bounds.number)
        # Keeping decoded rows costs more than the decoding that a single sink does anyway.
        keep = persisted if len(plan.sinks) > 1 else _as_it_is

        def table(topic: str, schemas: TopicSchemas) -> DecodedTable:
            return DecodedTable(
                kept.sparkSession,
                lambda: keep(decode_changes(ordered, schemas, topic=topic)),
                sum(count.by_topic.get(one, 0) for one in schemas.read_from(topic)),
                schemas,
                is_ordered=True,
            )

        tables: dict[str, AnyTable] = {
            topic: table(topic, schemas) for topic, schemas in by_table(topics).items()
        }
        release = Release.of(
            bounds,
            tables,
            plan=plan,
            rows=count.rows,
            records=count.copies,
            source_records=lambda: _source_records(ordered),
        )
        conflict = _first_conflict(kept, count.conflicts) if count.conflicts else None
        yield (
            release,
            ReleaseCount(
                count.rows, count.copies, waiting, waiting_due, conflict, origins=count.origins
            ),
        )


def _source_records(ordered: DataFrame) -> Iterator[SourceRecord]:
    """Yield the changes in order; the driver holds one slice of them at a time."""
    found = ordered.where(F.col("value").isNotNull()).select(*SourceRecord._fields)
    for ordinal, topic, key, value, order_key, mod, origin in found.toLocalIterator():
        yield SourceRecord(ordinal, topic, bytes(key), bytes(value), bytes(order_key), mod, origin)


def _as_it_is(frame: DataFrame) -> DataFrame:
    return frame


@dataclass(frozen=True, slots=True)
class _Count:
    """Figures of a release: changes, records, changes with a value by topic, conflicts, sums."""

    rows: int
    copies: int
    by_topic: Mapping[str, int]
    conflicts: int
    first_ordinals: Sequence[int]
    origins: Mapping[Pair, OriginSum]


def _counted(rows: DataFrame, bounds: ReleaseBounds, inner_cuts: Sequence[bytes]) -> _Count:
    """Count a release by slice, topic and origin; check that slices hold their own changes."""
    # Numbers only: for an aggregate of bytes Spark would sort all rows by topic.
    found = (
        rows.withColumn(_KEY_HASH, F.xxhash64("order_key"))
        .groupBy(SLICE, "topic", "origin")
        .agg(
            F.count("*").alias("rows"),
            F.sum("copies").alias("copies"),
            F.count_if("is_conflict").alias("conflicts"),
            F.count("value").alias("values"),
            F.count_if(is_outside(bounds, inner_cuts)).alias("outside"),
            F.max(PLACE).alias("place_max"),
            F.sum(F.length("value")).alias("value_bytes"),
            F.sum(low_half(_KEY_HASH)).alias("low"),
            F.sum(high_half(_KEY_HASH)).alias("high"),
        )
        .collect()
    )
    for row in found:
        invariant(
            row["outside"] == 0,
            "a release holds changes outside its bounds",
            release=bounds.number,
            topic=row["topic"],
            slice=row[SLICE],
        )
    slices = len(edges_of(bounds, inner_cuts)) - 1
    changes = [sum(row["rows"] for row in found if row[SLICE] == n) for n in range(slices)]
    for number, of_slice in enumerate(changes):
        last = max((row["place_max"] for row in found if row[SLICE] == number), default=-1)
        invariant(
            last == of_slice - 1,
            "a release's ordinals are not dense",
            release=bounds.number,
            slice=number,
        )
    by_topic: dict[str, int] = {}
    for row in found:
        by_topic[row["topic"]] = by_topic.get(row["topic"], 0) + row["values"]
    origins: dict[Pair, OriginSum] = {}
    for row in found:
        pair = row["origin"], row["topic"]
        checksum = (row["low"] + (row["high"] << HALF_BITS)) % CHECKSUM_MODULUS
        one = OriginSum(row["rows"], row["value_bytes"] or 0, checksum)
        origins[pair] = origins.get(pair, NO_CHANGES_OF_ORIGIN) + one
    return _Count(
        rows=sum(changes),
        copies=sum(row["copies"] for row in found),
        by_topic=by_topic,
        conflicts=sum(row["conflicts"] for row in found),
        first_ordinals=first_ordinals(changes),
        origins=origins,
    )


def _require_topics(rows: DataFrame, count: _Count, topics: Mapping[str, TopicSchemas]) -> None:
    """Raise UnknownSchema for changes of a topic that the plan names no schema of."""
    unknown = sorted(topic for topic, n in count.by_topic.items() if n and topic not in topics)
    if unknown:
        (found,) = rows.where((F.col("topic") == unknown[0]) & F.col("value").isNotNull()).take(1)
        raise UnknownSchema(
            NO_SCHEMA_OF_TOPIC,
            hint=BAD_RECORD_HINT,
            topic=found["topic"],
            topic_partition=found["topic_partition"],
            offset=found["offset"],
        )


def _first_conflict(rows: DataFrame, conflicts: int) -> Conflict:
    """Return the conflict with the lowest order key, in a job of its own: it ends the batch."""
    (found,) = rows.where("is_conflict").orderBy("order_key").take(1)
    return Conflict(
        changes=conflicts,
        commit_timestamp_us=OrderKey.decode(bytes(found["order_key"])).commit_timestamp_us,
        first=_place(found),
        last=_place(found["last"]),
    )


def _place(row: Row) -> str:
    return f"{row['topic']}/{row['topic_partition']}/{row['offset']}"
