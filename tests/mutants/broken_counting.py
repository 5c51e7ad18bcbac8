"""Parts that are broken on purpose: how Spark counts a large release's transactions."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tests.mutants.mutant import UnitMutant
from tidegate.spark_consumer.batch import inner_cuts, transaction_sums

__all__ = ["BROKEN_COUNTING"]

_TESTS = "tests/spark/batch/test_transaction_sums.py"


def _never(_bounds: Any, _inner_cuts: Any = ()) -> Any:
    return F.lit(False)


_sums_by_transaction = transaction_sums.sums_by_transaction


def _by_commit_time(rows: Any, *, within: Any = ()) -> Any:
    same = rows.withColumn("server_transaction_id", F.lit(""))
    return _sums_by_transaction(same, within=within)


_sums = transaction_sums._sums


def _all_as_one(rows: Any, *, by: Any, record: Any) -> Any:
    """Take all transactions of a slice for one, where they are only proved to be whole."""
    same = rows.withColumn(by[-1], F.lit(0)) if record == transaction_sums._RECORD else rows
    return _sums(same, by=by, record=record)


def _change_as_record(rows: Any, *, by: Any, record: Any) -> Any:
    """Take each change for a record, likewise."""
    each = F.monotonically_increasing_id()
    apart = rows.withColumn(record, each) if record == transaction_sums._RECORD else rows
    return _sums(apart, by=by, record=record)


BROKEN_COUNTING = (
    UnitMutant(
        "a commit time of another slice counted where it stands",
        (f"{_TESTS}::test_a_commit_time_that_is_not_one_of_its_slice_is_refused",),
        ((transaction_sums, "is_late_or_early", _never),),
    ),
    UnitMutant(
        "a commit time cut inside a transaction",
        (
            "tests/spark/batch/test_inner_cuts.py::test_all_rows_of_a_backfill_are_one_release_of_many_slices",
        ),
        ((inner_cuts, "transaction_begin", lambda: F.col("order_key")),),
    ),
    UnitMutant(
        "transactions of one commit time counted as one",
        (f"{_TESTS}::test_transactions_of_one_commit_time_are_counted_apart",),
        ((transaction_sums, "sums_by_transaction", _by_commit_time),),
    ),
    UnitMutant(
        "halves of several transactions proved as one whole",
        (f"{_TESTS}::test_two_halves_of_one_commit_time_are_no_whole_transaction",),
        ((transaction_sums, "_sums", _all_as_one),),
    ),
    UnitMutant(
        "the changes of one record proved as several records",
        (f"{_TESTS}::test_two_changes_of_one_record_are_one_record",),
        ((transaction_sums, "_sums", _change_as_record),),
    ),
)
