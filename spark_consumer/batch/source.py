"""Kafka as one stream: the data topics, limited per batch, and the progress topic, unlimited.

The progress topic comes first, so Spark reads its end before the data topics' ends: the same batch
then usually has what the newest snapshots name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidegate.lineage.subscription import Subscription
from tidegate.spark_consumer.batch.rows import kafka_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def source_options(bootstrap_servers: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of both sources; `options` are those of Java's client, maybe secrets."""
    return {
        **{f"kafka.{name}": value for name, value in options.items()},
        "kafka.bootstrap.servers": bootstrap_servers,
        # Records of aborted and of open transactions are not changes.
        "kafka.isolation.level": "read_committed",
        "startingOffsets": "earliest",
        "failOnDataLoss": "true",
        "includeHeaders": "true",
        # A batch reads existing records.  But its last offset in a topic partition is usually a
        # transaction's marker, and a fetch behind it would wait half a second for more records:
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
    """Return the unbounded frame of both, in the gate's columns; `options` as for the sources."""
    common = source_options(bootstrap_servers, options or {})
    # A task per core: in most batches a topic partition has too little for a task of its own.
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
    """Return what is committed in a topic, up to its end when the frame is run.

    `options` as for the sources.  The columns are those of Spark's source.
    """
    reader = spark.read.format("kafka").options(**source_options(bootstrap_servers, options))
    return reader.option("subscribe", topic).option("endingOffsets", "latest").load()
