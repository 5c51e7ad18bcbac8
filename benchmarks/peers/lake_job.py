"""A Spark job as a user of Debezium writes one: topic to Delta, until all of it is read.

    python -m benchmarks.peers.lake_job copy|sorted BOOTSTRAP TOPIC FOLDER

`copy` appends what it reads.  `sorted` keeps changes until Debezium's low watermark has passed
them, and appends them in commit order.  Both are exactly-once for what is in the topic: Delta knows
the batches that it has.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

import tidegate as tg
from tidegate.local_stack.parts.jvm_parts import fetched_jvm_parts
from tidegate.local_stack.parts.programs import quick_start

READ_AT_ONCE = 20_000
_VALUE = """
    after STRUCT<Id: BIGINT, Balance: STRING, Updated: STRING>,
    source STRUCT<ts_us: BIGINT, server_transaction_id: STRING, sequence: STRING,
                  low_watermark: BIGINT>,
    op STRING
"""
_ORDER = ("ts_us", "server_transaction_id", "sequence", "Id")


class Job:
    """One run of the job."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._output, self._pending = spark, folder / "changes", folder / "pending"
        self._seen: dict[int, int] = {}
        """The highest low watermark in each topic partition, in milliseconds."""

    def copy(self, batch: DataFrame, number: int) -> None:
        """Append what was read, in any order."""
        self._append(_changes(batch), number)

    def sort(self, batch: DataFrame, number: int) -> None:
        """Append what every topic partition's low watermark has passed, in commit order."""
        batch.persist()
        stamps = batch.groupBy("partition").agg(F.max("source.low_watermark")).collect()
        for topic_partition, stamp in stamps:
            before = self._seen.get(topic_partition, 0)
            self._seen[topic_partition] = max(before, stamp or 0)
        waiting = self._waiting(number).unionByName(_changes(batch))
        through_us = min(self._seen.values(), default=0) * 1_000
        rest = self._pending / str(number + 1)
        waiting.where(F.col("ts_us") > through_us).write.mode("overwrite").parquet(str(rest))
        self._append_sorted(waiting.where(F.col("ts_us") <= through_us), number)
        batch.unpersist()

    def flush(self, number: int) -> None:
        """Append what still waits: nothing more is coming."""
        self._append_sorted(self._waiting(number), number)

    def _waiting(self, number: int) -> DataFrame:
        folder = self._pending / str(number)
        if folder.exists():
            return self._spark.read.schema(_SCHEMA).parquet(str(folder))
        return self._spark.createDataFrame([], _SCHEMA)

    def _append_sorted(self, rows: DataFrame, number: int) -> None:
        self._append(rows.repartition(1).sortWithinPartitions(*_ORDER), number)

    def _append(self, rows: DataFrame, number: int) -> None:
        writer = rows.withColumn("batch", F.lit(number)).write.format("delta").mode("append")
        writer.option("txnAppId", "job").option("txnVersion", number).save(str(self._output))


_SCHEMA = (
    "Id BIGINT, Balance STRING, Updated STRING, ts_us BIGINT, server_transaction_id STRING, "
    "sequence STRING"
)


def _changes(batch: DataFrame) -> DataFrame:
    return batch.where("op = 'u'").select(
        *(f"after.{name}" for name in ("Id", "Balance", "Updated")),
        *(f"source.{name}" for name in ("ts_us", "server_transaction_id", "sequence")),
    )


def main(way: str, bootstrap_servers: str, topic: str, folder: Path) -> None:
    """Run the job until it has read all of the topic."""
    parts = fetched_jvm_parts()
    if parts is None:
        sys.exit("the JVM parts are missing: ./dev setup fetches them")
    settings: dict[str, Any] = {
        "spark.driver.extraJavaOptions": quick_start(),
        "spark.ui.enabled": "false",
    }
    spark = tg.session("lake-job", jars=",".join(map(str, parts.spark_jars)), **settings)
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", READ_AT_ONCE)
        .load()
        .select("partition", F.from_json(F.col("value").cast("string"), _VALUE).alias("value"))
        .select("partition", "value.*")
    )
    job = Job(spark, folder)
    last = [-1]

    def write(batch: DataFrame, number: int) -> None:
        (job.copy if way == "copy" else job.sort)(batch, number)
        last[0] = number

    query = (
        records.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    if way == "sorted":
        job.flush(last[0] + 1)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
