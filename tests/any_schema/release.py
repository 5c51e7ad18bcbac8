"""Rows of a release in the gate's columns, as the release that sinks take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tests.topics import ROWS_SCHEMA
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas

NAMES = tuple(column.split()[0] for column in ROWS_SCHEMA.split(", "))


def release_of(
    spark: Any,
    rows: Sequence[tuple[Any, ...]],
    schemas: Mapping[str, TopicSchemas],
    *,
    number: int,
    small: bool,
    through_us: int | None = None,
    query_id: str = "query-1",
    alter: Callable[[Any], Any] | None = None,
) -> Any:
    """Return a release of rows in commit order; `schemas` are by topic.

    `alter` changes the rows before they are decoded; a `small` release is decoded in memory.
    """
    from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

    from tidegate.spark_consumer.sinks.decoding import decode_changes
    from tidegate.spark_consumer.sinks.port import (
        CollectedTable,
        DecodedTable,
        Release,
        SourceRecord,
    )
    from tidegate.spark_consumer.sinks.row_decoding import decode_rows

    frame = spark.createDataFrame(list(rows), ROWS_SCHEMA).repartition(2)
    frame = frame.withColumn("release", F.lit(number).cast("long"))
    frame = frame if alter is None else alter(frame)
    tables: dict[str, Any] = {}
    in_memory = [dict(zip(NAMES, row, strict=True)) for row in rows]
    if alter is not None and small:
        collected = sorted(frame.collect(), key=lambda row: row["ordinal"])
        in_memory = [row.asDict() for row in collected]
    for topic, of_topic in schemas.items():
        decoded = decode_changes(frame, of_topic, topic=topic)
        count = sum(row[0] == topic for row in rows)
        tables[topic] = DecodedTable(spark, lambda f=decoded: f, count, of_topic)
        if small:
            own = [row for row in in_memory if row["topic"] == topic]
            changes = decode_rows(own, of_topic, release=number)
            tables[topic] = CollectedTable(spark, lambda f=decoded: f, changes, of_topic)

    def source_records() -> Iterable[SourceRecord]:
        columns = SourceRecord._fields
        for row in frame.orderBy("ordinal").select(*columns).toLocalIterator():
            yield SourceRecord(*(bytes(one) if isinstance(one, bytearray) else one for one in row))

    return Release(
        source_records=source_records,
        number=number,
        after_us=number * 1_000_000,
        through_us=(number + 1) * 1_000_000 if through_us is None else through_us,
        query_id=query_id,
        batch=number,
        rows=len(rows),
        value_bytes=sum(len(row["value"] or b"") for row in in_memory),
        tables=tables,
    )
