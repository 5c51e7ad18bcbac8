"""What a result column is called when the statement gives it no alias."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp

if TYPE_CHECKING:
    from spanner_simulator.sql.binder.binding import Binding
    from spanner_simulator.sql.syntax import Node


_NAMELESS: Final = "?column?"
_TYPE_NAMES: Final = {
    "BIGINT": "int8", "INT": "int8", "BOOLEAN": "bool", "DOUBLE": "float8", "FLOAT": "float4",
    "DECIMAL": "numeric", "TEXT": "text", "VARCHAR": "varchar", "VARBINARY": "bytea",
    "DATE": "date", "TIMESTAMPTZ": "timestamptz", "JSONB": "jsonb", "UUID": "uuid",
}  # fmt: skip


def identifier_name(binding: Binding, node: Node) -> str:
    """An identifier; PostgreSQL folds it to lower case unless it is quoted."""
    name = str(node.name)
    return name.lower() if binding.is_postgres and not node.args.get("quoted") else name


def output_name(binding: Binding, node: Node) -> str:
    """The name of a SELECT item, by the dialect's rules."""
    if isinstance(node, exp.Alias):
        return identifier_name(binding, node.args["alias"])
    if isinstance(node, exp.Column):
        return identifier_name(binding, node.this)
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        return identifier_name(binding, node.expression)
    return _postgres_name(binding, node) if binding.is_postgres else ""


def _postgres_name(binding: Binding, node: Node) -> str:
    match node:
        case exp.Paren():
            return output_name(binding, node.this)
        case exp.Dot():
            return output_name(binding, node.expression)
        case exp.Filter() | exp.IgnoreNulls():
            return output_name(binding, node.this)
        case exp.Cast():
            is_weak = isinstance(node.this.unnest(), exp.Cast | exp.Case)
            inner = _NAMELESS if is_weak else output_name(binding, node.this)
            kind = node.args["to"].this
            named = _TYPE_NAMES.get(getattr(kind, "value", ""), _NAMELESS)
            return named if inner == _NAMELESS else inner
        case exp.Bracket():
            return output_name(binding, node.this)
        case exp.Case():
            last = node.args.get("default") or exp.Null()
            is_weak = isinstance(last.unnest(), exp.Cast | exp.Case)
            name = _NAMELESS if is_weak else output_name(binding, last)
            return "case" if name == _NAMELESS else name
        case exp.Exists():
            return "exists"
        case exp.Array():
            return "array"
        case exp.Extract():
            return "extract"
        case exp.Substring():
            return "substring"
        case exp.Trim():
            return "btrim"
        case exp.StrPosition():
            return "position"
        case exp.CurrentTimestamp():
            return "current_timestamp"
        case exp.Anonymous():
            return str(node.name).lower()
        case exp.Subquery():
            query = node.unnest()
            if isinstance(query, exp.Select) and len(query.expressions) == 1:
                return output_name(binding, query.expressions[0])
            return _NAMELESS
        case _:
            return _NAMELESS
