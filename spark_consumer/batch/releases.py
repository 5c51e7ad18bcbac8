"""Releases made from their rows: by Spark, or in the driver for a small one; and batches by key.

A large release is counted in one Spark job, and each table is decoded once.  The records of a small
release are in the driver, which removes copies, numbers and decodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.schemas.checksums import CHECKSUM_MODULUS
from tidegate.schemas.errors import invariant
from tidegate.schemas.order_key import OrderKey, first_key_after
from tidegate.spark_consumer.batch.bad_records import NO_SCHEMA_OF_TOPIC, is_readable
from tidegate.spark_consumer.batch.change_counts import HALF_BITS, high_half, low_half
from tidegate.spark_consumer.batch.release_order import (
    PLACE,
    SLICE,
    edges_of,
    is_outside,
    numbered,
)
from tidegate.spark_consumer.batch.rows import has_order_key
from tidegate.spark_consumer.batch.segments import ReleaseRows
from tidegate.spark_consumer.core.plan import Plan, ReleaseBounds
from tidegate.spark_consumer.core.release import first_ordinals
from tidegate.spark_consumer.core.sums import (
    NO_CHANGES_OF_ORIGIN,
    Conflict,
    OriginSum,
    Pair,
    ReleaseCount,
    sum_by_origin,
)
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas, by_table
from tidegate.spark_consumer.errors import BAD_RECORD_HINT, UnknownSchema
from tidegate.spark_consumer.sinks.decoding import decode_changes
from tidegate.spark_consumer.sinks.handed_batch import HandedBatch
from tidegate.spark_consumer.sinks.port import (
    AnyTable,
    CollectedTable,
    DecodedTable,
    Release,
    SourceRecord,
)
from tidegate.spark_consumer.sinks.row_decoding import decode_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_KEY_HASH = "key_hash"


@contextmanager
def decoded_release(
    rows: ReleaseRows, bounds: ReleaseBounds, *, plan: Plan, topics: Mapping[str, TopicSchemas]
) -> Iterator[tuple[Release, ReleaseCount]]:
    """Decode a release's rows (a frame of `in_order`) for the sinks.

    A frame is persisted when it is first read, and freed after the block.  Raises
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
                sum(count.by_topic.get(read_topic, 0) for read_topic in schemas.read_from(topic)),
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
            value_bytes=_value_bytes(count.origins),
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
    changes = ordered.where(F.col("value").isNotNull()).select(*SourceRecord._fields)
    for ordinal, topic, key, value, order_key, mod, origin in changes.toLocalIterator():
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
    figures = (
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
    for row in figures:
        invariant(
            row["outside"] == 0,
            "a release holds changes outside its bounds",
            release=bounds.number,
            topic=row["topic"],
            slice=row[SLICE],
        )
    slices = len(edges_of(bounds, inner_cuts)) - 1
    changes = [sum(row["rows"] for row in figures if row[SLICE] == n) for n in range(slices)]
    for number, of_slice in enumerate(changes):
        last = max((row["place_max"] for row in figures if row[SLICE] == number), default=-1)
        invariant(
            last == of_slice - 1,
            "a release's ordinals are not dense",
            release=bounds.number,
            slice=number,
        )
    by_topic: dict[str, int] = {}
    for row in figures:
        by_topic[row["topic"]] = by_topic.get(row["topic"], 0) + row["values"]
    origins: dict[Pair, OriginSum] = {}
    for row in figures:
        pair = row["origin"], row["topic"]
        checksum = (row["low"] + (row["high"] << HALF_BITS)) % CHECKSUM_MODULUS
        total = OriginSum(row["rows"], row["value_bytes"] or 0, checksum)
        origins[pair] = origins.get(pair, NO_CHANGES_OF_ORIGIN) + total
    return _Count(
        rows=sum(changes),
        copies=sum(row["copies"] for row in figures),
        by_topic=by_topic,
        conflicts=sum(row["conflicts"] for row in figures),
        first_ordinals=first_ordinals(changes),
        origins=origins,
    )


def _require_topics(rows: DataFrame, count: _Count, topics: Mapping[str, TopicSchemas]) -> None:
    """Raise UnknownSchema for changes of a topic that the plan names no schema of."""
    unknown = sorted(topic for topic, n in count.by_topic.items() if n and topic not in topics)
    if unknown:
        (record,) = rows.where((F.col("topic") == unknown[0]) & F.col("value").isNotNull()).take(1)
        raise UnknownSchema(
            NO_SCHEMA_OF_TOPIC,
            hint=BAD_RECORD_HINT,
            topic=record["topic"],
            topic_partition=record["topic_partition"],
            offset=record["offset"],
        )


def _first_conflict(rows: DataFrame, conflicts: int) -> Conflict:
    """Return the conflict with the lowest order key, in its own job: it ends the batch."""
    (record,) = rows.where("is_conflict").orderBy("order_key").take(1)
    return Conflict(
        changes=conflicts,
        commit_timestamp_us=OrderKey.decode(bytes(record["order_key"])).commit_timestamp_us,
        first=_place(record),
        last=_place(record["last"]),
    )


def _place(row: Row) -> str:
    return f"{row['topic']}/{row['topic_partition']}/{row['offset']}"


def collected_release(
    records: Sequence[Mapping[str, Any]],
    bounds: ReleaseBounds,
    *,
    plan: Plan,
    topics: Mapping[str, TopicSchemas],
    spark: SparkSession,
    in_order: Callable[[], DataFrame],
) -> tuple[Release, ReleaseCount]:
    """Make a release of its records (the gate's columns, copies too, in any order).

    The release is the one that `decoded_release` makes of the same records; `in_order` returns its
    frame, for sinks that need one.  If the count names a conflict, the tables hold no changes: such
    a release is not written.  Raises InvariantViolation if records lie outside the bounds,
    UndecodableRecord for bytes that do not fit their schema.
    """
    _require_bounds(records, bounds)
    _require_schemas(records, topics)
    of_change: dict[bytes, list[Mapping[str, Any]]] = {}
    for record in records:
        of_change.setdefault(bytes(record["order_key"]), []).append(record)
    of_topic: dict[str, list[Mapping[str, Any]]] = {topic: [] for topic in topics}
    changes: list[Mapping[str, Any]] = []
    for ordinal, order_key in enumerate(sorted(of_change)):
        first = min(of_change[order_key], key=_place_of)
        changes.append({**first, "ordinal": ordinal})
        of_topic.setdefault(first["topic"], []).append(changes[-1])
    ordered = cache(lambda: numbered(in_order(), [0], release=bounds.number))
    conflict = _conflict_among(of_change)
    # The record of another writer may not be decodable: that error would hide its place.
    decoded = of_topic if conflict is None else {}

    def table(topic: str, schemas: TopicSchemas) -> CollectedTable:
        return CollectedTable(
            spark,
            lambda: decode_changes(ordered(), schemas, topic=topic),
            decode_rows(
                _in_order(decoded.get(read_topic, ()) for read_topic in schemas.read_from(topic)),
                schemas,
                release=bounds.number,
            ),
            schemas,
        )

    tables = {topic: table(topic, schemas) for topic, schemas in by_table(topics).items()}
    rows, copies = len(of_change), len(records)
    origins = sum_by_origin(
        (change["origin"], topic, bytes(change["order_key"]), len(change["value"] or b""))
        for topic, of_one_topic in of_topic.items()
        for change in of_one_topic
    )
    release = Release.of(
        bounds,
        tables,
        plan=plan,
        rows=rows,
        records=copies,
        source_records=lambda: _collected_records(changes),
        value_bytes=_value_bytes(origins),
    )
    return release, ReleaseCount(rows, copies, conflict=conflict, origins=origins)


def _value_bytes(origins: Mapping[Pair, OriginSum]) -> int:
    return sum(one.value_bytes for one in origins.values())


def _in_order(of_topics: Iterable[Iterable[Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    """Return the changes of a table's topics by their ordinals."""
    return sorted(chain.from_iterable(of_topics), key=itemgetter("ordinal"))


def _collected_records(changes: Iterable[Mapping[str, Any]]) -> Iterator[SourceRecord]:
    for change in changes:
        if change["value"] is not None:
            yield SourceRecord(
                change["ordinal"],
                change["topic"],
                bytes(change["key"]),
                bytes(change["value"]),
                bytes(change["order_key"]),
                change["mod"],
                change["origin"],
            )


def _place_of(record: Mapping[str, Any]) -> tuple[str, int, int]:
    return record["topic"], record["topic_partition"], record["offset"]


def _conflict_among(of_change: Mapping[bytes, Sequence[Mapping[str, Any]]]) -> Conflict | None:
    """Return the conflict with the lowest order key."""
    conflicts = sorted(key for key, records in of_change.items() if _is_conflict(records))
    if not conflicts:
        return None
    places = sorted(map(_place_of, of_change[conflicts[0]]))
    first, last = ("/".join(map(str, place)) for place in (places[0], places[-1]))
    return Conflict(
        changes=len(conflicts),
        commit_timestamp_us=OrderKey.decode(conflicts[0]).commit_timestamp_us,
        first=first,
        last=last,
    )


def _is_conflict(records: Sequence[Mapping[str, Any]]) -> bool:
    first = records[0]
    return any(
        record[column] != first[column]
        for record in records[1:]
        for column in ("topic", "key", "value", "mod")
    )


def _require_schemas(
    records: Iterable[Mapping[str, Any]], topics: Mapping[str, TopicSchemas]
) -> None:
    for record in records:
        if record["topic"] not in topics and record["value"] is not None:
            topic, topic_partition, offset = _place_of(record)
            raise UnknownSchema(
                NO_SCHEMA_OF_TOPIC,
                hint=BAD_RECORD_HINT,
                topic=topic,
                topic_partition=topic_partition,
                offset=offset,
            )


def _require_bounds(records: Iterable[Mapping[str, Any]], bounds: ReleaseBounds) -> None:
    low, high = first_key_after(bounds.after_us), first_key_after(bounds.through_us)
    for record in records:
        invariant(
            low <= bytes(record["order_key"]) < high,
            "a release holds changes outside its bounds",
            release=bounds.number,
            topic=record["topic"],
        )


_RELEASE_COLUMNS = ("release", "ordinal")


def handed_batch(
    rows: DataFrame, *, plan: Plan, topics: Mapping[str, TopicSchemas], sets_aside: bool = False
) -> HandedBatch:
    """Return all changes of a batch (the gate's columns), counted by topic in one Spark job.

    `sets_aside`: without those that cannot be decoded, which otherwise fail where they are read.
    """
    is_change = is_readable(topics) if sets_aside else F.lit(True)  # noqa: FBT003 - Spark's own
    ordered = rows.where(has_order_key())
    figures = _count_by_topic(ordered, is_change).collect()
    counts = {row["topic"]: row["changes"] for row in figures}
    changes = ordered.where(is_change)
    placed = changes.withColumns({name: F.lit(None).cast("long") for name in _RELEASE_COLUMNS})

    def table(topic: str, schemas: TopicSchemas) -> DecodedTable:
        def decoded() -> DataFrame:
            frame = decode_changes(placed, schemas, topic=topic).drop(*_RELEASE_COLUMNS)
            return frame.select(F.lit(plan.batch).cast("long").alias("batch"), "*")

        count = sum(counts.get(read_topic, 0) for read_topic in schemas.read_from(topic))
        return DecodedTable(rows.sparkSession, decoded, count, schemas)

    return HandedBatch(
        number=plan.batch,
        query_id=plan.query_id,
        watermark_us=plan.through_us,
        rows=sum(counts.values()),
        left_out=sum(row["rows"] for row in figures) - sum(counts.values()),
        tables={topic: table(topic, schemas) for topic, schemas in by_table(topics).items()},
    )


def _count_by_topic(rows: DataFrame, is_change: Column) -> DataFrame:
    changes = F.count_if(is_change).alias("changes")
    return rows.groupBy("topic").agg(F.count("*").alias("rows"), changes)
