"""Datastream's unified types of a row's fields, from the schema in an Avro file's header.

Names are those of Datastream's page "Unified types".  An unknown logical type keeps the name of its
underlying type, so that a new one causes no error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_DEPTH_MAX = 32
_NAME_CHARACTERS_MAX = 1_000
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
    """From the schema: Datastream allows null in nearly every field; None if unknown."""
    is_in_millis: bool = False
    """Whether its values are milliseconds since 1970 instead of microseconds."""


def payload_fields(payload: Mapping[str, Any], named: Mapping[str, Any]) -> list[PayloadField]:
    """Return the fields of a payload's record schema; `named` is the result of `named_types`."""
    fields, names = [], _Names(named)
    for field in payload.get("fields", ()):
        schema = field.get("type")
        # Old files have the logical type next to the type, not inside it.
        if isinstance(schema, str) and "logicalType" in field:
            schema = {**field, "type": schema}
        branches = schema if isinstance(schema, list) else [schema]
        text = names.union([branch for branch in branches if branch != "null"])
        in_millis = any(
            isinstance(branch, Mapping) and branch.get("logicalType") == "timestamp-millis"
            for branch in branches
        )
        name, nullable = str(field.get("name")), "null" in branches
        fields.append(PayloadField(name, text, nullable=nullable, is_in_millis=in_millis))
    return fields


def named_types(schema: Any) -> dict[str, Any]:
    """Return the records, enums and fixed types of a schema by their names."""
    named: dict[str, Any] = {}
    parts = [schema]
    while parts:
        part = parts.pop()
        if isinstance(part, list):
            parts += part
        elif isinstance(part, Mapping):
            if part.get("type") in _NAMED and isinstance(part.get("name"), str):
                named[part["name"]] = part
            parts += [part[name] for name in ("type", "items", "values") if name in part]
            parts += [field for field in part.get("fields", ()) if isinstance(field, Mapping)]
    return named


def without_logical_types(schema: Any) -> Any:
    """Return a schema whose values are decoded as their underlying types.

    A timestamp stays a number, because Python's calendar has no infinity as PostgreSQL does.
    """
    if isinstance(schema, list):
        return [without_logical_types(part) for part in schema]
    if isinstance(schema, Mapping):
        return {
            name: without_logical_types(value) if name in _PARTS else value
            for name, value in schema.items()
            if name != "logicalType"
        }
    return schema


_PARTS = ("type", "items", "values", "fields")


class _Names:
    """The names of a schema's types; each named one is resolved once, whatever refers to it."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._spellings: dict[str, str] = {}

    def of(self, schema: Any, depth: int = 0) -> str:
        """Return a type's name; in a type that contains itself, its own name is used."""
        if isinstance(schema, str):
            return _PRIMITIVE.get(schema) or self._of_name(schema, depth)
        if isinstance(schema, list):
            return self.union([branch for branch in schema if branch != "null"], depth + 1)
        if not isinstance(schema, Mapping) or depth > _DEPTH_MAX:
            return "UNKNOWN"
        match schema.get("logicalType"):
            case "decimal":
                return f"DECIMAL({schema.get('precision')},{schema.get('scale', 0)})"
            case str() as logical if logical in _LOGICAL:
                return _LOGICAL[logical]
        return self._of_compound(schema, depth)

    def union(self, branches: Sequence[Any], depth: int = 0) -> str:
        kinds = [self.of(branch, depth) for branch in branches]
        return kinds[0] if len(kinds) == 1 else f"UNION({', '.join(kinds)})"

    def _of_name(self, name: str, depth: int) -> str:
        if name not in self._named or depth > _DEPTH_MAX:
            return name
        if name not in self._spellings:
            self._spellings[name] = name
            text = self.of(self._named[name], depth + 1)
            # Names within names may become arbitrarily long.
            self._spellings[name] = text if len(text) <= _NAME_CHARACTERS_MAX else name
        return self._spellings[name]

    def _of_compound(self, schema: Mapping[str, Any], depth: int) -> str:
        name = str(schema.get("name", ""))
        match schema.get("type"):
            case "record" if name.startswith(_ARRAY_RECORD):
                elements = [
                    field.get("type")
                    for field in schema["fields"]
                    if field.get("name") == "elementValue"
                ]
                return f"ARRAY<{self.of(elements[0], depth + 1)}>" if elements else "ARRAY"
            case "record":
                return _RECORDS.get(name, f"RECORD {name}")
            case "array":
                return f"ARRAY<{self.of(schema.get('items'), depth + 1)}>"
            case "map":
                return f"MAP<{self.of(schema.get('values'), depth + 1)}>"
            case "enum":
                return "STRING"
            case "fixed":
                return "BYTES"
            case inner:
                return self.of(inner, depth + 1)
