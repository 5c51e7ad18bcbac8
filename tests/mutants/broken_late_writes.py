"""Parts that are broken on purpose: what a run does about files that a replaced run wrote late."""

from __future__ import annotations

from typing import Any

from tests.mutants.mutant import UnitMutant
from tidegate.spark_consumer.core.late_writes import QueryRestarts
from tidegate.spark_consumer.spark import failures

__all__ = ["BROKEN_LATE_WRITES"]

_TESTS = "tests/unit/spark_consumer/spark/test_query.py"


def _finds_nothing(_text: str) -> bool:
    return False


def _is_writer(_gate: Any, _failure: BaseException) -> None:
    pass


def _always(_self: QueryRestarts, *, now_s: float) -> bool:
    return now_s >= 0


BROKEN_LATE_WRITES = (
    UnitMutant(
        "a late write of a replaced run that ends its successor",
        (
            f"{_TESTS}::test_a_query_that_a_late_write_has_ended_starts_again_and_keeps_its_checkpoint",
        ),
        ((failures, "is_late_write", _finds_nothing),),
    ),
    UnitMutant(
        "a replaced run that starts its query again",
        (f"{_TESTS}::test_a_late_write_is_named_for_the_run_that_may_write",),
        ((failures, "_require_writer", _is_writer),),
    ),
    UnitMutant(
        "a query that is started again without end",
        (f"{_TESTS}::test_what_writes_into_the_checkpoint_again_and_again_ends_the_run",),
        ((QueryRestarts, "may_restart", _always),),
    ),
)
