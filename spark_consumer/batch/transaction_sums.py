"""Records of transactions, counted by Spark: for a release before it is written, and for an audit.

Rows have the columns `commit_us`, `server_transaction_id`, `record_sequence` and `records`, which
is the number that the change's record states.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.schemas.errors import invariant
from tidegate.schemas.progress import PartitionGap
from tidegate.spark_consumer.batch.release_order import SLICE, SLICE_KEY, is_late_or_early
from tidegate.spark_consumer.core.plan import ReleaseBounds
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas
from tidegate.spark_consumer.core.transactions import (
    ALL_WHOLE,
    LISTED_MAX,
    TransactionCount,
    TransactionFaults,
    count_transactions,
    faults_in,
)
from tidegate.spark_consumer.sinks.decoding import decode_stated
from tidegate.spark_consumer.sinks.port import CollectedTable, Release

_PLACE = ("commit_us", "server_transaction_id")

_TRANSACTION, _RECORD = "transaction_hash", "record_hash"

_OUTSIDE = -1
"""Replaces the stated number where a change is not in its slice: no transaction has this number."""


def sums_by_transaction(rows: DataFrame, *, within: Sequence[str] = ()) -> DataFrame:
    """Return for each transaction how many records it has, and how many its records state.

    The columns are `found`, `least` and `most`.  `within` are more columns to group by.
    """
    return _sums(rows, by=(*within, *_PLACE), record="record_sequence")


def _sums(rows: DataFrame, *, by: Sequence[str], record: str) -> DataFrame:
    """Return `found`, `least` and `most` of each transaction; the columns `by` identify it."""
    return (
        rows.groupBy(*by, record)
        .agg(F.min("records").alias("least"), F.max("records").alias("most"))
        .groupBy(*by)
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


def is_in_gap(gaps: Iterable[PartitionGap]) -> Column:
    """Condition on `commit_us`: changes with this commit time may be missing."""
    covered = (F.col("commit_us").between(gap.from_us, gap.until_us - 1) for gap in gaps)
    return reduce(or_, covered, F.lit(False))  # noqa: FBT003 - a literal


def count_collected(
    release: Release, *, complete_from_us: int, gaps: Sequence[PartitionGap]
) -> TransactionFaults:
    """Count what `count_ordered` counts, of a release whose changes are in the driver."""
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
        gaps=gaps,
    )


def count_ordered(
    rows: DataFrame,
    bounds: ReleaseBounds,
    *,
    topics: Mapping[str, TopicSchemas],
    complete_from_us: int,
    gaps: Sequence[PartitionGap],
    inner_cuts: Sequence[bytes] = (),
) -> TransactionFaults:
    """Count a release's transactions with a commit time above `complete_from_us`: one Spark job.

    A transaction that lacks records in one of the accepted `gaps` is not a fault.  `rows` are the
    release's changes as `in_order` makes them with these cuts.  No slice ends within a transaction,
    so each transaction is in one slice and nothing is shuffled.  The first job only checks that all
    transactions are whole; if they are not, further jobs find the faulty ones.  Raises
    InvariantViolation if a value has a commit time that is not one of its slice.
    """
    stated = decode_stated(rows.select("topic", "value", SLICE, SLICE_KEY), topics.values())
    inside = stated.where(F.col("commit_us") > complete_from_us)
    is_elsewhere = is_late_or_early(bounds, inner_cuts)
    if _all_whole(inside, is_elsewhere):
        return ALL_WHOLE
    lacks, outside = F.col("found") < F.col("most"), is_elsewhere
    sums = sums_by_transaction(inside, within=(SLICE_KEY, SLICE))
    accepted = F.coalesce(lacks & is_in_gap(gaps), F.lit(False))  # noqa: FBT003 - a literal
    bad = sums.where((~is_whole() & ~accepted) | outside)
    figures = {"lacking": lacks, "outside": outside, "all": F.lit(True)}  # noqa: FBT003 - a literal
    counts_if = [F.count_if(condition).alias(name) for name, condition in figures.items()]
    totals = bad.agg(*counts_if).collect()[0]
    invariant(
        totals["outside"] == 0,
        "a release holds changes outside its bounds",
        release=bounds.number,
        transactions=totals["outside"],
    )
    if not totals["all"]:
        return ALL_WHOLE
    listed = [
        row
        for condition in (lacks, ~lacks)
        for row in bad.where(condition).orderBy(*_PLACE).limit(LISTED_MAX).collect()
    ]
    found_in = _topics(inside, {row["server_transaction_id"] for row in listed})
    counts = [
        TransactionCount(
            row["commit_us"],
            row["server_transaction_id"],
            found=row["found"],
            least=row["least"],
            most=row["most"],
            topics=tuple(sorted(found_in[row["commit_us"], row["server_transaction_id"]])),
        )
        for row in sorted(listed, key=lambda row: tuple(row[name] for name in _PLACE))
    ]
    lacking = totals["lacking"]
    return faults_in(counts, lacking=lacking, others=totals["all"] - lacking)


def _all_whole(stated: DataFrame, is_elsewhere: Column) -> bool:
    """Whether each transaction is whole, and all of it in its slice: one job.

    Transactions and records are grouped by hashes of 64 bits, since numbers take half the time of
    texts.  Whole transactions that share a hash look as if they were not whole; the jobs that
    follow count them by name, and find that they are.  For one that is not whole to be overlooked,
    it would have to share the hash of another that makes up for it in the same slice: once in 2^64
    pairs.
    """
    records = F.when(is_elsewhere, F.lit(_OUTSIDE)).otherwise(F.col("records"))
    hashed = stated.select(
        SLICE_KEY,
        F.xxhash64(*_PLACE).alias(_TRANSACTION),
        F.xxhash64(*_PLACE, "record_sequence").alias(_RECORD),
        records.alias("records"),
    )
    sums = _sums(hashed, by=(SLICE_KEY, _TRANSACTION), record=_RECORD)
    return not sums.agg(F.count_if(~is_whole()).alias("others")).collect()[0]["others"]


def _topics(stated: DataFrame, transactions: Iterable[str]) -> dict[tuple[int, str], set[str]]:
    """Return the topics in which these transactions have changes."""
    wanted = F.col("server_transaction_id").isin(*transactions)
    topics: dict[tuple[int, str], set[str]] = {}
    for row in stated.where(wanted).select(*_PLACE, "topic").distinct().collect():
        topics.setdefault((row["commit_us"], row["server_transaction_id"]), set()).add(row["topic"])
    return topics
