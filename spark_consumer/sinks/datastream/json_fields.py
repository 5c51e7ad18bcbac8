"""Column values as JSON text, from what Avro stores: equal to what a producer writes of them."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, TypeAlias

from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import NS_PER_US, canonical_rfc3339, format_rfc3339
from tidegate.schemas.json_values import (
    date_text,
    decimal_text,
    double_text,
    float_text,
    quoted,
)

JsonField: TypeAlias = Callable[[Any], str]
"""From a decoded value, null included, to its text."""

_PLAIN: dict[str, JsonField] = {
    "boolean": lambda value: "true" if value else "false",
    "bytes": lambda value: f'"{base64.b64encode(value).decode()}"',
    "double": double_text,
    "float": float_text,
    "int": str,
    "long": str,
    "string": quoted,
}
_LOGICAL: dict[str, JsonField] = {
    "date": date_text,
    "decimal": decimal_text,
    "timestamp-micros": lambda value: f'"{canonical_rfc3339(format_rfc3339(value * NS_PER_US))}"',
}


def json_field(avro: Any) -> JsonField:
    """Return what writes values of an Avro type of our rows; raises SchemaError for another."""
    if isinstance(avro, list):
        (branch,) = (one for one in avro if one != "null")
        return _nullable(json_field(branch))
    if isinstance(avro, dict) and avro["type"] == "array":
        element = json_field(avro["items"])
        return lambda value: f"[{','.join(map(element, value))}]"
    logical = avro.get("logicalType", "") if isinstance(avro, dict) else ""
    kind = avro["type"] if isinstance(avro, dict) else avro
    found = _LOGICAL.get(logical) or (_PLAIN.get(kind) if isinstance(kind, str) else None)
    if found is None:
        raise SchemaError("an Avro type that no column has", type=kind)
    return found


def _nullable(write: JsonField) -> JsonField:
    return lambda value: "null" if value is None else write(value)
