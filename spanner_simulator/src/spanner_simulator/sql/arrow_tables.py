"""Rows as Arrow tables, which DuckDB reads without conversion."""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spanner_simulator.sql.sql_types import pg_numeric_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from spanner_simulator.core.values import Value, ValueType


_ARROW: dict[str, pa.DataType] = {
    "BOOL": pa.bool_(),
    "INT64": pa.int64(),
    "ENUM": pa.int64(),
    "FLOAT64": pa.float64(),
    "FLOAT32": pa.float32(),
    "NUMERIC": pa.decimal128(38, 9),
    "DATE": pa.date32(),
    "BYTES": pa.binary(),
    "PROTO": pa.binary(),
}


@lru_cache(maxsize=512)
def _form(value_type: ValueType) -> tuple[pa.DataType, Callable[[Any], Any] | None]:
    """The type of a column, and a function that converts its values other than NULL.

    A TIMESTAMP is still a decimal, which the query casts to HUGEINT.
    """
    if value_type.element is not None:
        kind, inner = _form(value_type.element)
        if inner is None:
            return pa.list_(kind), list
        return pa.list_(kind), lambda items: [
            None if item is None else inner(item) for item in items
        ]
    if value_type.code == "TIMESTAMP":
        return pa.decimal128(38, 0), Decimal
    if value_type.annotation == "PG_NUMERIC":
        return pa.string(), pg_numeric_text
    return _ARROW.get(value_type.code, pa.string()), None


def _column(value_type: ValueType, values: Iterable[Value]) -> pa.Array:
    kind, convert = _form(value_type)
    if convert is not None:
        values = [None if value is None else convert(value) for value in values]
    return pa.array(values, kind)


def arrow_table(types: Mapping[str, ValueType], rows: Sequence[Mapping[str, Value]]) -> pa.Table:
    """The named columns of rows; without any, the same number of rows with an unused column."""
    columns = {name: _column(kind, [row.get(name) for row in rows]) for name, kind in types.items()}
    return pa.table(columns or {"_": pa.array([True] * len(rows), pa.bool_())})
