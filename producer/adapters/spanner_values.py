"""Protobuf values of a change stream's response, read as what they have to be.

Each function reads one kind of field and raises a SchemaError that names it otherwise.  NULL is
told apart from empty where the service's documentation does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from tidegate.schemas.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "flag",
    "integer",
    "is_null",
    "items",
    "json_object",
    "merge",
    "struct_fields",
    "text_of",
    "text_or_empty",
]

_MERGEABLE = {"string_value", "list_value"}


def merge(value: Any, rest: Any) -> None:
    """Append the rest of a chunked value, as PartialResultSet's `chunked_value` describes it.

    Strings and lists are joined; a list's last element goes on in the next list's first if both are
    of such a kind.  Walks down without recursion, because the nesting is the sender's.
    """
    while True:
        kind = value.WhichOneof("kind")
        if kind not in _MERGEABLE or kind != rest.WhichOneof("kind"):
            raise SchemaError("a chunked value goes on as another kind", begun=str(kind))
        if kind == "string_value":
            value.string_value += rest.string_value
            return
        left, right = value.list_value.values, rest.list_value.values
        kinds = {element.WhichOneof("kind") for element in (*left[-1:], *right[:1])}
        if not left or not right or not kinds <= _MERGEABLE:
            left.extend(right)
            return
        last, first = left[-1], right[0]
        left.extend(right[1:])
        value, rest = last, first


def is_null(value: Any) -> bool:
    """Tell whether a value is NULL; one that says nothing at all counts as such."""
    return value.HasField("null_value") or value.WhichOneof("kind") is None


def items(value: Any, name: str) -> Sequence[Any]:
    """Return an array's elements; NULL counts as empty."""
    if value.HasField("list_value"):
        return value.list_value.values  # type: ignore[no-any-return]
    if is_null(value):
        return ()
    raise _unreadable(value, name, "an array")


def struct_fields(value: Any, size: int, name: str) -> Sequence[Any]:
    """Return a struct's fields, unpacked once."""
    if not value.HasField("list_value"):
        raise _unreadable(value, name, "a struct")
    fields = list(value.list_value.values)
    if len(fields) != size:
        raise SchemaError("a struct with another number of fields", field=name, fields=len(fields))
    return fields


def text_of(value: Any, name: str) -> str:
    """Read a STRING or TIMESTAMP."""
    text: str = value.string_value
    if text or value.HasField("string_value"):
        return text
    raise _unreadable(value, name, "text")


def text_or_empty(value: Any, name: str) -> str:
    """Read a STRING; NULL counts as empty."""
    return "" if is_null(value) else text_of(value, name)


def flag(value: Any, name: str) -> bool:
    """Read a BOOL."""
    found: bool = value.bool_value
    if found or value.HasField("bool_value"):
        return found
    raise _unreadable(value, name, "a boolean")


def integer(value: Any, name: str) -> int:
    """Read an INT64: decimal text, or a number as in the documentation's example."""
    text: str = value.string_value
    if text:
        if len(text) <= 20 and text.isascii() and text.removeprefix("-").isdigit():
            return int(text)
    elif value.HasField("number_value") and value.number_value.is_integer():
        return int(value.number_value)
    raise _unreadable(value, name, "an integer")


def json_object(value: Any, name: str) -> dict[str, Any]:
    """Read a JSON value that holds an object; NULL counts as an empty one."""
    text: str = value.string_value
    if not text and is_null(value):
        return {}
    try:
        parsed = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise SchemaError("a JSON value that cannot be read", field=name) from error
    if not isinstance(parsed, dict):
        raise _unreadable(value, name, "a JSON object")
    return parsed


def _unreadable(value: Any, name: str, wanted: str) -> SchemaError:
    return SchemaError(
        f"a change record's field is not {wanted}",
        field=name,
        kind=str(value.WhichOneof("kind")),
    )
