"""Bounds of a file's values in a table's log: those that are true, and the files they rule out.

Spark and delta-rs both write bounds that are not true, or that the other one cannot read: delta-rs
keeps decimals as floating-point numbers and leaves NaN out, which is Spark's greatest number, and
both cut times to milliseconds.  So delta-rs writes bounds only where they are true for all readers,
and what is looked up here is compared with bounds of a few types only.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import pyarrow
from deltalake import ColumnProperties, WriterProperties

_TEXT_BYTES_MAX = 64
"""delta-rs cuts the bounds of longer texts, the upper one upwards; that is its own default."""

_CUT_US = 1_000
"""Bounds of times are cut to milliseconds, by some writers downwards on both sides."""


def writer_properties(schema: Any) -> WriterProperties:
    """Return how delta-rs writes files of these columns: with bounds only where they are true.

    It knows no names of columns within a record: all of these have bounds, or none.
    """
    has_nested = all(_is_bounded(field.type) for field in schema if _is_record(field.type))
    chosen = {
        field.name: ColumnProperties(
            statistics_enabled="PAGE" if _is_bounded(field.type) else "NONE"
        )
        for field in schema
        if not _is_record(field.type)
    }
    others = ColumnProperties(statistics_enabled="PAGE" if has_nested else "NONE")
    return WriterProperties(
        compression="SNAPPY",
        statistics_truncate_length=_TEXT_BYTES_MAX,
        default_column_properties=others,
        column_properties=chosen,
    )


def paths_without(values: Any, actions: Any, column: str) -> set[str]:
    """Return the paths of files whose bounds show that a column has none of the values.

    `actions` are the files as delta-rs lists them.  A file without bounds is never among them, and
    none is if NULL is a value.
    """
    kind, names = values.type, (f"min.{column}", f"max.{column}")
    if values.null_count or not (_is_number(kind) and set(names) <= set(actions.column_names)):
        return set()
    if any(actions.schema.field(name).type != kind for name in names):
        return set()
    cut = _CUT_US if pyarrow.types.is_timestamp(kind) else 0
    wanted = sorted(_numbers(values))
    bounds = zip(
        actions["path"].to_pylist(), *(_numbers(actions[name]) for name in names), strict=True
    )
    return {
        path
        for path, low, high in bounds
        if low is not None and high is not None and not _any_within(wanted, low - cut, high + cut)
    }


def _any_within(ascending: list[int], low: int, high: int) -> bool:
    place = bisect_left(ascending, low)
    return place < len(ascending) and ascending[place] <= high


def _numbers(values: Any) -> list[Any]:
    """Return dates as days and times as microseconds; whole numbers as they are."""
    if pyarrow.types.is_date32(values.type):
        values = values.cast(pyarrow.int32())
    numbers: list[Any] = values.cast(pyarrow.int64()).to_pylist()
    return numbers


def _is_number(kind: Any) -> bool:
    """Whether bounds of a type are compared here: they are numbers, which no writer rounds."""
    types = pyarrow.types
    is_time = types.is_timestamp(kind) and kind.unit == "us"
    return bool(types.is_signed_integer(kind) or types.is_date32(kind) or is_time)


def _is_record(kind: Any) -> bool:
    return bool(pyarrow.types.is_struct(kind))


def _is_bounded(kind: Any) -> bool:
    """Whether delta-rs writes bounds of a type that are true for every reader."""
    types = pyarrow.types
    if _is_record(kind):
        # No reader compares what is within an array.
        return all(_is_bounded(one.type) for one in kind if not types.is_list(one.type))
    return bool(
        types.is_signed_integer(kind)
        or types.is_boolean(kind)
        or types.is_date32(kind)
        or types.is_timestamp(kind)
        or types.is_string(kind)
        or types.is_binary(kind)
    )
