"""Parts that are broken on purpose: which versions of a row a history has, and what they hold."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tests.mutants.mutant import UnitMutant
from tidegate.spark_consumer.sinks.delta import direct_history, history_merge
from tidegate.spark_consumer.sinks.delta.direct_table import DirectTable
from tidegate.spark_consumer.sinks.delta.fold import DELETE, captured_flag, fold_each
from tidegate.spark_consumer.sinks.delta.row_fold import FoldedRow

__all__ = ["BROKEN_HISTORY"]

_DIRECT = "tests/unit/spark_consumer/sinks/delta/test_direct_history.py"
_SPARK = "tests/spark/sinks/delta/test_history_merge.py"
_ORACLE = f"{_DIRECT}::test_at_any_time_each_key_that_was_alive_has_one_row"
_TIES = "test_several_changes_of_one_commit_time_make_one_version"
_CARRIED = "test_what_an_update_did_not_capture_is_taken_from_the_version_before_it"


def _opens_with_each_change(one: Any, *, is_held: bool) -> bool:
    return one.state.action != DELETE and (is_held or one.state.action == "replace")


def _ends_later(changes: Any, columns: Any) -> Any:
    """Let no change end at the commit time at which it begins, as if each had one of its own."""
    each = fold_each(changes, columns)
    is_same = F.col("ends_at") == F.col("starts_at")
    later = F.col("ends_at") + F.expr("INTERVAL 1 MICROSECOND")
    return each.withColumn("ends_at", F.when(is_same, later).otherwise(F.col("ends_at")))


def _captures_all(_row: Any, _column: str) -> bool:
    return True


def _all_captured(changes: Any, columns: Any) -> Any:
    each = fold_each(changes, columns)
    flags = {captured_flag(n): F.lit(True) for n in range(len(columns))}
    return each.withColumns(flags)


_merge = DirectTable.merge


def _keeping_what_has_no_duration(table: Any, rows: Any, **more: Any) -> None:
    _merge(table, rows, **{**more, "is_deleted": "false"})


BROKEN_HISTORY = (
    UnitMutant(
        "a version for each of several changes of one commit time",
        (f"{_DIRECT}::{_TIES}", _ORACLE),
        ((direct_history, "_opens", _opens_with_each_change),),
    ),
    UnitMutant(
        "a version that the next release ends at its own time kept",
        (f"{_DIRECT}::{_TIES}", _ORACLE),
        ((DirectTable, "merge", _keeping_what_has_no_duration),),
    ),
    UnitMutant(
        "a version whose absent columns are NULL",
        (f"{_DIRECT}::{_CARRIED}", _ORACLE),
        ((FoldedRow, "captures", _captures_all),),
    ),
    UnitMutant(
        "Spark's version for each of several changes of one commit time",
        (f"{_SPARK}::{_TIES}",),
        ((history_merge, "fold_each", _ends_later),),
    ),
    UnitMutant(
        "Spark's version whose absent columns are NULL",
        (f"{_SPARK}::{_CARRIED}",),
        ((history_merge, "fold_each", _all_captured),),
    ),
)
