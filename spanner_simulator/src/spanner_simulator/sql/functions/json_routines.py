"""Functions of JSON documents, which travel as normalised text."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from spanner_simulator.core.json_text import normalise_json, normalise_jsonb
from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.sql.functions.number_routines import float_to_text
from spanner_simulator.sql.functions.routines import out_of_range, routine

if TYPE_CHECKING:
    from collections.abc import Sequence


_Json: TypeAlias = "dict[str, _Json] | list[_Json] | str | int | float | Decimal | bool | None"
_Path: TypeAlias = "tuple[str | int, ...]"
_STEP = re.compile(
    r"""\.(?P<name>[^.\[\]"']+) | \."(?P<dotted>(?:\\.|[^"\\])*)"
      | \[\s*(?P<index>\d+)\s*\] | \[\s*(?P<quote>['"])(?P<quoted>.*?)(?P=quote)\s*\]""",
    re.VERBOSE,
)
_EXACT_INT_MAX = 2**53


@routine("VARCHAR", "VARCHAR")
def json_normal(text: str) -> str:
    """PARSE_JSON."""
    try:
        return normalise_json(text)
    except ValueError as error:
        raise out_of_range(f"Invalid input: {error}") from None


@routine("VARCHAR", "VARCHAR")
def json_or_null(text: str) -> str | None:
    """The text where it is JSON: of any other text its contents are NULL."""
    try:
        json.loads(text)
    except ValueError:
        return None
    return text


@routine("VARCHAR", "VARCHAR")
def jsonb_normal(text: str) -> str:
    """CAST to jsonb."""
    try:
        return normalise_jsonb(text)
    except ValueError:
        raise SpannerError(
            Code.INVALID_ARGUMENT,
            f"[ERROR] invalid input syntax for type json\nDetail: The text is {text!r}.",
        ) from None


def _load(text: str) -> _Json:
    document: _Json = json.loads(text, parse_float=Decimal)
    return document


def _dump(document: _Json) -> str:
    return normalise_json(_raw(document))


def _raw(document: _Json) -> str:
    return json.dumps(document, ensure_ascii=False, default=_number)


def _number(value: object) -> object:
    return float(value) if isinstance(value, Decimal) else str(value)


@lru_cache(maxsize=1024)
def _path(text: str) -> _Path:
    if not text.startswith("$"):
        raise out_of_range("JSONPath must start with '$'")
    steps: list[str | int] = []
    at = 1
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            raise out_of_range(f"Invalid token in JSONPath at: {text[at:]}")
        if found["index"] is not None:
            steps.append(int(found["index"]))
        else:
            name = found["name"] or found["dotted"] or found["quoted"] or ""
            steps.append(name.strip() if found["name"] else name)
        at = found.end()
    return tuple(steps)


class _Missing:
    pass


def _walk(document: _Json, path: _Path) -> _Json | _Missing:
    for step in path:
        match document, step:
            case dict(), _ if str(step) in document:
                document = document[str(step)]
            case list(), _ if str(step).isdecimal() and int(step) < len(document):
                document = document[int(step)]
            case _:
                return _Missing()
    return document


def _scalar(value: _Json | _Missing) -> str | None:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int() | Decimal() | float():
            return _raw(value)
        case _:
            return None


@routine("VARCHAR", "VARCHAR", "VARCHAR")
def json_scalar(text: str, path: str) -> str | None:
    """JSON_VALUE: a scalar as a string."""
    return _scalar(_walk(_load(text), _path(path)))


@routine("VARCHAR", "VARCHAR", "VARCHAR")
def json_query(text: str, path: str) -> str | None:
    """JSON_QUERY of JSON: a document, JSON null included."""
    found = _walk(_load(text), _path(path))
    return None if isinstance(found, _Missing) else _dump(found)


@routine("VARCHAR[]", "VARCHAR", "VARCHAR")
def json_query_array(text: str, path: str) -> list[str] | None:
    """JSON_QUERY_ARRAY."""
    found = _walk(_load(text), _path(path))
    return [_dump(item) for item in found] if isinstance(found, list) else None


@routine("VARCHAR[]", "VARCHAR", "VARCHAR")
def json_value_array(text: str, path: str) -> list[str | None] | None:
    """JSON_VALUE_ARRAY."""
    found = _walk(_load(text), _path(path))
    if not isinstance(found, list) or any(isinstance(item, dict | list) for item in found):
        return None
    return [_scalar(item) for item in found]


@routine("VARCHAR", "VARCHAR", "VARCHAR")
def json_field(text: str, name: str) -> str | None:
    """A field by name."""
    document = _load(text)
    return _dump(document[name]) if isinstance(document, dict) and name in document else None


@routine("VARCHAR", "VARCHAR", "BIGINT")
def json_element(text: str, index: int) -> str | None:
    """An element by position."""
    document = _load(text)
    if isinstance(document, list) and 0 <= index < len(document):
        return _dump(document[index])
    return None


@routine("VARCHAR", "VARCHAR")
def json_type_name(text: str) -> str:
    """JSON_TYPE."""
    match _load(text):
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case dict():
            return "object"
        case list():
            return "array"
        case _:
            return "number"


@routine("BIGINT", "VARCHAR")
def json_int(text: str) -> int:
    """INT64(json)."""
    document = _load(text)
    if isinstance(document, Decimal) and document == document.to_integral_value():
        document = int(document)
    if isinstance(document, bool) or not isinstance(document, int | Decimal):
        raise out_of_range("The provided JSON input is not an integer")
    if isinstance(document, Decimal) or not -(2**63) <= document < 2**63:
        raise out_of_range(
            f"The provided JSON number: {_raw(document)} cannot be converted to an int64"
        )
    return document


@routine("DOUBLE", "VARCHAR")
def json_float(text: str) -> float:
    """FLOAT64(json)."""
    document = _load(text)
    if isinstance(document, bool) or not isinstance(document, int | Decimal):
        raise out_of_range("The provided JSON input is not a number")
    return float(document)


@routine("BOOLEAN", "VARCHAR")
def json_bool(text: str) -> bool:
    """BOOL(json)."""
    document = _load(text)
    if not isinstance(document, bool):
        raise out_of_range("The provided JSON input is not a boolean")
    return document


@routine("VARCHAR", "VARCHAR")
def json_string(text: str) -> str:
    """STRING(json)."""
    document = _load(text)
    if not isinstance(document, str):
        raise out_of_range("The provided JSON input is not a string")
    return document


@routine("VARCHAR", "VARCHAR")
def json_string_literal(text: str) -> str:
    """A string as a JSON string."""
    return json.dumps(text, ensure_ascii=False)


@routine("VARCHAR", "BIGINT")
def json_of_int(value: int) -> str:
    """TO_JSON_STRING of an integer: a string beyond what a double holds exactly."""
    return str(value) if abs(value) <= _EXACT_INT_MAX else f'"{value}"'


@routine("VARCHAR", "DOUBLE")
def json_of_float(value: float) -> str:
    """TO_JSON_STRING of a double."""
    if math.isnan(value):
        return '"NaN"'
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    return float_to_text(value)


@routine("VARCHAR", "VARCHAR[]", "VARCHAR[]", takes_null=True)
def json_object_text(
    names: Sequence[str | None] | None, values: Sequence[str | None] | None
) -> str | None:
    """An object of names and JSON texts."""
    if names is None or values is None:
        return None
    if any(name is None for name in names):
        raise out_of_range("Keys of JSON_OBJECT must not be NULL")
    pairs = zip(names, values, strict=True)
    members = [f"{json.dumps(name, ensure_ascii=False)}:{value or 'null'}" for name, value in pairs]
    return "{" + ",".join(members) + "}"


@routine("VARCHAR", "VARCHAR[]", takes_null=True)
def json_array_text(values: Sequence[str | None] | None) -> str | None:
    """An array of JSON texts."""
    return None if values is None else "[" + ",".join(value or "null" for value in values) + "]"


# -- PostgreSQL's jsonb


@routine("VARCHAR", "VARCHAR", "VARCHAR")
def jsonb_field(text: str, name: str) -> str | None:
    """`->` by name."""
    document = _load(text)
    if isinstance(document, dict) and name in document:
        return normalise_jsonb(_exact(document[name]))
    return None


@routine("VARCHAR", "VARCHAR", "BIGINT")
def jsonb_element(text: str, index: int) -> str | None:
    """`->` by position; negative ones count from the end."""
    document = _load(text)
    if isinstance(document, list) and -len(document) <= index < len(document):
        return normalise_jsonb(_exact(document[index]))
    return None


@routine("VARCHAR", "VARCHAR")
def jsonb_text(text: str) -> str | None:
    """What `->>` makes of a document: strings without quotes, null as NULL."""
    document = _load(text)
    if document is None:
        return None
    return document if isinstance(document, str) else text


def _exact(document: _Json) -> str:
    """JSON text that keeps the scale of numbers."""
    match document:
        case dict():
            inner = (f"{json.dumps(key)}:{_exact(value)}" for key, value in document.items())
            return "{" + ",".join(inner) + "}"
        case list():
            return "[" + ",".join(map(_exact, document)) + "]"
        case Decimal():
            return f"{document:f}"
        case _:
            return json.dumps(document)
