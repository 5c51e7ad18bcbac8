"""The changes of a batch as sinks take them before a release: decoded, as Kafka has them.

A record that is no change is not handed over.  It becomes a dead letter: at once where it has no
order key, with its release where it cannot be decoded.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.spark_consumer.batch.bad_records import is_readable
from tidegate.spark_consumer.batch.rows import has_order_key
from tidegate.spark_consumer.core.plan import Plan
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas, by_table
from tidegate.spark_consumer.sinks.decoding import decode_changes
from tidegate.spark_consumer.sinks.handed_batch import HandedBatch
from tidegate.spark_consumer.sinks.port import DecodedTable

_OF_A_RELEASE = ("release", "ordinal")


def handed_batch(
    rows: DataFrame, *, plan: Plan, topics: Mapping[str, TopicSchemas], sets_aside: bool = False
) -> HandedBatch:
    """Return all changes of a batch (the gate's columns), counted by topic in one Spark job.

    `sets_aside`: without those that cannot be decoded, which otherwise fail where they are read.
    """
    is_change = is_readable(topics) if sets_aside else F.lit(True)  # noqa: FBT003 - Spark's own
    ordered = rows.where(has_order_key())
    found = _counted(ordered, is_change).collect()
    counts = {row["topic"]: row["changes"] for row in found}
    changes = ordered.where(is_change)
    placed = changes.withColumns({name: F.lit(None).cast("long") for name in _OF_A_RELEASE})

    def table(topic: str, schemas: TopicSchemas) -> DecodedTable:
        def decoded() -> DataFrame:
            frame = decode_changes(placed, schemas, topic=topic).drop(*_OF_A_RELEASE)
            return frame.select(F.lit(plan.batch).cast("long").alias("batch"), "*")

        count = sum(counts.get(one, 0) for one in schemas.read_from(topic))
        return DecodedTable(rows.sparkSession, decoded, count, schemas)

    return HandedBatch(
        number=plan.batch,
        query_id=plan.query_id,
        watermark_us=plan.through_us,
        rows=sum(counts.values()),
        left_out=sum(row["rows"] for row in found) - sum(counts.values()),
        tables={topic: table(topic, schemas) for topic, schemas in by_table(topics).items()},
    )


def _counted(rows: DataFrame, is_change: Column) -> DataFrame:
    changes = F.count_if(is_change).alias("changes")
    return rows.groupBy("topic").agg(F.count("*").alias("rows"), changes)
