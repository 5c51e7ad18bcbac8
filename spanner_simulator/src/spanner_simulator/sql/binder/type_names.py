"""Types as CAST and typed constructors name them, in both dialects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp

from spanner_simulator.core.values import ValueType
from spanner_simulator.sql.sql_types import (
    BOOL,
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INT64,
    INTERVAL,
    JSON,
    NUMERIC,
    PG_JSONB,
    PG_NUMERIC,
    STRING,
    TIMESTAMP,
    UUID,
    array_of,
)
from spanner_simulator.sql.syntax import unsupported

if TYPE_CHECKING:
    from spanner_simulator.sql.binder.binding import Binding
    from spanner_simulator.sql.syntax import Node


_GOOGLE: Final = {
    "BIGINT": INT64, "INT": INT64, "BOOLEAN": BOOL, "DOUBLE": FLOAT64, "FLOAT": FLOAT32,
    "DECIMAL": NUMERIC, "TEXT": STRING, "VARCHAR": STRING, "BINARY": BYTES, "VARBINARY": BYTES,
    "DATE": DATE, "TIMESTAMPTZ": TIMESTAMP, "TIMESTAMP": TIMESTAMP, "JSON": JSON, "UUID": UUID,
    "INTERVAL": INTERVAL,
}  # fmt: skip
_POSTGRES: Final = {
    "BIGINT": INT64, "INT": INT64, "BOOLEAN": BOOL, "DOUBLE": FLOAT64, "FLOAT": FLOAT32,
    "DECIMAL": PG_NUMERIC, "TEXT": STRING, "VARCHAR": STRING, "VARBINARY": BYTES, "DATE": DATE,
    "TIMESTAMPTZ": TIMESTAMP, "JSONB": PG_JSONB, "UUID": UUID, "INTERVAL": INTERVAL,
}  # fmt: skip


def _named(binding: Binding, name: str) -> ValueType:
    found = binding.named_type(name)
    if found is not None:
        return found
    if binding.is_postgres:
        raise binding.error(f'type "{name.lower()}" does not exist')
    quoted = f"`{name}`"
    shown = quoted if quoted in binding.text.parsed else name
    at = binding.text.parsed.find(shown)
    raise binding.text.error(f"Type not found: {shown}", None if at < 0 else at)


def read_type(binding: Binding, node: Node) -> ValueType:
    """The type that a tree names. Raises `SpannerError` for one that Spanner does not have."""
    if not isinstance(node, exp.DataType):
        raise unsupported(f"the type {node.sql()}")
    kind = node.this
    name = kind.value if isinstance(kind, exp.DType) else str(kind)
    if name in ("ARRAY", "LIST"):
        return array_of(read_type(binding, node.expressions[0]))
    if name == "STRUCT":
        fields = [
            (one.name, read_type(binding, one.args["kind"]))
            if isinstance(one, exp.ColumnDef)
            else ("", read_type(binding, one))
            for one in node.expressions
        ]
        return ValueType("STRUCT", fields=tuple(fields))
    if name == "USER-DEFINED":
        return _named(binding, str(node.args["kind"]))
    found = (_POSTGRES if binding.is_postgres else _GOOGLE).get(name)
    if found is None:
        raise binding.error(f"Type not found: {name}" if not binding.is_postgres
                            else f'type "{name.lower()}" is not supported', node)  # fmt: skip
    if found.code == "STRING" and node.expressions:
        length = node.expressions[0].name
        if length.isdigit():
            return ValueType("STRING", length=int(length))
    return found
