"""Types of columns in both dialects: text to values."""

from __future__ import annotations

from typing import Final

from spanner_simulator.core.schema.ddl_words import DdlWords
from spanner_simulator.core.values import TypeCode, ValueType
from spanner_simulator.errors import failed_precondition, invalid_argument, unsupported

_GOOGLE_SCALARS: Final[tuple[TypeCode, ...]] = (
    "BOOL", "INT64", "FLOAT32", "FLOAT64", "NUMERIC", "DATE", "TIMESTAMP", "JSON", "UUID",
    "INTERVAL",
)  # fmt: skip
_GOOGLE_TYPES: Final = {code: ValueType(code) for code in _GOOGLE_SCALARS}
_POSTGRES_TYPES: Final = {
    **dict.fromkeys(("BOOL", "BOOLEAN"), ValueType("BOOL")),
    **dict.fromkeys(("BIGINT", "INT8", "INT", "INTEGER"), ValueType("INT64")),
    **dict.fromkeys(("REAL", "FLOAT4"), ValueType("FLOAT32")),
    **dict.fromkeys(("FLOAT8", "FLOAT"), ValueType("FLOAT64")),
    **dict.fromkeys(("NUMERIC", "DECIMAL", "DEC"), ValueType("NUMERIC", annotation="PG_NUMERIC")),
    **dict.fromkeys(("VARCHAR", "TEXT"), ValueType("STRING")),
    "BYTEA": ValueType("BYTES"),
    "DATE": ValueType("DATE"),
    "TIMESTAMPTZ": ValueType("TIMESTAMP"),
    "JSONB": ValueType("JSON", annotation="PG_JSONB"),
    "UUID": ValueType("UUID"),
    "INTERVAL": ValueType("INTERVAL"),
}
_VARCHAR_MAX: Final = 2_621_440


def google_type(words: DdlWords) -> ValueType:
    """A type of GoogleSQL; any other name is that of a message or an enum."""
    word = words.peek()
    name = word.text.upper() if word.kind == "name" and not words.peek(1).is_symbol(".") else ""
    if name == "ARRAY":
        words.take()
        words.expect_symbol("<")
        element = google_type(words)
        words.expect_symbol(">")
        if element.code == "ARRAY":
            raise invalid_argument("Array of arrays type is not supported by the schema.")
        return ValueType("ARRAY", element, vector_length=_vector_length(words))
    if name in ("STRING", "BYTES"):
        words.take()
        words.expect_symbol("(")
        length = None if words.accept("MAX") else words.integer()
        words.expect_symbol(")")
        return ValueType("STRING" if name == "STRING" else "BYTES", None, length)
    for code, value_type in _GOOGLE_TYPES.items():
        if name == code:
            words.take()
            return value_type
    if name in ("STRUCT", "TOKENLIST", "GEOGRAPHY"):
        raise unsupported(f"type {word.text}")
    if not words.starts_name():
        words.encountered("column_type")
    # A message or an enum: the catalogue knows which, and whether it exists.
    return ValueType("PROTO", proto_name=type_path(words))


def _vector_length(words: DdlWords) -> int | None:
    if not words.accept_symbol("("):
        return None
    words.expect("VECTOR_LENGTH")
    words.expect_symbol("=>")
    length = words.integer()
    words.expect_symbol(")")
    return length


def type_path(words: DdlWords) -> str:
    """The full name of a message or an enum; all of it or its parts may be in back-ticks."""
    path = words.name()
    while words.accept_symbol("."):
        path = f"{path}.{words.take().text}"
    return path


def postgres_type(words: DdlWords) -> tuple[ValueType, bool]:
    """A type, and whether it is spanner.commit_timestamp."""
    if words.accept("SPANNER"):
        words.expect_symbol(".")
        words.expect("COMMIT_TIMESTAMP")
        return ValueType("TIMESTAMP"), True
    if words.accept("PG_CATALOG"):
        words.expect_symbol(".")
    scalar = _postgres_scalar(words)
    dimensions = 0
    while words.accept_symbol("["):
        if words.peek().kind == "number":
            words.take()
        words.expect_symbol("]")
        dimensions += 1
    if words.accept("ARRAY"):
        dimensions += 1
    if dimensions > 1:
        raise failed_precondition("Multi-dimensional arrays are not supported.")
    return (ValueType("ARRAY", scalar) if dimensions else scalar), False


def _postgres_scalar(words: DdlWords) -> ValueType:
    if words.peek().kind not in ("name", "quoted_name"):
        words.encountered("type")
    name = words.take().text.upper()
    if name == "DOUBLE" and words.accept("PRECISION"):
        name = "FLOAT8"
    elif name == "CHARACTER" and words.accept("VARYING"):
        name = "VARCHAR"
    elif name == "TIMESTAMP" and words.accept("WITH", "TIME", "ZONE"):
        name = "TIMESTAMPTZ"
    kind = _POSTGRES_TYPES.get(name)
    if kind is None:
        raise failed_precondition(f"Type <{name.lower()}> is not supported.")
    if not words.accept_symbol("("):
        return kind
    if name != "VARCHAR":
        raise failed_precondition(f"Type modifier is not supported for type <{name.lower()}>.")
    length = words.integer()
    words.expect_symbol(")")
    if length > _VARCHAR_MAX:
        raise failed_precondition(f"Maximum length for <varchar> fields is {_VARCHAR_MAX}.")
    return ValueType("STRING", None, length)
