"""Kafka as one stream: the data topics, capped per batch, and the progress topic, never capped.

The progress topic stands first, so that its end is asked for before the data topics' ends: what its
newest snapshots name has then most often been reached in the same batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.spark_consumer.spark.rows import kafka_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from tidegate.spark_consumer.core.subscription import Subscription

__all__ = ["kafka_rows", "source_options"]


def source_options(bootstrap_servers: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return what both sources are given; `options` are those of Java's client, maybe secrets."""
    return {
        **{f"kafka.{name}": value for name, value in options.items()},
        "kafka.bootstrap.servers": bootstrap_servers,
        # Aborted transactions are no changes, and open ones none yet.
        "kafka.isolation.level": "read_committed",
        "startingOffsets": "earliest",
        "failOnDataLoss": "true",
        "includeHeaders": "true",
        # A batch reads what is there already.  But its last record in a topic partition is most
        # often a transaction's marker, and a fetch behind it would wait half a second for more:
        # with sixteen slots that made six seconds of every batch.
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
    """Return the unbounded frame of both, in the gate's columns; `options` as above."""
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
