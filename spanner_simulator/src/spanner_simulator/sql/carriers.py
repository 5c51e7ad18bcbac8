"""Values on their way into DuckDB as parameters, and out of it as results."""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from spanner_simulator.sql.sql_types import field_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from spanner_simulator.core.values import Value, ValueType


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
