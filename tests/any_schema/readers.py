"""Delta tables as Spark, delta-rs and DuckDB read them: rows of plain values.

DuckDB reads the Parquet files that delta-rs lists, with its own reader of Parquet: its extension
for Delta would be downloaded at run time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import deltalake
import pyarrow

from tests.any_schema.values import plain

__all__ = ["READERS", "plain_rows"]

Read = Callable[[Any, Path], Any]


def _by_spark(spark: Any, path: Path) -> Any:
    return spark.read.format("delta").load(str(path)).toArrow()


def _by_delta_rs(_spark: Any, path: Path) -> Any:
    return deltalake.DeltaTable(path).to_pyarrow_table()


def _by_duckdb(_spark: Any, path: Path) -> Any:
    import duckdb

    files = deltalake.DeltaTable(path).file_uris()
    if not files:
        return pyarrow.table({})
    with duckdb.connect() as connection:
        found = connection.read_parquet(
            [re.sub("^file://", "", file) for file in files],
            union_by_name=True,
            hive_partitioning=True,
        )
        return found.to_arrow_table()


READERS: Mapping[str, Read] = {
    "Spark": _by_spark,
    "delta-rs": _by_delta_rs,
    "DuckDB": _by_duckdb,
}


def plain_rows(table: Any) -> list[dict[str, Any]]:
    """Return rows whose values are plain; records stay dictionaries."""
    numbers = pyarrow.table(table).cast(_numbers(pyarrow.table(table).schema))
    return [{name: _plain(value) for name, value in row.items()} for row in numbers.to_pylist()]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return plain(value)


def _numbers(schema: Any) -> Any:
    """Return a schema in which times and days are numbers, which have no bounds in Python."""
    return pyarrow.schema([(field.name, _number(field.type)) for field in schema])


def _number(kind: Any) -> Any:
    types = pyarrow.types
    if types.is_timestamp(kind):
        assert kind.unit == "us", kind
        return pyarrow.int64()
    if types.is_date32(kind):
        return pyarrow.int32()
    if types.is_struct(kind):
        return pyarrow.struct([(field.name, _number(field.type)) for field in kind])
    if types.is_list(kind) or types.is_large_list(kind):
        return pyarrow.list_(_number(kind.value_type))
    return kind
