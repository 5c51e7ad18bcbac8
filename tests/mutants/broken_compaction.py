"""Parts that are broken on purpose: which files become one, and what the commit of it says."""

from __future__ import annotations

from typing import Any

from deltalake import CommitProperties
from deltalake.transaction import AddAction

from tests.mutants.mutant import UnitMutant
from tidegate.spark_consumer.core import compaction
from tidegate.spark_consumer.sinks.delta import direct_files, maintenance
from tidegate.spark_consumer.sinks.delta.direct_files import DirectFiles
from tidegate.spark_consumer.sinks.delta.maintenance import TableMaintenance

__all__ = ["BROKEN_COMPACTION"]

_CORE = "tests/unit/spark_consumer/core/test_compaction.py"
_FILES = "tests/unit/spark_consumer/sinks/delta/test_direct_files.py"
_WORK = "tests/unit/spark_consumer/sinks/delta/test_maintenance.py"


def _as_it_is(rows: Any, _columns: Any) -> Any:
    return rows


def _every_small_file(levels: Any, level: int) -> Any:
    """Take one stretch over everything, as if large files between did not matter."""
    small = [n for n, known in enumerate(levels) if known is not None and known <= level]
    if small:
        yield small[0], len(levels)


def _one_level(_file: Any, _limits: Any) -> int:
    return 0


_add = AddAction


def _changing_rows(*of_file: Any, **more: Any) -> AddAction:
    return _add(*of_file, **{**more, "data_change": True})


def _young(path: Any, size: Any, partition: Any, _modified: Any, **more: Any) -> AddAction:
    return _add(path, size, partition, 2**41, **more)


_properties = CommitProperties


def _retried(*, custom_metadata: Any, max_commit_retries: int) -> CommitProperties:
    assert not max_commit_retries
    return _properties(custom_metadata=custom_metadata, max_commit_retries=15)


_rewrite = DirectFiles.rewrite


def _by_whomever(table: Any, run: Any, **more: Any) -> int:
    return _rewrite(table, run, **{**more, "before_commit": lambda: None})


def _listed_as_found(_holds: object, _message: str, **_facts: object) -> None:
    pass


def _only_deletes(self: Any, path: str, _now: Any) -> bool:
    self._opened(path).vacuum(retention_hours=self._vacuum.retention_hours)
    return True


def _without_bounds(rows: Any, _columns: Any) -> str:
    return f'{{"numRecords": {rows.num_rows}}}'


BROKEN_COMPACTION = (
    UnitMutant(
        "rows of a rewritten file in the order in which they were found",
        (f"{_FILES}::test_rows_that_another_program_has_mixed_are_sorted",),
        ((direct_files, "in_order", _as_it_is),),
    ),
    UnitMutant(
        "files rewritten as one over a file between them",
        (f"{_CORE}::test_a_file_that_is_large_or_not_ours_is_left_and_parts_its_neighbours",),
        ((compaction, "_segments", _every_small_file),),
    ),
    UnitMutant(
        "files of any size rewritten again and again",
        (f"{_CORE}::test_ten_thousand_small_releases_are_few_files_and_little_work",),
        ((compaction, "_level", _one_level),),
    ),
    UnitMutant(
        "a rewrite that streams over the table take for new rows",
        (f"{_FILES}::test_its_commit_changes_no_row_and_is_nobodys_release",),
        ((direct_files, "AddAction", _changing_rows),),
    ),
    UnitMutant(
        "a rewritten file that is younger than those behind it",
        (f"{_FILES}::test_the_place_in_a_streams_first_batch_stays",),
        ((direct_files, "AddAction", _young),),
    ),
    UnitMutant(
        "a rewrite on top of commits that it has not seen",
        (f"{_FILES}::test_a_release_that_came_in_between_ends_it_with_a_conflict",),
        ((direct_files, "CommitProperties", _retried),),
    ),
    UnitMutant(
        "a rewrite by a run that was replaced",
        (f"{_WORK}::test_a_replaced_run_changes_nothing_and_ends",),
        ((DirectFiles, "rewrite", _by_whomever),),
    ),
    UnitMutant(
        "a file replaced without a look at how many rows it still has",
        (f"{_FILES}::test_a_file_that_lost_rows_is_not_replaced",),
        ((direct_files, "invariant", _listed_as_found),),
    ),
    UnitMutant(
        "a rewritten file without bounds",
        (f"{_FILES}::test_the_log_keeps_the_bounds_so_that_readers_skip_the_file",),
        ((direct_files, "statistics", _without_bounds),),
    ),
    UnitMutant(
        "files deleted before readers can know",
        (f"{_WORK}::test_vacuum_notes_what_it_keeps_before_it_deletes",),
        ((TableMaintenance, "_vacuum_table", _only_deletes),),
    ),
    UnitMutant(
        "a batch that rewrites without a bound",
        (f"{_WORK}::test_one_batch_does_a_bounded_part_and_the_next_ones_the_rest",),
        ((maintenance.CompactionBudget, "take", lambda _self, _run: None),),
    ),
)
