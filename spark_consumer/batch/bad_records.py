"""Records of data topics that are no changes, and how a batch sets them aside as dead letters.

Records without an order key are set aside with the batch that reads them.  All others are within
the bounds of some release, and whether one can be decoded is found where it would be released: by
Spark for a large release, in the driver for a small one.  So nothing that waits in a segment is in
the way of a run that sets such records aside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.types import StringType, StructField, StructType

from tidegate.schemas.topics import HEADER_MOD, HEADER_ORDER, HEADER_ORIGIN
from tidegate.spark_consumer.batch.rows import (
    CHANGE_SCHEMA,
    HEADERS,
    IS_PROGRESS,
    has_order_key,
)
from tidegate.spark_consumer.batch.schema_ids import SchemaIds
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas
from tidegate.spark_consumer.sinks.decoding import why_unreadable
from tidegate.spark_consumer.sinks.row_decoding import find_undecodable

NO_SCHEMA_OF_TOPIC = "no record of its topic names a schema that is known"
_NO_ORDER_KEY = "its first header is no order key"

_REASON = "reason"
_WITH_REASON = StructType([*CHANGE_SCHEMA, StructField(_REASON, StringType())])
_ORIGIN_DIGITS = 16

Place = tuple[str, int, int]
"""Topic, topic partition and offset of a record."""


class DeadLetterRows(Protocol):
    """Where records are kept that are no changes."""

    def write(self, rows: DataFrame, *, query_id: str, batch: int, release: int | None) -> int:
        """Append the dead letters of a batch, or of one of its releases; idempotent by that.

        Returns how many of them were written, by this call or an earlier one.
        """
        ...


@dataclass(frozen=True, slots=True)
class BadRecords:
    """What a query does about them; a plan that sets some aside is followed in any case."""

    ids: SchemaIds
    table: DeadLetterRows
    sets_aside: bool


def unordered_rows(rows: DataFrame) -> DataFrame:
    """Return the data rows of a batch that have no order key, as dead letters."""
    found = rows.where(~F.col(IS_PROGRESS) & ~has_order_key())
    return found.withColumn(_REASON, F.lit(_NO_ORDER_KEY))


def unreadable_rows(rows: DataFrame, topics: Mapping[str, TopicSchemas]) -> DataFrame:
    """Return the rows of a release that its schemas cannot decode, each with the reason."""
    return rows.withColumn(_REASON, _reason(topics)).where(F.col(_REASON).isNotNull())


def readable_rows(rows: DataFrame, topics: Mapping[str, TopicSchemas]) -> DataFrame:
    """Return the other rows."""
    return rows.where(is_readable(topics))


def is_readable(topics: Mapping[str, TopicSchemas]) -> Column:
    """Condition: these schemas can decode the row."""
    return _reason(topics).isNull()


def reasons_of(
    records: Iterable[Mapping[str, Any]], topics: Mapping[str, TopicSchemas]
) -> dict[Place, str]:
    """Return the reason for each record of a small release that its schemas cannot decode."""
    of_topic: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        of_topic.setdefault(record["topic"], []).append(record)
    reasons: dict[Place, str] = {}
    for topic, found in of_topic.items():
        if topic in topics:
            for record, error in find_undecodable(found, topics[topic]):
                reasons[place_of(record)] = error.message
        else:
            unknown = (record for record in found if record["value"] is not None)
            reasons |= {place_of(record): NO_SCHEMA_OF_TOPIC for record in unknown}
    return reasons


def frame_of(
    spark: SparkSession, records: Sequence[Mapping[str, Any]], reasons: Mapping[Place, str]
) -> DataFrame:
    """Return the records of a small release that have a reason, as `unreadable_rows` does."""
    names = CHANGE_SCHEMA.fieldNames()
    rows = [
        (*(record[name] for name in names), reasons[place_of(record)])
        for record in records
        if place_of(record) in reasons
    ]
    return spark.createDataFrame(rows, _WITH_REASON)


def without(rows: DataFrame, places: Iterable[Place]) -> DataFrame:
    """Return rows that stand in other places."""
    texts = ["/".join(map(str, place)) for place in places]
    place = F.concat_ws("/", "topic", F.col("topic_partition"), F.col("offset"))
    return rows.where(~place.isin(texts))


def place_of(record: Mapping[str, Any]) -> Place:
    """Return where a record stands."""
    return record["topic"], record["topic_partition"], record["offset"]


def as_dead_letters(rows: DataFrame) -> DataFrame:
    """Return rows of `unreadable_rows` with the headers that the gate's columns were read from."""
    origin = F.unhex(F.lpad(F.hex("origin"), _ORIGIN_DIGITS, "0"))
    headers = F.array(
        _header(HEADER_ORDER, F.col("order_key")),
        _header(HEADER_MOD, F.encode("mod", "UTF-8")),
        _header(HEADER_ORIGIN, origin),
    )
    return rows.withColumn(HEADERS, F.filter(headers, lambda one: one["value"].isNotNull()))


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.alias("value"))


def _reason(topics: Mapping[str, TopicSchemas]) -> Column:
    """Return why a row cannot be decoded; null where it can be, or has no value."""
    reason = F.lit(NO_SCHEMA_OF_TOPIC)
    for topic, schemas in topics.items():
        reason = F.when(F.col("topic") == topic, why_unreadable(schemas)).otherwise(reason)
    return F.when(F.col("value").isNotNull(), reason)
