"""The transactions of a release as records of the ordered topic, made by Spark."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.spark_consumer.sinks.kafka.transaction_record import (
    TransactionRecord,
    transaction_record,
)
from tidegate.spark_consumer.sinks.port import Release
from tidegate.spark_consumer.sinks.released_frame import json_transactions_of, wide_rows


def transaction_records(release: Release) -> Iterator[TransactionRecord]:
    """Yield a release's transactions in commit order; the driver holds a Spark task's at a time."""
    spark = next(iter(release.tables.values())).spark
    with wide_rows(spark):
        rows = json_transactions_of(release, spark).select(
            F.unix_micros("commit_timestamp"), "server_transaction_id", "changes"
        )
        for commit_us, transaction_id, changes in rows.toLocalIterator():
            yield transaction_record(
                commit_us=commit_us, transaction_id=transaction_id, changes=changes
            )
