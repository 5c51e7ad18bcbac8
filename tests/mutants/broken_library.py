"""Parts that are broken on purpose: how a program's query takes, holds and leaves a checkpoint."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from tests.mutants.mutant import UnitMutant
from tidegate.spark_consumer.checkpoint.lease import LeaseWatch
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.library.query import TidegateQuery
from tidegate.spark_consumer.spark.standby import LeaseKeeper

__all__ = ["BROKEN_LIBRARY"]

_QUERY = "tests/unit/spark_consumer/library/test_query.py"
_STORAGE = "tests/spark/checkpoint/test_storage.py"
_STANDBY = "tests/unit/spark_consumer/spark/test_standby.py"


def _may_take(_self: LeaseWatch, _seen: Any, *, now_s: float) -> bool:
    return now_s >= 0


def _stop_for_the_first(self: LeaseKeeper) -> None:
    if not self._stopped.is_set():
        self._stopped.set()
        self._lease.give_back()


def _move_in_two_steps(self: Storage, temporary: str, name: str) -> None:
    self._rename(temporary, name, replace=True)


def _watches_nothing(_self: TidegateQuery) -> None:
    pass


BROKEN_LIBRARY = (
    UnitMutant(
        "a stop that interrupts the batch and keeps the checkpoint",
        (f"{_QUERY}::test_a_stop_finishes_the_batch_first_and_gives_the_checkpoint_back",),
        ((TidegateQuery, "stop", StreamingQuery.stop),),
    ),
    UnitMutant(
        "a failure of the gate in Spark's words",
        (f"{_QUERY}::test_a_failure_of_the_gate_is_raised_with_its_class_and_hint",),
        ((TidegateQuery, "awaitTermination", StreamingQuery.awaitTermination),),
    ),
    UnitMutant(
        "a query that keeps the checkpoint after a failure",
        (f"{_QUERY}::test_the_lease_is_given_back_when_the_query_has_failed",),
        ((TidegateQuery, "_watch", _watches_nothing),),
    ),
    UnitMutant(
        "a start that takes the checkpoint of a run that lives",
        (f"{_STANDBY}::test_a_checkpoint_of_a_run_that_lives_is_refused",),
        ((LeaseWatch, "may_take", _may_take),),
    ),
    UnitMutant(
        "a second stop that does not wait for the first",
        (f"{_STANDBY}::test_a_second_stop_returns_when_the_lease_is_given_back",),
        ((LeaseKeeper, "stop", _stop_for_the_first),),
    ),
    UnitMutant(
        "a file that is missing while it is replaced",
        (f"{_STORAGE}::test_who_reads_a_file_while_it_is_replaced_finds_it_whole",),
        ((Storage, "_move", _move_in_two_steps),),
    ),
)
