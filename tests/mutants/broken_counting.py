"""Parts that are broken on purpose: how Spark counts a large release's transactions."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tests.mutants.mutant import UnitMutant
from tidegate.spark_consumer.batch import transaction_sums

__all__ = ["BROKEN_COUNTING"]

_TESTS = "tests/spark/batch/test_transaction_sums.py"


def _never(_bounds: Any) -> Any:
    return F.lit(False)


_sums_by_transaction = transaction_sums.sums_by_transaction


def _by_commit_time(rows: Any, *, within: Any = ()) -> Any:
    same = rows.withColumn("server_transaction_id", F.lit(""))
    return _sums_by_transaction(same, within=within)


BROKEN_COUNTING = (
    UnitMutant(
        "a commit time of another slice counted where it stands",
        (f"{_TESTS}::test_a_commit_time_that_is_not_one_of_its_slice_is_refused",),
        ((transaction_sums, "is_late_or_early", _never),),
    ),
    UnitMutant(
        "transactions of one commit time counted as one",
        (f"{_TESTS}::test_transactions_of_one_commit_time_are_counted_apart",),
        ((transaction_sums, "sums_by_transaction", _by_commit_time),),
    ),
)
