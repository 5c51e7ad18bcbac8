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


_TYPES: Final = {
    "BIGINT": INT64, "INT": INT64, "BOOLEAN": BOOL, "DOUBLE": FLOAT64, "FLOAT": FLOAT32,
    "TEXT": STRING, "VARCHAR": STRING, "VARBINARY": BYTES, "DATE": DATE, "TIMESTAMPTZ": TIMESTAMP,
    "UUID": UUID, "INTERVAL": INTERVAL,
}  # fmt: skip
_GOOGLE: Final = {"DECIMAL": NUMERIC, "BINARY": BYTES, "TIMESTAMP": TIMESTAMP, "JSON": JSON}
_POSTGRES: Final = {"DECIMAL": PG_NUMERIC, "JSONB": PG_JSONB}


def _named(binding: Binding, name: str) -> ValueType:
    found = binding.named_type(name)
    if found is not None:
        return found
    raise binding.error(f"Type not found: {name}")


def read_type(binding: Binding, node: Node) -> ValueType:
    """The type that a tree names. Raises `SpannerError` for one that Spanner does not have."""
    if not isinstance(node, exp.DataType):
        raise unsupported(f"the type {node.sql()}")
    kind = node.this
    name = kind.value if isinstance(kind, exp.DType) else str(kind)
    if name in ("ARRAY", "LIST"):
        return array_of(read_type(binding, node.expressions[0]))
    if name == "USER-DEFINED":
        return _named(binding, str(node.args["kind"]))
    found = (_TYPES | (_POSTGRES if binding.is_postgres else _GOOGLE)).get(name)
    if found is None:
        raise unsupported(f"the type {name}")
    if found.code == "STRING" and node.expressions:
        length = node.expressions[0].name
        if length.isdigit():
            return ValueType("STRING", length=int(length))
    return found
