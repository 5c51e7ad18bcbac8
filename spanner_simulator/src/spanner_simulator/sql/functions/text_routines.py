"""Functions of strings, bytes and JSON documents, which travel as normalised text."""

from __future__ import annotations

import json
import re
import uuid
from decimal import Decimal
from functools import lru_cache
from typing import TypeAlias

from spanner_simulator.core.json_text import normalise_json, normalise_jsonb
from spanner_simulator.errors import out_of_range
from spanner_simulator.sql.functions.routines import postgres_reader, routine

_Json: TypeAlias = "dict[str, _Json] | list[_Json] | str | int | Decimal | bool | None"
_BOOLS = {"true": True, "false": False}
_PG_BOOLS = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "off", "0"), False),
}
_STEP = re.compile(
    r"""\.(?P<name>[^.\[\]"']+) | \."(?P<dotted>(?:\\.|[^"\\])*)"
      | \[\s*(?P<index>\d+)\s*\] | \[\s*(?P<quote>['"])(?P<quoted>.*?)(?P=quote)\s*\]""",
    re.VERBOSE,
)


@routine("BOOLEAN", "VARCHAR")
def text_to_bool(text: str) -> bool:
    """CAST to BOOL."""
    if text.lower() not in _BOOLS:
        raise out_of_range(f"Bad bool value: {text}")
    return _BOOLS[text.lower()]


@postgres_reader("boolean", "BOOLEAN")
def pg_text_to_bool(text: str) -> bool:
    """CAST to boolean."""
    if text.strip().lower() not in _PG_BOOLS:
        raise ValueError(text)
    return _PG_BOOLS[text.strip().lower()]


@routine("VARCHAR", "BLOB")
def bytes_to_text(value: bytes) -> str:
    """CAST to STRING."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise out_of_range("Invalid cast of bytes to UTF8 string") from None


@routine("BLOB", "VARCHAR")
def text_to_bytes(text: str) -> bytes:
    """CAST to BYTES."""
    return text.encode()


@postgres_reader("bytea", "BLOB")
def text_to_bytes_pg(text: str) -> bytes:
    r"""CAST to bytea: hexadecimal after `\x`, else the text without any escapes."""
    if not text.startswith("\\x") and "\\" in text:
        raise ValueError(text)
    return bytes.fromhex(text[2:]) if text.startswith("\\x") else text.encode()


@routine("VARCHAR", "BLOB")
def bytes_to_text_pg(value: bytes) -> str:
    r"""CAST of bytea to text: `\x` and hexadecimal."""
    return "\\x" + value.hex()


@routine("VARCHAR", "VARCHAR")
def text_to_uuid(text: str) -> str:
    """CAST to UUID."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise out_of_range(f"Invalid UUID value: {text}") from None


pg_text_to_uuid = postgres_reader("uuid", "VARCHAR")(text_to_uuid, name="pg_text_to_uuid")


@routine("VARCHAR", is_volatile=True)
def generate_uuid() -> str:
    """A random UUID, a new one for each row."""
    return str(uuid.uuid4())


@routine("VARCHAR", "VARCHAR", "BIGINT", "BIGINT")
def text_part(text: str, start: int, length: int) -> str:
    """SUBSTR: 1-based, negative positions count from the end."""
    if length < 0:
        raise out_of_range("Third argument in SUBSTR() cannot be negative")
    start = max(0, len(text) + start if start < 0 else start - 1)
    return text[start : start + length]


# -- JSON


@routine("VARCHAR", "VARCHAR")
def json_normal(text: str) -> str:
    """PARSE_JSON."""
    try:
        return normalise_json(text)
    except ValueError as error:
        raise out_of_range(f"Invalid input: {error}") from None


@postgres_reader("json", "VARCHAR")
def jsonb_normal(text: str) -> str:
    """CAST to jsonb."""
    return normalise_jsonb(text)


def _load(text: str) -> _Json:
    document: _Json = json.loads(text, parse_float=Decimal)
    return document


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


@lru_cache(maxsize=1024)
def _path(text: str) -> tuple[str, ...]:
    if not text.startswith("$"):
        raise out_of_range("JSONPath must start with '$'")
    steps: list[str] = []
    position = 1
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None:
            raise out_of_range(f"Invalid token in JSONPath at: {text[position:]}")
        name = (match["name"] or "").strip()
        steps.append(name or match["dotted"] or match["quoted"] or match["index"] or "")
        position = match.end()
    return tuple(steps)


def _at(text: str, path: tuple[str, ...], *, from_end: bool = False) -> list[_Json]:
    """The document at a path, if there is one."""
    document = _load(text)
    for step in path:
        if isinstance(document, dict) and step in document:
            document = document[step]
        elif isinstance(document, list) and step.removeprefix("-").isdecimal():
            index = int(step)
            if not (-len(document) if from_end else 0) <= index < len(document):
                return []
            document = document[index]
        else:
            return []
    return [document]


@routine("VARCHAR", "VARCHAR", "VARCHAR")
def json_scalar(text: str, path: str) -> str | None:
    """JSON_VALUE: a scalar as a string."""
    for value in _at(text, _path(path)):
        if isinstance(value, str):
            return value
        if value is not None and not isinstance(value, dict | list):
            return normalise_json(_exact(value))
    return None


@routine("VARCHAR", "VARCHAR", "VARCHAR")
def json_query(text: str, path: str) -> str | None:
    """JSON_QUERY: a document, JSON null included."""
    return next((normalise_json(_exact(value)) for value in _at(text, _path(path))), None)


@routine("VARCHAR", "VARCHAR", "VARCHAR")
def json_step(text: str, step: str) -> str | None:
    """A field by name, or an element by position."""
    return next((normalise_json(_exact(value)) for value in _at(text, (step,))), None)


@routine("VARCHAR", "VARCHAR", "VARCHAR")
def jsonb_step(text: str, step: str) -> str | None:
    """`->` by name, or by position; negative ones count from the end."""
    values = _at(text, (step,), from_end=True)
    return next((normalise_jsonb(_exact(value)) for value in values), None)


@routine("VARCHAR", "VARCHAR")
def jsonb_text(text: str) -> str | None:
    """The result of `->>` for a document: strings without quotes, null as NULL."""
    document = _load(text)
    return document if isinstance(document, str) else None if document is None else text
