"""Parts that are broken on purpose: which rows a small release finds, bounds, partitions."""

from __future__ import annotations

from typing import Any

from deltalake import WriterProperties
from pyarrow import dataset

from tests.mutants.mutant import UnitMutant
from tidegate.spark_consumer.sinks.delta import direct_table, file_bounds, layout
from tidegate.spark_consumer.sinks.delta.direct_table import DirectTable

__all__ = ["BROKEN_LOOKUPS"]

_FOLDER = "tests/unit/spark_consumer/sinks/delta"
_TABLE = f"{_FOLDER}/test_direct_table.py"
_CONTRACT = "tests/spark/test_type_contract.py"
_OF_ANY_TYPE = "test_rows_are_found_by_keys_of_any_type_in_files_of_either_command"
_UNKNOWN = "test_updates_of_unknown_rows_are_found_by_first_keys_of_any_type"
_VERSIONS = "test_versions_are_found_by_first_keys_of_any_type"
_LEFT_OUT = "test_a_file_is_left_out_only_where_true_bounds_exclude_each_value"
_TRUE_BOUNDS = "test_the_log_has_bounds_only_where_they_are_true_for_every_reader"


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


def _found_as_text(table: DirectTable, column: str, values: Any, columns: Any, **more: Any) -> Any:
    """Compare texts and bytes as whole values, and all others as `_found_by_filter` does."""
    if str(values.type) in {"string", "binary"}:
        return _found(table, column, values, columns, **more)
    return _found_by_filter(table, column, values, columns, **more)


_found = DirectTable.found


def _own_bounds(_schema: Any) -> WriterProperties:
    return WriterProperties(compression="SNAPPY", statistics_truncate_length=64)


def _is_never(_path: str) -> bool:
    return False


def _no_columns(_schema: Any, _names: Any) -> list[str]:
    return []


BROKEN_LOOKUPS = (
    UnitMutant(
        "rows looked up by a comparison in the types of each file",
        (
            f"{_TABLE}::test_nothing_between_two_keys_is_found",
            f"{_FOLDER}/test_direct_history.py::{_VERSIONS}",
            f"{_FOLDER}/test_direct_merge.py::{_UNKNOWN}",
        ),
        ((DirectTable, "found", _found_by_filter),),
    ),
    UnitMutant(
        "files left out of a look-up by bounds that are rounded",
        (
            f"{_FOLDER}/test_direct_history.py::{_VERSIONS}",
            f"{_TABLE}::{_OF_ANY_TYPE}",
        ),
        (
            (DirectTable, "found", _found_as_text),
            (direct_table, "writer_properties", _own_bounds),
        ),
    ),
    UnitMutant(
        "files left out of a look-up by times that are cut to milliseconds",
        (f"{_FOLDER}/test_file_bounds.py::{_LEFT_OUT}",),
        ((file_bounds, "_CUT_US", 0),),
    ),
    UnitMutant(
        "partitions whose names are not ASCII merged by delta-rs",
        (f"{_CONTRACT}::test_partitions_are_equal_for_both_engines_in_turns",),
        ((direct_table, "is_other_path", _is_never),),
    ),
    UnitMutant(
        "partitions of types that engines write in different forms",
        (f"{_FOLDER}/test_layout.py::test_partitions_are_of_types_that_both_engines_write_alike",),
        ((layout, "unequal_columns", _no_columns),),
    ),
    UnitMutant(
        "bounds that delta-rs rounds, in a table's log",
        (f"{_TABLE}::{_TRUE_BOUNDS}",),
        ((direct_table, "writer_properties", _own_bounds),),
    ),
)
