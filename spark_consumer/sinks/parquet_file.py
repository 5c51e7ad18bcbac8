"""Changes as one Parquet file in memory, made without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

import pyarrow
from pyarrow import parquet
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tidegate.spark_consumer.sinks.bounds import bounded_leaves


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
