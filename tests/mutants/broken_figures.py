"""Parts that are broken on purpose: what operators are shown of slots, sinks and batches."""

from __future__ import annotations

from typing import Any

from tests.mutants.mutant import UnitMutant
from tidegate.lineage.frontier import Frontier, ProgressRow
from tidegate.spark_consumer.batch.batch_figures import BatchFigures, RecentFigures
from tidegate.spark_consumer.batch.sink_work import SinkWork

__all__ = ["BROKEN_FIGURES"]

_FRONTIER = "tests/unit/tidegate/lineage/test_frontier.py"
_QUERY = "tests/unit/spark_consumer/library/test_query.py"
_WORK = "tests/unit/spark_consumer/batch/test_sink_work.py"

_fold_one: Any = Frontier._fold_one


def _any_record_names_the_owner(self: Frontier, row: ProgressRow) -> None:
    _fold_one(self, row)
    self.workers[row.slot] = row.record.worker


def _of_the_newest(self: RecentFigures, _batch: int) -> BatchFigures | None:
    return next(reversed(self._of.values()), None)


def _all_so_far(self: SinkWork, _after: int, _through: int) -> int:
    return sum(self._unmerged.values())


BROKEN_FIGURES = (
    UnitMutant(
        "a worker that announces to a slot taken for its owner",
        (f"{_FRONTIER}::test_the_worker_of_a_slot_wrote_its_newest_heartbeat",),
        ((Frontier, "_fold_one", _any_record_names_the_owner),),
    ),
    UnitMutant(
        "progress with the figures of another batch",
        (f"{_QUERY}::test_progress_has_the_figures_of_its_batch_among_the_observed_metrics",),
        ((RecentFigures, "of", _of_the_newest),),
    ),
    UnitMutant(
        "a merge that counts what it does not take",
        (f"{_WORK}::test_a_merge_takes_the_releases_of_earlier_batches_once",),
        ((SinkWork, "_between", _all_so_far),),
    ),
)
