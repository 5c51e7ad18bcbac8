"""UNION, INTERSECT and EXCEPT: columns brought to common types."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from spanner_simulator.sql.binder.bound_query import BoundQuery, OutputColumn, has_tail
from spanner_simulator.sql.binder.select_clauses import check_clauses, tail_sql
from spanner_simulator.sql.sql_types import carrier, is_same
from spanner_simulator.sql.syntax import unsupported
from spanner_simulator.sql.terms.bound import Bound, Scope, quoted
from spanner_simulator.sql.terms.coercion import cast_sql

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spanner_simulator.core.values import ValueType
    from spanner_simulator.sql.binder.binding import Binding
    from spanner_simulator.sql.syntax import Node


def bind_set_operation(
    binding: Binding, node: Node, *, parent: Scope | None, ctes: Mapping[str, Any]
) -> BoundQuery:
    """Both sides with as many columns, of types that meet."""
    check_clauses(node)
    word = node.key.upper()
    is_distinct = bool(node.args.get("distinct"))
    shown = f"{word} {'DISTINCT' if is_distinct else 'ALL'}"
    if node.args.get("by_name") or node.args.get("side"):
        raise unsupported(f"{word} by name")
    left = binding.query(node.this, parent=parent, ctes=ctes)
    right = binding.query(node.expression, parent=parent, ctes=ctes)
    if len(left.columns) != len(right.columns):
        raise binding.error(f"Queries in {shown} have mismatched column count", node.expression)
    kinds = [
        _common_column(binding, one, other, f"Column {index} in {shown}", node.expression)
        for index, (one, other) in enumerate(zip(left.columns, right.columns, strict=True), 1)
    ]
    columns = [
        replace(one, bound=Bound(quoted(one.key), kind, name=one.name))
        for one, kind in zip(left.columns, kinds, strict=True)
    ]
    sql = (
        f"({_converted(binding, left, columns)}) {shown.removesuffix(' DISTINCT')} "
        f"({_converted(binding, right, columns)})"
    )
    whole = BoundQuery(sql, columns)
    if has_tail(node):
        tail = tail_sql(binding, node, whole)
        return BoundQuery(f"SELECT * FROM ({sql}) AS {binding.fresh('q')}{tail}", columns)  # noqa: S608  # own text
    return whole


def _common_column(
    binding: Binding, one: OutputColumn, other: OutputColumn, where: str, node: Node
) -> ValueType:
    kind = binding.common_type([one.bound, other.bound])
    if kind is None and one.is_null:
        kind = other.value_type
    elif kind is None and other.is_null:
        kind = one.value_type
    if kind is None:
        names = f"{binding.type_name(one.bound)}, {binding.type_name(other.bound)}"
        raise binding.error(f"{where} has incompatible types: {names}", node)
    return kind


def _converted(binding: Binding, query: BoundQuery, columns: Sequence[OutputColumn]) -> str:
    name = binding.fresh("q")
    shown: list[str] = []
    for mine, target in zip(query.columns, columns, strict=True):
        sql = f"{name}.{quoted(mine.key)}"
        if mine.is_null:
            sql = f"CAST({sql} AS {carrier(target.value_type)})"
        elif not is_same(mine.value_type, target.value_type):
            sql = cast_sql(sql, mine.value_type, target.value_type, binding.dialect)
        shown.append(f"{sql} AS {quoted(target.key)}")
    return f"SELECT {', '.join(shown)} FROM ({query.sql}) AS {name}"  # noqa: S608  # own text
