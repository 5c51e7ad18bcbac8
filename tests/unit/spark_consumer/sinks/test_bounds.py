"""Columns of a Parquet file that get bounds."""

from __future__ import annotations

import io

import pyarrow
from pyarrow import parquet

from tidegate.spark_consumer.sinks.bounds import bounded_leaves

RECORD = pyarrow.struct(
    [
        ("n", pyarrow.int64()),
        ("f", pyarrow.float32()),
        ("l", pyarrow.list_(pyarrow.int64())),
        ("r", pyarrow.struct([("f", pyarrow.float64()), ("t", pyarrow.string())])),
    ]
)
KINDS = {
    "id": pyarrow.int64(),
    "f": pyarrow.float64(),
    "n": pyarrow.decimal128(38, 9),
    "a b.c": pyarrow.binary(),
    "l": pyarrow.list_(pyarrow.string()),
    "r": RECORD,
}


def written(schema):
    stream = io.BytesIO()
    rows = pyarrow.Table.from_pylist([{}], schema=schema)
    parquet.write_table(rows, stream, write_statistics=bounded_leaves(schema))
    columns = parquet.read_metadata(stream).row_group(0)
    found = [columns.column(n) for n in range(columns.num_columns)]
    return [one.path_in_schema for one in found if one.statistics is not None]


def test_floats_and_what_arrays_hold_have_no_bounds():
    """NaN is in no bounds, and the greatest number for Spark."""
    assert written(pyarrow.schema(KINDS)) == ["id", "n", "a b.c", "r.n", "r.r.t"]


def test_a_file_may_have_no_bounds_at_all():
    assert written(pyarrow.schema([("f", pyarrow.float64())])) == []
