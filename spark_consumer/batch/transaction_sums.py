"""Records of transactions, counted by Spark: for a release before it is written, and for an audit.

Rows have the columns `commit_us`, `server_transaction_id`, `record_sequence` and `records`, which
is the number that the change's record states.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.spark_consumer.core.transactions import (
    ALL_WHOLE,
    LISTED_MAX,
    TransactionCount,
    TransactionFaults,
    count_transactions,
    faults_in,
)
from tidegate.spark_consumer.sinks.collected_table import CollectedTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import Column

    from tidegate.spark_consumer.sinks.port import Release

__all__ = ["count_collected", "count_decoded", "is_whole", "sums_by_transaction"]

_PLACE = ("commit_us", "server_transaction_id")


def sums_by_transaction(rows: DataFrame) -> DataFrame:
    """Return for each transaction how many records it has, and how many its records state.

    The columns are `found`, `least` and `most`.
    """
    return (
        rows.groupBy(*_PLACE, "record_sequence")
        .agg(F.min("records").alias("least"), F.max("records").alias("most"))
        .groupBy(*_PLACE)
        .agg(
            F.count("*").alias("found"),
            F.min("least").alias("least"),
            F.max("most").alias("most"),
        )
    )


def is_whole() -> Column:
    """Condition on `sums_by_transaction`: the transaction has as many records as each states."""
    whole = (F.col("found") == F.col("most")) & (F.col("least") == F.col("most"))
    return F.coalesce(whole, F.lit(False))  # noqa: FBT003 - a literal


def count_collected(release: Release, *, complete_from_us: int) -> TransactionFaults:
    """Count what `count_decoded` counts, of a release whose changes are in the driver."""
    return count_transactions(
        (
            (
                change["source"]["commit_timestamp"],
                change["server_transaction_id"],
                change["record_sequence"],
                change["source"]["number_of_records_in_transaction"],
                topic,
            )
            for topic, table in release.tables.items()
            if isinstance(table, CollectedTable)
            for change in table.changes
        ),
        after_us=complete_from_us,
    )


def count_decoded(release: Release, *, complete_from_us: int) -> TransactionFaults:
    """Count a release's transactions with a commit time above `complete_from_us`: one Spark job.

    It reads the frames that the sinks read.  Transactions that are not whole need more jobs.
    """
    frames = {topic: table.frame for topic, table in release.tables.items() if table.rows}
    if not frames:
        return ALL_WHOLE
    rows = reduce(DataFrame.unionByName, (_records(frame) for frame in frames.values()))
    inside = rows.where(F.col("commit_us") > complete_from_us)
    bad = sums_by_transaction(inside).where(~is_whole())
    lacks = F.col("found") < F.col("most")
    found = bad.agg(F.count_if(lacks).alias("lacking"), F.count("*").alias("all")).collect()[0]
    if not found["all"]:
        return ALL_WHOLE
    listed = [
        row
        for condition in (lacks, ~lacks)
        for row in bad.where(condition).orderBy(*_PLACE).limit(LISTED_MAX).collect()
    ]
    topics = _topics(frames, {row["server_transaction_id"] for row in listed})
    counts = [
        TransactionCount(
            row["commit_us"],
            row["server_transaction_id"],
            found=row["found"],
            least=row["least"],
            most=row["most"],
            topics=tuple(sorted(topics[row["commit_us"], row["server_transaction_id"]])),
        )
        for row in sorted(listed, key=lambda row: tuple(row[name] for name in _PLACE))
    ]
    lacking = found["lacking"]
    return faults_in(counts, lacking=lacking, others=found["all"] - lacking)


def _records(frame: DataFrame) -> DataFrame:
    return frame.select(
        F.unix_micros("commit_timestamp").alias("commit_us"),
        "server_transaction_id",
        "record_sequence",
        F.col("source.number_of_records_in_transaction").alias("records"),
    )


def _topics(
    frames: Mapping[str, DataFrame], transactions: Iterable[str]
) -> dict[tuple[int, str], set[str]]:
    """Return the topics in which these transactions have changes."""
    wanted = F.col("server_transaction_id").isin(*transactions)
    topics: dict[tuple[int, str], set[str]] = {}
    for topic, frame in frames.items():
        for row in _records(frame).where(wanted).select(*_PLACE).distinct().collect():
            topics.setdefault((row["commit_us"], row["server_transaction_id"]), set()).add(topic)
    return topics
