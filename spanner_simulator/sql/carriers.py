"""Values on their way into DuckDB and out of it: Arrow columns, parameters, results."""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidegate.spanner_simulator.core.values import Value, ValueType
from tidegate.spanner_simulator.sql.sql_types import field_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["arrow_column", "from_duck", "to_duck"]

_ARROW: dict[str, pa.DataType] = {
    "BOOL": pa.bool_(),
    "INT64": pa.int64(),
    "ENUM": pa.int64(),
    "FLOAT64": pa.float64(),
    "FLOAT32": pa.float32(),
    "NUMERIC": pa.decimal128(38, 9),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.decimal128(38, 0),
    "BYTES": pa.binary(),
    "PROTO": pa.binary(),
}


@lru_cache(maxsize=512)
def _arrow_type(value_type: ValueType) -> pa.DataType:
    if value_type.element is not None:
        return pa.list_(_arrow_type(value_type.element))
    if value_type.annotation == "PG_NUMERIC":
        return pa.string()
    return _ARROW.get(value_type.code, pa.string())


def arrow_column(value_type: ValueType, values: Iterable[Value]) -> pa.Array:
    """A column of values; a TIMESTAMP is still a decimal, which the query casts to HUGEINT."""
    convert = _arrow_converter(value_type)
    if convert is not None:
        values = [None if value is None else convert(value) for value in values]
    return pa.array(values, _arrow_type(value_type))


@lru_cache(maxsize=512)
def _arrow_converter(value_type: ValueType) -> Callable[[Any], Any] | None:
    if value_type.element is not None:
        inner = _arrow_converter(value_type.element)
        if inner is None:
            return list
        return lambda items: [None if item is None else inner(item) for item in items]
    if value_type.code == "TIMESTAMP":
        return Decimal
    if value_type.annotation == "PG_NUMERIC":
        return _pg_text
    return None


def _pg_text(value: Decimal) -> str:
    return "NaN" if value.is_nan() else f"{value:f}"


def to_duck(value_type: ValueType, value: Value) -> Any:
    """A value as a parameter."""
    if value is None:
        return None
    if value_type.element is not None:
        return [to_duck(value_type.element, item) for item in value]  # type: ignore[union-attr]
    if value_type.code == "STRUCT":
        return {
            field_key(index): to_duck(kind, item)
            for index, ((_, kind), item) in enumerate(
                zip(value_type.fields, value, strict=True)  # type: ignore[arg-type]
            )
        }
    if value_type.annotation == "PG_NUMERIC":
        return _pg_text(value)  # type: ignore[arg-type]
    return value


@lru_cache(maxsize=512)
def from_duck(value_type: ValueType) -> Callable[[Any], Value] | None:
    """What turns a result that is not NULL into a value; None when it is one already."""
    if value_type.element is not None:
        inner = from_duck(value_type.element)
        if inner is None:
            return tuple
        return lambda items: tuple(None if item is None else inner(item) for item in items)
    if value_type.code == "STRUCT":
        kinds = [(field_key(i), from_duck(kind)) for i, (_, kind) in enumerate(value_type.fields)]
        return lambda row: tuple(
            row[key] if convert is None or row[key] is None else convert(row[key])
            for key, convert in kinds
        )
    if value_type.annotation == "PG_NUMERIC":
        return Decimal
    return None
