"""Types as error texts name them."""

from __future__ import annotations

from spanner_simulator.core.values import ValueType


def type_name(value_type: ValueType, *, element: bool = True) -> str:
    """A type as error texts name it: no length, PG.NUMERIC, and ARRAY with its element or not."""
    if value_type.element is not None:
        return f"ARRAY<{type_name(value_type.element)}>" if element else "ARRAY"
    if value_type.annotation is not None:
        return value_type.annotation.replace("_", ".", 1)
    return value_type.proto_name or value_type.code
