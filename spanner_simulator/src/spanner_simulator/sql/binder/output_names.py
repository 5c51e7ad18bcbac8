"""What a result column is called when the statement gives it no alias."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp

if TYPE_CHECKING:
    from spanner_simulator.sql.binder.binding import Binding
    from spanner_simulator.sql.syntax import Node


_NAMELESS: Final = "?column?"


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
        case exp.Paren() | exp.Bracket() | exp.Cast():
            return output_name(binding, node.this)
        case exp.Dot():
            return output_name(binding, node.expression)
        case exp.Case() | exp.Exists() | exp.Array() | exp.Extract():
            return str(node.key).lower()
        case exp.CurrentTimestamp():
            return "current_timestamp"
        case exp.Anonymous():
            return str(node.name).lower()
        case _:
            return _NAMELESS
