"""Reads the serialised fields of a change stream's response.

Each function reads one kind of field, and raises a SchemaError with the field's name for any other
value.  NULL and empty differ where they differ in the service's documentation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from tidegate.producer.records import UnreadableValues
from tidegate.producer.spanner.decoding.response import (
    LIST,
    NULL,
    TEXT,
    Serialised,
    content_of,
    elements,
    parse_value,
)
from tidegate.schemas.errors import SchemaError

_INTEGER_BYTES_MAX = 20


def is_null(value: Serialised) -> bool:
    """Whether a value is NULL; a value without a kind counts as NULL."""
    return value == NULL or parse_value(value).WhichOneof("kind") in (None, "null_value")


def items(value: Serialised, name: str) -> Sequence[Serialised]:
    """Return an array's elements; NULL counts as empty."""
    content = content_of(value, LIST)
    if content:
        return elements(content)
    if content is not None or is_null(value):
        return ()
    raise _unreadable(value, name, "an array")


def struct_fields(value: Serialised, size: int, name: str) -> Sequence[Serialised]:
    """Return a struct's fields."""
    content = content_of(value, LIST)
    if content is None:
        raise _unreadable(value, name, "a struct")
    fields = elements(content)
    if len(fields) != size:
        raise SchemaError("a struct with another number of fields", field=name, fields=len(fields))
    return fields


def text_of(value: Serialised, name: str) -> str:
    """Read a STRING or TIMESTAMP."""
    content = content_of(value, TEXT)
    if content is None:
        raise _unreadable(value, name, "text")
    try:
        return content.decode() if content.__class__ is bytes else str(content, "utf-8")
    except UnicodeDecodeError as error:
        raise SchemaError("a text that is not UTF-8", field=name) from error


def text_or_empty(value: Serialised, name: str) -> str:
    """Read a STRING; NULL counts as empty."""
    return "" if is_null(value) else text_of(value, name)


def sequence_of(value: Serialised, name: str) -> str:
    """Read a record sequence: text, or a number as in one version of the documentation."""
    if content_of(value, TEXT) is None and not is_null(value):
        return str(integer(value, name))
    return text_of(value, name)


def flag(value: Serialised, name: str) -> bool:
    """Read a BOOL."""
    parsed = parse_value(value)
    if not parsed.HasField("bool_value"):
        raise _unreadable(value, name, "a boolean")
    return bool(parsed.bool_value)


def integer(value: Serialised, name: str) -> int:
    """Read an INT64: decimal text, or a number as in the documentation's example."""
    text = content_of(value, TEXT)
    if text is None:
        parsed = parse_value(value)
        if parsed.HasField("number_value") and parsed.number_value.is_integer():
            return int(parsed.number_value)
    elif len(text) <= _INTEGER_BYTES_MAX and bytes(text).removeprefix(b"-").isdigit():
        return int(bytes(text))
    raise _unreadable(value, name, "an integer")


def json_object(value: Serialised, name: str) -> dict[str, Any]:
    """Read a JSON value with an object; NULL counts as an empty one."""
    text = content_of(value, TEXT)
    if text is None:
        if is_null(value):
            return {}
        raise _unreadable(value, name, "JSON")
    return _parse_object(text, name)


def json_values(value: Serialised, name: str) -> Mapping[str, Any]:
    """Read the JSON object of a change's values; other text becomes `UnreadableValues`.

    Raises SchemaError for a value that is neither text nor NULL.
    """
    try:
        return json_object(value, name)
    except SchemaError as error:
        text = content_of(value, TEXT)
        if text is None:
            raise
        return UnreadableValues(str(text, "utf-8", "backslashreplace"), error)


def values_of_text(text: str, name: str) -> Mapping[str, Any]:
    """Read the JSON object of a change's values from its text, as `json_values` does."""
    try:
        return _parse_object(text.encode(errors="backslashreplace"), name)
    except SchemaError as error:
        return UnreadableValues(text, error)


def _parse_object(text: Serialised, name: str) -> dict[str, Any]:
    try:
        parsed = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise SchemaError("a JSON value that cannot be read", field=name) from error
    if not isinstance(parsed, dict):
        raise SchemaError("a JSON value that is not an object", field=name)
    return parsed


def _unreadable(value: Serialised, name: str, expected: str) -> SchemaError:
    return SchemaError(
        f"a change record's field is not {expected}",
        field=name,
        kind=str(parse_value(value).WhichOneof("kind")),
    )
