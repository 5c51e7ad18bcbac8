"""Spanner's types in the binder, and the DuckDB type that carries each.

A carrier loses no information: a TIMESTAMP is carried as HUGEINT nanoseconds, a PG_NUMERIC, which
keeps its scale, as text, JSON as its normalised text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from spanner_simulator.core.values import Dialect, Value, ValueType

BOOL: Final = ValueType("BOOL")
INT64: Final = ValueType("INT64")
FLOAT32: Final = ValueType("FLOAT32")
FLOAT64: Final = ValueType("FLOAT64")
NUMERIC: Final = ValueType("NUMERIC")
PG_NUMERIC: Final = ValueType("NUMERIC", annotation="PG_NUMERIC")
STRING: Final = ValueType("STRING")
BYTES: Final = ValueType("BYTES")
DATE: Final = ValueType("DATE")
TIMESTAMP: Final = ValueType("TIMESTAMP")
JSON: Final = ValueType("JSON")
PG_JSONB: Final = ValueType("JSON", annotation="PG_JSONB")
UUID: Final = ValueType("UUID")
INTERVAL: Final = ValueType("INTERVAL")

_CARRIERS: Final = {
    "BOOL": "BOOLEAN",
    "INT64": "BIGINT",
    "FLOAT32": "FLOAT",
    "FLOAT64": "DOUBLE",
    "NUMERIC": "DECIMAL(38,9)",
    "STRING": "VARCHAR",
    "BYTES": "BLOB",
    "DATE": "DATE",
    "TIMESTAMP": "HUGEINT",
    "JSON": "VARCHAR",
    "UUID": "VARCHAR",
    "INTERVAL": "VARCHAR",
    "PROTO": "BLOB",
    "ENUM": "BIGINT",
}
_POSTGRES_NAMES: Final = {"STRING": "text", "NUMERIC": "numeric", "JSON": "jsonb"}


def array_of(element: ValueType) -> ValueType:
    """ARRAY of a type."""
    return ValueType("ARRAY", element)


def field_key(index: int) -> str:
    """The name of a STRUCT's field in DuckDB; Spanner's names may be empty or repeated."""
    return f"f{index}"


def carrier(value_type: ValueType) -> str:
    """The DuckDB type that carries a type."""
    if value_type.element is not None:
        return f"{carrier(value_type.element)}[]"
    if value_type.code == "STRUCT":
        fields = [
            f"{field_key(index)} {carrier(kind)}"
            for index, (_, kind) in enumerate(value_type.fields)
        ]
        return f"STRUCT({', '.join(fields)})"
    if value_type.annotation == "PG_NUMERIC":
        return "VARCHAR"
    return _CARRIERS[value_type.code]


def is_same(left: ValueType, right: ValueType) -> bool:
    """Whether two types are equal, apart from lengths."""
    if left.element is not None and right.element is not None:
        return is_same(left.element, right.element)
    if left.code == "STRUCT" and right.code == "STRUCT":
        return len(left.fields) == len(right.fields) and all(
            is_same(left_type, right_type)
            for (_, left_type), (_, right_type) in zip(left.fields, right.fields, strict=True)
        )
    return (left.code, left.annotation, left.proto_name) == (
        right.code,
        right.annotation,
        right.proto_name,
    )


def unsized(value_type: ValueType) -> ValueType:
    """The type without lengths: only the column has a limit, not a value for it."""
    if value_type.element is not None:
        return replace(value_type, element=unsized(value_type.element), vector_length=None)
    return value_type if value_type.length is None else replace(value_type, length=None)


def is_floating(value_type: ValueType) -> bool:
    """Whether its values include NaN and infinities."""
    return value_type.code in ("FLOAT32", "FLOAT64")


def is_numeric(value_type: ValueType) -> bool:
    """Whether arithmetic is defined on it."""
    return value_type.code in ("INT64", "FLOAT32", "FLOAT64", "NUMERIC")


def supertype(left: ValueType, right: ValueType) -> ValueType | None:
    """The smallest type to which both convert implicitly; None if there is none."""
    if is_same(left, right):
        return left
    if not (is_numeric(left) and is_numeric(right)):
        return None
    if is_floating(left) or is_floating(right):
        return FLOAT64
    return left if left.code == "NUMERIC" else right


def type_name(value_type: ValueType, dialect: Dialect) -> str:
    """The name of a type in error messages: without lengths."""
    if dialect == "POSTGRESQL":
        if value_type.element is not None:
            return f"{type_name(value_type.element, dialect)}[]"
        return _POSTGRES_NAMES.get(value_type.code) or value_type.ddl(dialect)
    if value_type.element is not None:
        return f"ARRAY<{type_name(value_type.element, dialect)}>"
    if value_type.code == "STRUCT":
        fields = [f"{name} {type_name(kind, dialect)}".strip() for name, kind in value_type.fields]
        return f"STRUCT<{', '.join(fields)}>"
    return value_type.proto_name or value_type.code


# -- values on their way into DuckDB as parameters, and out of it as results


def pg_numeric_text(value: Decimal) -> str:
    """The carrier of a PG_NUMERIC."""
    return "NaN" if value.is_nan() else f"{value:f}"


def to_duck(value_type: ValueType, value: Value) -> Any:
    """A value as a parameter."""
    if value is None:
        return None
    if value_type.element is not None:
        return [to_duck(value_type.element, item) for item in value]  # type: ignore[union-attr]  # a tuple
    if value_type.code == "STRUCT":
        return {
            field_key(index): to_duck(kind, item)
            for index, ((_, kind), item) in enumerate(
                zip(value_type.fields, value, strict=True)  # type: ignore[arg-type]  # a tuple
            )
        }
    if value_type.annotation == "PG_NUMERIC":
        return pg_numeric_text(value)  # type: ignore[arg-type]  # a Decimal
    return value


@lru_cache(maxsize=512)
def from_duck(value_type: ValueType) -> Callable[[Any], Value] | None:
    """A function from a result other than NULL to a value; None if no conversion is needed."""
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
