"""Parts that are broken on purpose: what an Iceberg table is known to hold, and how."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from tests.mutants.mutant import UnitMutant
from tidegate.spark_consumer.sinks.iceberg.java_table import JavaTable
from tidegate.spark_consumer.sinks.iceberg.mirror import IcebergMirrorSink
from tidegate.spark_consumer.sinks.iceberg.place import IcebergPlace
from tidegate.spark_consumer.sinks.iceberg.snapshot_log import SnapshotLog
from tidegate.spark_consumer.sinks.iceberg.tables import IcebergTables

__all__ = ["BROKEN_ICEBERG"]

_LOG = "tests/unit/spark_consumer/sinks/iceberg/test_snapshot_log.py"
_PLACE = "tests/unit/spark_consumer/sinks/iceberg/test_place.py"
_CHANGELOG = "tests/spark/sinks/iceberg/test_changelog.py"
_MIRROR = "tests/spark/sinks/iceberg/test_mirror.py"
_JAVA = "tests/spark/sinks/iceberg/test_java_table.py"


def _has_by_snapshots(log: Any, commit: Any) -> bool:
    return any(one.release == commit.release for one in log._ancestors())


def _accepts(_log: Any) -> None:
    pass


def _one_name(output: str, *, prefix: str, catalog: str = "", **_more: Any) -> Any:
    return IcebergPlace(catalog or "tidegate", prefix, f"{output}/iceberg")


def _at_once(*_known: Any, **_more: Any) -> Any:
    return nullcontext()


def _set_properties_first(
    table: Any, snapshot: int | None, properties: Any, *, marker: str
) -> bool:
    """Publish in two commits: what is refused has been named already."""
    table.set_properties(properties)
    return _publish(table, snapshot, {}, marker=marker)


_publish = JavaTable.publish


def _nothing_aside(*_known: Any, **_more: Any) -> None:
    pass


BROKEN_ICEBERG = (
    UnitMutant(
        "a release forgotten where its snapshots were removed",
        (f"{_LOG}::test_a_release_is_remembered_where_all_of_its_snapshots_were_removed",),
        ((SnapshotLog, "has", _has_by_snapshots),),
    ),
    UnitMutant(
        "a release written again after maintenance",
        (f"{_CHANGELOG}::test_maintenance_by_others_neither_repeats_a_release_nor_ends_the_query",),
        ((SnapshotLog, "has", _has_by_snapshots),),
    ),
    UnitMutant(
        "rows of others accepted",
        (
            f"{_LOG}::test_a_rewrite_of_files_changes_nothing_and_other_commits_are_refused",
            f"{_LOG}::test_a_table_that_was_moved_back_is_refused",
            f"{_LOG}::test_a_table_whose_snapshots_were_replaced_is_refused",
        ),
        ((SnapshotLog, "_require_own", _accepts),),
    ),
    UnitMutant(
        "one catalog for all outputs of a session",
        (f"{_PLACE}::test_two_outputs_of_a_session_have_two_catalogs",),
        ((IcebergPlace, "of", _one_name),),
    ),
    UnitMutant(
        "a release appended at once",
        (
            f"{_CHANGELOG}::test_a_kill_at_any_step_neither_loses_nor_repeats",
            f"{_CHANGELOG}::test_of_two_runs_that_write_one_release_one_publishes_it",
        ),
        ((IcebergTables, "staging", _at_once),),
    ),
    UnitMutant(
        "a release named before its rows are there",
        (f"{_JAVA}::test_a_staged_snapshot_is_published_once_with_properties",),
        ((JavaTable, "publish", _set_properties_first),),
    ),
    UnitMutant(
        "an UPDATE without a row lost",
        (f"{_MIRROR}::test_an_update_of_an_unknown_row_goes_to_the_side_table_once",),
        ((IcebergMirrorSink, "_set_aside", _nothing_aside),),
    ),
)
