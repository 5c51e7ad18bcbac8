"""Parts that are broken on purpose: the consumer's output, each change once (P5)."""

from __future__ import annotations

from typing import Any

from deltalake import CommitProperties
from pyarrow import dataset
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tests.mutants.mutant import UnitMutant
from tidegate.spark_consumer.batch import release_order
from tidegate.spark_consumer.core import batch_effects
from tidegate.spark_consumer.core.batch_run import BatchRun
from tidegate.spark_consumer.sinks.delta.commit_log import CommitLog
from tidegate.spark_consumer.sinks.delta.direct import files
from tidegate.spark_consumer.sinks.delta.direct.table import DirectTable
from tidegate.spark_consumer.sinks.files.datastream import BegunReleases
from tidegate.spark_consumer.sinks.iceberg.catalog import JavaTable
from tidegate.spark_consumer.sinks.iceberg.snapshot_log import SnapshotLog
from tidegate.spark_consumer.sinks.kafka.ordered_topic import OrderedTopicSink
from tidegate.spark_consumer.sinks.merge import by_key

_properties = CommitProperties


def _retried(*, custom_metadata: Any, max_commit_retries: int) -> CommitProperties:
    assert not max_commit_retries
    return _properties(custom_metadata=custom_metadata, max_commit_retries=15)


_FOLDER = "tests/unit/spark_consumer/sinks/files"
_SINK = f"{_FOLDER}/test_datastream.py"
_KILLED = f"{_SINK}::test_a_release_that_is_repeated_after_a_kill_at_any_step_writes_the_same_files"
_begin = BegunReleases.begin


def _never_begun(self: Any, release: int, **settings: Any) -> Any:
    return _begin(self, release, **settings)[0], False


_DIRECT = "tests/unit/spark_consumer/sinks/merge/test_versions.py"
_ORACLE = f"{_DIRECT}::test_at_any_time_each_key_that_was_alive_has_one_row"

_merge = DirectTable.merge


def _keeping_what_has_no_duration(table: Any, rows: Any, **more: Any) -> None:
    _merge(table, rows, **{**more, "is_deleted": "false"})


_JAVA = "tests/spark/sinks/test_iceberg.py"
_BY_KEY = "tests/spark/sinks/merge/test_by_key.py"


def _has_by_snapshots(log: Any, commit: Any) -> bool:
    return any(ancestor.release == commit.release for ancestor in log._ancestors())


def _set_properties_first(
    table: Any, snapshot: int | None, properties: Any, *, marker: str
) -> bool:
    """Publish in two commits: what is refused has been named already."""
    table.set_properties(properties)
    return _publish(table, snapshot, {}, marker=marker)


_publish = JavaTable.publish


def _found_by_filter(
    table: DirectTable, column: str, values: Any, columns: Any, *, part: Any = None
) -> Any:
    """Leave the comparison to Arrow, which begins with bounds, in the types of each file."""
    condition = dataset.field(column).isin(values)
    if values.null_count:
        condition |= dataset.field(column).is_null()
    for name, value in (part or {}).items():
        condition &= dataset.field(name) == value
    return table._table.to_pyarrow_dataset().to_table(list(columns), filter=condition)


_LOOP = "tests/unit/spark_consumer/batch/test_effect_loop.py"
_require_current, _rows = BatchRun._require_current, batch_effects._rows


def _hands_over_new_plans_only(self: Any, plan: Any, end_offsets: Any) -> Any:
    self._takers = ()
    return _require_current(self, plan, end_offsets)


def _is_newer_always(_column: str, _position: int) -> str:
    return "true"


_COMMITS = "tests/unit/spark_consumer/sinks/delta/test_commit_log.py"


def _never_carried(_self: CommitLog, _release: int) -> bool:
    return True


_KILLED_SINKS = "tests/spark/test_all_sinks_killed.py"

_LEAVES_THE_SAME = (
    f"{_KILLED_SINKS}::test_killed_after_each_step_in_turn_the_batch_leaves_the_same",
)

_holds = OrderedTopicSink._holds


def _never_holds(self: Any, release: Any) -> bool:
    _holds(self, release)
    return False


_SINK_TOPICS = "tests/unit/spark_consumer/sinks/kafka/test_ordered_topic.py"


def _read_first(self: Any) -> None:
    """Read what the topic holds, and take the transactional id after that."""
    self._last = self._topic.last_release()
    self._require_own(self._last)
    self._topic.start(f"{self._prefix}-gate-{self._query_id}-{self.name}")
    self._is_started = True


BROKEN_OUTPUT = (
    UnitMutant(
        "a commit time cut inside a transaction",
        (
            "tests/spark/batch/test_releases.py::test_all_rows_of_a_backfill_are_one_release_of_many_slices",
        ),
        ((release_order, "transaction_begin", lambda: F.col("order_key")),),
    ),
    UnitMutant(
        "a version that the next release ends at its own time kept",
        (_ORACLE,),
        ((DirectTable, "merge", _keeping_what_has_no_duration),),
    ),
    UnitMutant(
        "a release named before its rows are there",
        (f"{_JAVA}::test_a_staged_snapshot_is_published_once_with_properties",),
        ((JavaTable, "publish", _set_properties_first),),
    ),
    UnitMutant(
        "a release written again after maintenance",
        (
            "tests/spark/sinks/test_iceberg.py::test_maintenance_by_others_neither_repeats_a_release_nor_ends_the_query",
        ),
        ((SnapshotLog, "has", _has_by_snapshots),),
    ),
    UnitMutant(
        "a rewrite on top of commits that it has not seen",
        (
            "tests/unit/spark_consumer/sinks/delta/direct/test_files.py::test_a_release_that_came_in_between_ends_it_with_a_conflict",
        ),
        ((files, "CommitProperties", _retried),),
    ),
    UnitMutant(
        "rows looked up by a comparison in the types of each file",
        (
            "tests/unit/spark_consumer/sinks/delta/direct/test_table.py::test_updates_of_unknown_rows_are_found_by_first_keys_of_any_type",
        ),
        ((DirectTable, "find_rows", _found_by_filter),),
    ),
    UnitMutant(
        "a batch that is not handed over again after a kill",
        (f"{_LOOP}::test_a_batch_is_handed_over_once_more_after_a_kill_at_any_step",),
        ((BatchRun, "_require_current", _hands_over_new_plans_only),),
    ),
    UnitMutant(
        "a mirror by key in which an older change wins",
        (f"{_BY_KEY}::test_after_each_batch_a_row_is_that_of_its_newest_changes",),
        ((by_key, "_is_newer", _is_newer_always),),
    ),
    UnitMutant(
        "an ordered topic that publishes a release again after a kill",
        _LEAVES_THE_SAME,
        ((OrderedTopicSink, "_holds", _never_holds),),
    ),
    UnitMutant(
        "a topic that is read before its former producer is ended",
        (f"{_SINK_TOPICS}::test_the_contract",),
        ((OrderedTopicSink, "_start", _read_first),),
    ),
    UnitMutant(
        "a release written again because its commit was deleted",
        (f"{_COMMITS}::test_an_idle_table_whose_log_was_cleaned_keeps_its_release",),
        ((CommitLog, "knows_after", _never_carried),),
    ),
    UnitMutant(
        "files of a repeated release written again",
        (_KILLED,),
        ((BegunReleases, "begin", _never_begun),),
    ),
)
