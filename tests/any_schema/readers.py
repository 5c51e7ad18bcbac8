"""Tables as several libraries read them: rows of plain values.

Delta's are read by Spark, delta-rs and DuckDB, which takes the Parquet files that delta-rs lists:
its extension for Delta would be downloaded at run time.  Iceberg's are read by Spark, and by
pyarrow, which takes the files of the newest snapshot and knows their columns by Iceberg's field
ids, as every reader of Iceberg does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import deltalake
import pyarrow
import pyarrow.parquet

from tests.any_schema.values import plain

Row = dict[str, Any]
Read = Callable[[Any, Path], list[Row]]


def _by_spark(spark: Any, path: Path) -> list[Row]:
    return _plain_rows(spark.read.format("delta").load(str(path)).toArrow())


def _by_delta_rs(_spark: Any, path: Path) -> list[Row]:
    return _plain_rows(deltalake.DeltaTable(path).to_pyarrow_table())


def _by_duckdb(_spark: Any, path: Path) -> list[Row]:
    import duckdb

    files = deltalake.DeltaTable(path).file_uris()
    if not files:
        return []
    with duckdb.connect() as connection:
        found = connection.read_parquet(
            [re.sub("^file://", "", file) for file in files],
            union_by_name=True,
            hive_partitioning=True,
        )
        return _plain_rows(found.to_arrow_table())


def _iceberg_by_spark(spark: Any, path: Path) -> list[Row]:
    return _plain_rows(spark.read.format("iceberg").load(str(path)).toArrow())


def _iceberg_by_pyarrow(spark: Any, path: Path) -> list[Row]:
    java = spark._jvm
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    table = java.org.apache.iceberg.hadoop.HadoopTables(hadoop).load(str(path))
    tasks = table.newScan().planFiles()
    each = tasks.iterator()
    rows: list[Row] = []
    while each.hasNext():
        task = each.next()
        assert task.deletes().isEmpty(), "rows that are deleted by another file"
        file = pyarrow.parquet.read_table(re.sub("^file:/*", "/", task.file().location()))
        rows += (_named(row, file.schema, table.schema()) for row in _plain_rows(file))
    tasks.close()
    return rows


def _named(row: Row, fields: Any, schema: Any) -> Row:
    """Return a row of a file with Iceberg's names in the place of the file's."""
    found = {}
    for field in fields:
        name = schema.findField(int(field.metadata[b"PARQUET:field_id"])).name()
        value = row[field.name]
        is_row = pyarrow.types.is_struct(field.type) and value is not None
        found[name] = _named(value, field.type, schema) if is_row else value
    return found


READERS: Mapping[str, Read] = {
    "Spark": _by_spark,
    "delta-rs": _by_delta_rs,
    "DuckDB": _by_duckdb,
}
ICEBERG_READERS: Mapping[str, Read] = {"Spark": _iceberg_by_spark, "pyarrow": _iceberg_by_pyarrow}


def _plain_rows(table: Any) -> list[Row]:
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
