"""Changes as one Parquet file in memory, made without Spark, and the columns that get bounds.

A reader skips a file, or a part of one, whose bounds exclude the values that it looks for.  So a
bound must hold for each value, by the order of every reader.  NaN is in no writer's bounds, and for
Spark it is the greatest number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from inspect import signature
from typing import Any

import pyarrow
from pyarrow import parquet
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


def bounded_leaves(schema: Any) -> list[str]:
    """Return the columns of a Parquet file that get bounds, by their paths: all but floats.

    Columns within an array get none, since no reader compares them.
    """
    return list(_leaves(schema, ""))


def _leaves(fields: Any, above: str) -> Iterator[str]:
    types = pyarrow.types
    for field in fields:
        if types.is_struct(field.type):
            yield from _leaves(field.type, f"{above}{field.name}.")
        elif not (types.is_nested(field.type) or types.is_floating(field.type)):
            yield f"{above}{field.name}"


def parquet_file(rows: Sequence[Mapping[str, Any]], schema: StructType) -> bytes:
    """Return a Parquet file of the rows, in their order.

    Rows are as `CollectedTable.changes` has them; Spark reads the columns of `schema` from it.
    """
    table = pyarrow.Table.from_pylist(list(rows), schema=arrow_schema(schema))
    written = pyarrow.BufferOutputStream()
    bounded = bounded_leaves(table.schema)
    parquet.write_table(table, written, compression="snappy", write_statistics=bounded)
    return bytes(written.getvalue())


def arrow_schema(schema: StructType) -> pyarrow.Schema:
    """Return a schema as Arrow has it, with times in UTC."""
    # Since Spark 4.2 the time zone is an argument; before, UTC was the only one.
    is_argument = "timezone" in signature(to_arrow_schema).parameters
    named: dict[str, Any] = {"timezone": "UTC"} if is_argument else {}
    return to_arrow_schema(schema, **named)
