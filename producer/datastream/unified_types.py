"""Datastream's unified types of a row's fields, from the schema in an Avro file's header.

Names are those of Datastream's page "Unified types".  A type that is not known keeps the name of
what it is made of, so that a new logical type stops nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["PayloadField", "named_types", "payload_fields", "without_logical_types"]

_DEPTH_MAX = 32
_PRIMITIVE = {
    "boolean": "BOOLEAN",
    "bytes": "BYTES",
    "double": "DOUBLE",
    "float": "FLOAT",
    "int": "INTEGER",
    "long": "LONG",
    "null": "NULL",
    "string": "STRING",
}
_LOGICAL = {
    "date": "DATE",
    "json": "JSON",
    "number": "NUMBER",
    "time-interval-micros": "TIME INTERVAL",
    "time-micros": "TIME",
    "time-millis": "TIME",
    "timestamp-micros": "TIMESTAMP",
    "timestamp-millis": "TIMESTAMP",
    "uuid": "UUID",
}
_RECORDS = {
    "calendarDate": "CALENDAR DATE",
    "datetime": "DATETIME",
    "interval": "INTERVAL",
    "Json": "JSON",
    "timeTz": "TIME WITH TIMEZONE",
    "timestampTz": "TIMESTAMP WITH TIMEZONE",
    "varchar": "VARCHAR",
    "year": "YEAR",
}
_ARRAY_RECORD = "multidimensionalArray_"
_NAMED = ("record", "enum", "fixed", "error")


@dataclass(frozen=True, slots=True)
class PayloadField:
    """A field of an object's rows."""

    name: str
    type: str
    nullable: bool | None
    """As the schema says: Datastream lets nearly every field be null; None: unknown."""
    is_in_millis: bool = False
    """Whether its values are milliseconds since 1970 and not microseconds."""


def payload_fields(payload: Mapping[str, Any], named: Mapping[str, Any]) -> list[PayloadField]:
    """Return the fields of a payload's record schema; `named` is what `named_types` returns."""
    found = []
    for one in payload.get("fields", ()):
        schema = one.get("type")
        # Old files have the logical type beside the type and not within it.
        if isinstance(schema, str) and "logicalType" in one:
            schema = {**one, "type": schema}
        branches = schema if isinstance(schema, list) else [schema]
        kinds = [_type(branch, named, 0) for branch in branches if branch != "null"]
        text = kinds[0] if len(kinds) == 1 else f"UNION({', '.join(kinds)})"
        in_millis = any(
            isinstance(branch, Mapping) and branch.get("logicalType") == "timestamp-millis"
            for branch in branches
        )
        name, nullable = str(one.get("name")), "null" in branches
        found.append(PayloadField(name, text, nullable=nullable, is_in_millis=in_millis))
    return found


def named_types(schema: Any) -> dict[str, Any]:
    """Return the records, enums and fixed types of a schema by their names."""
    found: dict[str, Any] = {}
    open_ones = [schema]
    while open_ones:
        one = open_ones.pop()
        if isinstance(one, list):
            open_ones += one
        elif isinstance(one, Mapping):
            if one.get("type") in _NAMED and isinstance(one.get("name"), str):
                found[one["name"]] = one
            open_ones += [one[part] for part in ("type", "items", "values") if part in one]
            open_ones += [field for field in one.get("fields", ()) if isinstance(field, Mapping)]
    return found


def without_logical_types(schema: Any) -> Any:
    """Return a schema whose values are decoded as what they are made of.

    A timestamp stays a number: PostgreSQL's infinity has no place in Python's calendar.
    """
    if isinstance(schema, list):
        return [without_logical_types(one) for one in schema]
    if isinstance(schema, Mapping):
        return {
            name: without_logical_types(value) if name in _PARTS else value
            for name, value in schema.items()
            if name != "logicalType"
        }
    return schema


_PARTS = ("type", "items", "values", "fields")


def _type(schema: Any, named: Mapping[str, Any], depth: int) -> str:
    """Return a type's name; one that contains itself has its own name within."""
    if isinstance(schema, str):
        if schema in _PRIMITIVE:
            return _PRIMITIVE[schema]
        if schema not in named or depth > _DEPTH_MAX:
            return schema
        return _type(named[schema], named, depth + 1)
    if isinstance(schema, list):
        kinds = [_type(one, named, depth + 1) for one in schema if one != "null"]
        return kinds[0] if len(kinds) == 1 else f"UNION({', '.join(kinds)})"
    if not isinstance(schema, Mapping) or depth > _DEPTH_MAX:
        return "UNKNOWN"
    match schema.get("logicalType"):
        case "decimal":
            return f"DECIMAL({schema.get('precision')},{schema.get('scale', 0)})"
        case str() as logical if logical in _LOGICAL:
            return _LOGICAL[logical]
    return _compound(schema, named, depth)


def _compound(schema: Mapping[str, Any], named: Mapping[str, Any], depth: int) -> str:
    name = str(schema.get("name", ""))
    match schema.get("type"):
        case "record" if name.startswith(_ARRAY_RECORD):
            elements = [
                one.get("type") for one in schema["fields"] if one.get("name") == "elementValue"
            ]
            return f"ARRAY<{_type(elements[0], named, depth + 1)}>" if elements else "ARRAY"
        case "record":
            return _RECORDS.get(name, f"RECORD {name}")
        case "array":
            return f"ARRAY<{_type(schema.get('items'), named, depth + 1)}>"
        case "map":
            return f"MAP<{_type(schema.get('values'), named, depth + 1)}>"
        case "enum":
            return "STRING"
        case "fixed":
            return "BYTES"
        case inner:
            return _type(inner, named, depth + 1)
