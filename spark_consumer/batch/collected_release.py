"""A small release: its records are in the driver, which removes copies, numbers and decodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from tidegate.schemas.errors import invariant
from tidegate.schemas.order_key import OrderKey, first_key_after
from tidegate.spark_consumer.batch.bad_records import NO_SCHEMA_OF_TOPIC
from tidegate.spark_consumer.batch.release_order import numbered
from tidegate.spark_consumer.core.origin_sums import sum_by_origin
from tidegate.spark_consumer.core.plan import Plan, ReleaseBounds
from tidegate.spark_consumer.core.row_sums import Conflict, ReleaseCount
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas, by_table
from tidegate.spark_consumer.errors import BAD_RECORD_HINT, UnknownSchema
from tidegate.spark_consumer.sinks.decoding import decode_changes
from tidegate.spark_consumer.sinks.port import CollectedTable, Release, SourceRecord
from tidegate.spark_consumer.sinks.row_decoding import decode_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
    _require_topics(records, topics)
    of_change: dict[bytes, list[Mapping[str, Any]]] = {}
    for record in records:
        of_change.setdefault(bytes(record["order_key"]), []).append(record)
    of_topic: dict[str, list[Mapping[str, Any]]] = {topic: [] for topic in topics}
    changes: list[Mapping[str, Any]] = []
    for ordinal, order_key in enumerate(sorted(of_change)):
        first = min(of_change[order_key], key=_place)
        changes.append({**first, "ordinal": ordinal})
        of_topic.setdefault(first["topic"], []).append(changes[-1])
    ordered = cache(lambda: numbered(in_order(), [0], release=bounds.number))
    conflict = _first_conflict(of_change)
    # What somebody else's record holds may not be decodable, and would hide where it stands.
    decoded = of_topic if conflict is None else {}

    def table(topic: str, schemas: TopicSchemas) -> CollectedTable:
        return CollectedTable(
            spark,
            lambda: decode_changes(ordered(), schemas, topic=topic),
            decode_rows(
                _in_order(decoded.get(one, ()) for one in schemas.read_from(topic)),
                schemas,
                release=bounds.number,
            ),
            schemas,
        )

    tables = {topic: table(topic, schemas) for topic, schemas in by_table(topics).items()}
    rows, copies = len(of_change), len(records)
    release = Release.of(
        bounds,
        tables,
        plan=plan,
        rows=rows,
        records=copies,
        source_records=lambda: _source_records(changes),
    )
    origins = sum_by_origin(
        (one["origin"], topic, bytes(one["order_key"]), len(one["value"] or b""))
        for topic, found in of_topic.items()
        for one in found
    )
    return release, ReleaseCount(rows, copies, conflict=conflict, origins=origins)


def _in_order(of_topics: Iterable[Iterable[Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    """Return the changes of a table's topics by their ordinals."""
    return sorted((one for found in of_topics for one in found), key=lambda one: one["ordinal"])


def _source_records(changes: Iterable[Mapping[str, Any]]) -> Iterator[SourceRecord]:
    for one in changes:
        if one["value"] is not None:
            yield SourceRecord(
                one["ordinal"],
                one["topic"],
                bytes(one["key"]),
                bytes(one["value"]),
                bytes(one["order_key"]),
                one["mod"],
                one["origin"],
            )


def _place(record: Mapping[str, Any]) -> tuple[str, int, int]:
    return record["topic"], record["topic_partition"], record["offset"]


def _first_conflict(of_change: Mapping[bytes, Sequence[Mapping[str, Any]]]) -> Conflict | None:
    """Return the conflict with the lowest order key."""
    conflicts = sorted(key for key, records in of_change.items() if _is_conflict(records))
    if not conflicts:
        return None
    places = sorted(map(_place, of_change[conflicts[0]]))
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


def _require_topics(
    records: Iterable[Mapping[str, Any]], topics: Mapping[str, TopicSchemas]
) -> None:
    for record in records:
        if record["topic"] not in topics and record["value"] is not None:
            topic, topic_partition, offset = _place(record)
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
