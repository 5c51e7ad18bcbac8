"""The columns of a batch's rows, comparisons of their order keys, and the Kafka source of them.

Bounds are commit timestamps and are compared as bytes with the order key, so no row is converted.
The source is one stream: the data topics, limited per batch, and the progress topic, unlimited.
The progress topic comes first, so Spark reads its end before the data topics' ends: the same batch
then usually has the changes that the newest snapshots name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from tidegate.lineage.subscription import Subscription
from tidegate.schemas.order_key import TIMESTAMP_BYTES, first_key_after
from tidegate.schemas.topics import HEADER_MOD, HEADER_ORDER, HEADER_ORIGIN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


IS_PROGRESS = "is_progress"
"""Marks the rows of the progress topic."""

CHANGE_SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("topic_partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("order_key", BinaryType()),
        StructField("mod", StringType()),
        StructField("origin", LongType()),
    ]
)
"""A change as the gate stores it: raw bytes, so that no new schema can break waiting changes."""

HEADERS = "headers"
"""All headers of a row without an order key; null for other rows."""

HEADER_TYPE = "array<struct<key:string,value:binary>>"

ORDER_KEY_BYTES_MIN = 29
"""Timestamp, an empty transaction id with its zero byte, record sequence, mod number."""

_AFTER_ALL_TIMES = first_key_after(253_402_300_799_999_999)
"""Above the order key of every commit timestamp: those end with the year 9999."""

_ORIGIN_BYTES = 8

CHANGE_COLUMNS = tuple(CHANGE_SCHEMA.fieldNames())


def kafka_columns(frame: DataFrame, *, is_progress: bool) -> DataFrame:
    """Return rows of Spark's Kafka source (with headers) in the gate's columns.

    `order_key` is null where the first header is not an order key, and `origin`, a signed number,
    where the third one does not name a stream partition: older programs wrote none.  Records of
    data topics without a value are left out: a tombstone is not a change.
    """
    changes = frame if is_progress else frame.where(F.col("value").isNotNull())
    order_key = _order_key()
    return changes.select(
        F.lit(is_progress).alias(IS_PROGRESS),
        "topic",
        F.col("partition").alias("topic_partition"),
        "offset",
        "key",
        "value",
        order_key.alias("order_key"),
        F.decode(_header(1, HEADER_MOD), "UTF-8").alias("mod"),
        _signed(_header(2, HEADER_ORIGIN)).alias("origin"),
        F.when(F.lit(not is_progress) & order_key.isNull(), F.col(HEADERS)).alias(HEADERS),
    )


def _order_key() -> Column:
    """Return the header with the order key; null where its value cannot be an order key."""
    header = _header(0, HEADER_ORDER)
    is_key = (F.length(header) >= ORDER_KEY_BYTES_MIN) & (
        header < F.lit(bytearray(_AFTER_ALL_TIMES))
    )
    return F.when(is_key, header)


def has_order_key() -> Column:
    """Condition: the row is a change; a data row without an order key is another program's."""
    return F.expr(f"coalesce(length(order_key) >= {ORDER_KEY_BYTES_MIN}, FALSE)")


def within(*, after_us: int, through_us: int) -> Column:
    """Condition: `after_us` < commit timestamp <= `through_us`."""
    return ~at_or_below(after_us) & at_or_below(through_us)


def at_or_below(through_us: int) -> Column:
    """Condition: commit timestamp <= `through_us`."""
    return F.col("order_key") < F.lit(bytearray(first_key_after(through_us)))


def commit_us() -> Column:
    """Return the commit timestamp that `order_key` begins with, in microseconds since 1970."""
    return F.conv(F.hex(F.substring("order_key", 1, TIMESTAMP_BYTES)), 16, 10).cast("long")


def transaction_begin() -> Column:
    """Return the common prefix of the order keys of a transaction's changes: commit time and id.

    It sorts as the order keys do, and before each of them.
    """
    rest = ORDER_KEY_BYTES_MIN - TIMESTAMP_BYTES - 1
    return F.expr(f"substring(order_key, 1, length(order_key) - {rest})")


def _signed(eight_bytes: Column) -> Column:
    """Return a big-endian number of 8 bytes; null for another length."""
    number = F.conv(F.hex(eight_bytes), 16, -10).cast("long")
    return F.when(F.length(eight_bytes) == _ORIGIN_BYTES, number)


def _header(place: int, name: str) -> Column:
    header = F.get(F.col("headers"), F.lit(place))
    return F.when(header["key"] == name, header["value"])


def source_options(bootstrap_servers: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a Kafka source of Spark.

    `options` are those of Java's client, and may hold secrets.
    """
    return {
        **{f"kafka.{name}": value for name, value in options.items()},
        "kafka.bootstrap.servers": bootstrap_servers,
        # Records of aborted and of open transactions are not changes.
        "kafka.isolation.level": "read_committed",
        "startingOffsets": "earliest",
        "failOnDataLoss": "true",
        "includeHeaders": "true",
        # A batch reads existing records.  But its last offset in a topic partition is usually a
        # transaction's marker, and a fetch after it would wait half a second for more records:
        # with sixteen slots that took six seconds of every batch.
        "kafka.fetch.max.wait.ms": "20",
    }


def kafka_rows(
    spark: SparkSession,
    *,
    bootstrap_servers: str,
    subscription: Subscription,
    changes_per_batch_max: int,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the unbounded frame of the progress topic and the data topics, in the gate's columns.

    `options` as for `source_options`.
    """
    common = source_options(bootstrap_servers, options or {})
    # A task per core: in most batches a topic partition has too little for its own task.
    tasks = max(1, spark.sparkContext.defaultParallelism)
    reader = spark.readStream.format("kafka").options(**common)
    progress = reader.option("subscribe", subscription.progress_topic).load().coalesce(tasks)
    reader = spark.readStream.format("kafka").options(**common)
    data = (
        reader.option("subscribePattern", subscription.data_pattern)
        .option("maxOffsetsPerTrigger", changes_per_batch_max)
        .load()
        .coalesce(tasks)
    )
    changes = kafka_columns(data, is_progress=False)
    return kafka_columns(progress, is_progress=True).unionByName(changes)


def topic_rows(
    spark: SparkSession, topic: str, *, bootstrap_servers: str, options: Mapping[str, str]
) -> DataFrame:
    """Return the committed records of a topic, up to its end when the frame is run.

    `options` as for `source_options`.  The columns are those of Spark's source.
    """
    reader = spark.read.format("kafka").options(**source_options(bootstrap_servers, options))
    return reader.option("subscribe", topic).option("endingOffsets", "latest").load()
