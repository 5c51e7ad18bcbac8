"""Parts that are broken on purpose: what operators are shown of slots, sinks, batches, faults."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.mutants.mutant import UnitMutant
from tidegate.lineage.frontier import Frontier, ProgressRow
from tidegate.producer.retried_faults import RetriedFaults
from tidegate.producer.translation.dead_letter_groups import DeadLetterGroups
from tidegate.producer.translation.parked_survey import RedrivenKeys
from tidegate.spark_consumer.batch.batch_figures import BatchFigures, RecentFigures
from tidegate.spark_consumer.batch.sink_work import SinkWork

__all__ = ["BROKEN_FIGURES"]

_FRONTIER = "tests/unit/tidegate/lineage/test_frontier.py"
_GROUPS = "tests/unit/producer/translation/test_dead_letter_groups.py"
_QUERY = "tests/unit/spark_consumer/library/test_query.py"
_RETRIED = "tests/unit/producer/test_retried_faults.py"
_WORK = "tests/unit/spark_consumer/batch/test_sink_work.py"

_fold_one: Any = Frontier._fold_one


def _any_record_names_the_owner(self: Frontier, row: ProgressRow) -> None:
    _fold_one(self, row)
    self.workers[row.slot] = row.record.worker


def _of_the_newest(self: RecentFigures, _batch: int) -> BatchFigures | None:
    return next(reversed(self._of.values()), None)


def _all_so_far(self: SinkWork, _after: int, _through: int) -> int:
    return sum(self._unmerged.values())


_note: Any = RetriedFaults.note


def _since_the_last_one(self: RetriedFaults, error: str, subject: str, **fields: Any) -> None:
    _note(self, error, subject, **fields)
    self._found[error, subject] = replace(self._found[error, subject], first_us=fields["at_us"])


def _drop_the_newest(self: RetriedFaults, error: str, subject: str, **fields: Any) -> None:
    if len(self._found) < self._entries_max or (error, subject) in self._found:
        _note(self, error, subject, **fields)


def _always(*_: Any) -> bool:
    return True


_add: Any = DeadLetterGroups.add


def _add_only_what_fits(self: DeadLetterGroups, letter: Any) -> None:
    if len(self._groups) < self._groups_max:
        _add(self, letter)


BROKEN_FIGURES = (
    UnitMutant(
        "what was put back listed as set aside",
        (f"{_GROUPS}::test_what_was_put_back_is_left_out",),
        ((RedrivenKeys, "is_parked", _always),),
    ),
    UnitMutant(
        "a full list of what is set aside that takes no more",
        (f"{_GROUPS}::test_of_more_groups_than_it_holds_the_newest_stay",),
        ((DeadLetterGroups, "add", _add_only_what_fits),),
    ),
    UnitMutant(
        "a retried fault that begins again each time",
        (f"{_RETRIED}::test_equal_faults_of_an_object_are_one_entry_with_first_and_last_time",),
        ((RetriedFaults, "note", _since_the_last_one),),
    ),
    UnitMutant(
        "a full list of retried faults that takes no other",
        (f"{_RETRIED}::test_the_list_is_bounded_and_keeps_what_was_seen_last",),
        ((RetriedFaults, "note", _drop_the_newest),),
    ),
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
