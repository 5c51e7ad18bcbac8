"""The SELECT list: stars spelled out, output columns with their names and types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from spanner_simulator.sql.binder.bound_query import OutputColumn
from spanner_simulator.sql.binder.names import pack, unknown
from spanner_simulator.sql.binder.output_names import output_name
from spanner_simulator.sql.sql_types import INT64
from spanner_simulator.sql.syntax import unsupported
from spanner_simulator.sql.terms.bound import Bound, RelationColumn, Scope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spanner_simulator.sql.binder.binding import Binding
    from spanner_simulator.sql.syntax import Node


def expand_items(
    binding: Binding, scope: Scope, nodes: Sequence[Node]
) -> list[tuple[str, Bound, Node]]:
    """The SELECT list with its stars spelled out."""
    items: list[tuple[str, Bound, Node]] = []
    for node in nodes:
        inner = node.this if isinstance(node, exp.Alias) else node
        star = inner.this if isinstance(inner, exp.Column) else inner
        if isinstance(star, exp.Star):
            items.extend(_expand_star(binding, scope, inner, star))
            continue
        bound = binding.expression(scope, inner)
        items.append((output_name(binding, node), bound, inner))
    return items


def _expand_star(
    binding: Binding, scope: Scope, node: Node, star: Node
) -> list[tuple[str, Bound, Node]]:
    if any(star.args.values()):
        raise unsupported("* with EXCEPT or REPLACE")
    found: list[RelationColumn] = []
    if isinstance(node, exp.Column):
        table = node.args["table"].name.lower()
        relations = [one for one in scope.relations if one.alias.lower() == table]
        if not relations:
            raise unknown(binding, [node.args["table"], star])
        found = list(relations[0].columns)
    else:
        if not scope.relations:
            raise binding.error("SELECT * must have a FROM clause", star)
        found += [RelationColumn(one.name, one) for one in scope.merged.values()]
        for relation in scope.relations:
            found += [one for one in relation.columns if one.name.lower() not in relation.hidden]
    for column in found:
        binding.mark(column.bound)
    return [(column.name, column.bound, node) for column in found]


def output_columns(
    binding: Binding, items: Sequence[tuple[str, Bound, Node]], node: Node
) -> list[OutputColumn]:
    """Output columns with names that DuckDB can tell apart."""
    kind = node.args.get("kind")
    settled = [(name, binding.settled(bound)) for name, bound, _ in items]
    if kind == "STRUCT":
        fields = tuple((name, bound.value_type or INT64) for name, bound in settled)
        return [OutputColumn("", "c1", pack([bound for _, bound in settled], fields))]
    if kind is not None:
        raise unsupported(f"SELECT AS {kind}")
    taken: set[str] = set()
    columns: list[OutputColumn] = []
    for index, (name, bound) in enumerate(settled, start=1):
        key = name if name and name.lower() not in taken else f"{name}#{index}"
        taken.add(key.lower())
        columns.append(OutputColumn(name, key, bound))
    return columns


def aliases(columns: Sequence[OutputColumn]) -> dict[str, Bound]:
    """The expressions of the SELECT list by lower-case name."""
    return {column.name.lower(): column.bound for column in columns if column.name}


def distinct_sql(binding: Binding, node: Node, columns: Sequence[OutputColumn]) -> str:
    """DISTINCT, which some types do not allow."""
    clause = node.args.get("distinct")
    if clause is None:
        return ""
    if clause.args.get("on"):
        raise unsupported("DISTINCT ON")
    for column in columns:
        if column.value_type.code in ("JSON", "ARRAY", "STRUCT", "PROTO"):
            kind = column.value_type.code
            raise binding.error(
                f"Column {column.name} of type {kind} cannot be used in SELECT DISTINCT", node
            )
    return "DISTINCT "
