"""The changes of a batch as sinks take them before a release: decoded, as Kafka has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.spark_consumer.sinks.decoding import decode_changes
from tidegate.spark_consumer.sinks.handed_batch import HandedBatch
from tidegate.spark_consumer.sinks.port import DecodedTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from tidegate.spark_consumer.core.plan import Plan
    from tidegate.spark_consumer.core.topic_schemas import TopicSchemas

__all__ = ["handed_batch"]

_OF_A_RELEASE = ("release", "ordinal")


def handed_batch(rows: DataFrame, *, plan: Plan, topics: Mapping[str, TopicSchemas]) -> HandedBatch:
    """Return all changes of a batch (the gate's columns), counted by topic in one Spark job."""
    counts = {row["topic"]: row["rows"] for row in _counted(rows).collect()}
    placed = rows.withColumns({name: F.lit(None).cast("long") for name in _OF_A_RELEASE})

    def table(topic: str, schemas: TopicSchemas) -> DecodedTable:
        def decoded() -> DataFrame:
            changes = decode_changes(placed, schemas, topic=topic).drop(*_OF_A_RELEASE)
            return changes.select(F.lit(plan.batch).cast("long").alias("batch"), "*")

        return DecodedTable(rows.sparkSession, decoded, counts.get(topic, 0), schemas)

    return HandedBatch(
        number=plan.batch,
        query_id=plan.query_id,
        watermark_us=plan.through_us,
        rows=sum(counts.values()),
        tables={topic: table(topic, schemas) for topic, schemas in topics.items()},
    )


def _counted(rows: DataFrame) -> DataFrame:
    return rows.groupBy("topic").agg(F.count("*").alias("rows"))
