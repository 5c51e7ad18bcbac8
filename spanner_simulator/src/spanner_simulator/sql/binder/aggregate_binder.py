"""Aggregate calls: DISTINCT, ORDER BY, LIMIT, IGNORE NULLS, HAVING MAX and FILTER."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp

from spanner_simulator.sql.binder.conditions import bind_condition
from spanner_simulator.sql.binder.ordering import order_sql
from spanner_simulator.sql.binder.resolution import functions_of, unresolved
from spanner_simulator.sql.function_tables.signatures import resolve
from spanner_simulator.sql.sql_types import INT64, STRING
from spanner_simulator.sql.syntax import unsupported
from spanner_simulator.sql.terms.bound import Bound, Scope
from spanner_simulator.sql.terms.literals import literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spanner_simulator.sql.binder.binding import Binding
    from spanner_simulator.sql.syntax import Node


_INSIDE: Final = "an aggregate function"


def bind_wrapped(binding: Binding, scope: Scope, node: Node) -> Bound:
    """`f(..) FILTER (WHERE ..)`."""
    if not isinstance(node, exp.Filter) or not isinstance(node.this, exp.Anonymous):
        raise unsupported(f"{node.key.upper()} outside of an aggregate function")
    call = node.this
    condition = bind_condition(binding, scope, node.expression.this, "FILTER")
    return bind_aggregate(
        binding, scope, call.name.upper(), list(call.expressions), call, condition=condition
    )


def bind_aggregate(
    binding: Binding,
    scope: Scope,
    name: str,
    arguments: Sequence[Node],
    node: Node,
    *,
    condition: Bound | None = None,
) -> Bound:
    """An aggregate call of the innermost query."""
    if scope.forbids_aggregates is not None:
        shown = "COUNT(*)" if name == "COUNT" and _is_star(arguments) else name
        if binding.is_postgres:
            raise binding.error(
                f"aggregate functions are not allowed in {scope.forbids_aggregates}"
            )
        if scope.forbids_aggregates == _INSIDE:
            raise binding.error("Aggregations of aggregations are not allowed", node)
        raise binding.error(
            f"Aggregate function {shown} not allowed in {scope.forbids_aggregates}", node
        )
    scope.has_aggregates = True
    filters = [] if condition is None else [condition.sql]
    if name == "COUNT" and _is_star(arguments):
        return Bound(f"count(*){_filter(filters)}", INT64, is_aggregate=True)
    outer = scope.forbids_aggregates
    scope.forbids_aggregates = _INSIDE
    try:
        return _bind(binding, scope, name, arguments=list(arguments), node=node, filters=filters)
    finally:
        scope.forbids_aggregates = outer


def _is_star(arguments: Sequence[Node]) -> bool:
    return len(arguments) == 1 and isinstance(arguments[0], exp.Star)


def _filter(filters: Sequence[str]) -> str:
    return f" FILTER (WHERE {' AND '.join(filters)})" if filters else ""


def _bind(
    binding: Binding,
    scope: Scope,
    name: str,
    *,
    arguments: list[Node],
    node: Node,
    filters: list[str],
) -> Bound:
    limit = order = None
    distinct = having = ""
    ignores_nulls = False
    written: list[Node] = []
    waiting = list(arguments)
    while waiting:
        inner = waiting.pop(0)
        match inner:
            case exp.Limit():
                limit = binding.expression(scope, inner.expression)
            case exp.Order():
                order = inner
            case exp.IgnoreNulls():
                ignores_nulls = True
            case exp.HavingMax():
                measured = binding.expression(scope, inner.expression)
                having = f"arg_{'max' if inner.args.get('max') else 'min'}({{}}, {measured.sql})"
            case exp.Distinct():
                distinct = "DISTINCT "
                waiting[:0] = inner.expressions
                continue
            case exp.RespectNulls():
                pass
            case _:
                written.append(inner)
                continue
        waiting.insert(0, inner.this)
    bounds = [binding.expression(scope, one) for one in written]
    if name == "STRING_AGG" and len(bounds) == 1:
        bounds.append(literal(STRING, ","))
    signatures = [one for one in functions_of(binding)[name] if one.is_aggregate]
    found = resolve(signatures, bounds, binding.dialect)
    if found is None and name in ("MIN", "MAX") and not binding.is_postgres and len(bounds) == 1:
        raise binding.error(
            f"{name} is not defined for arguments of type {binding.type_name(bounds[0])}", node
        )
    if found is None:
        raise unresolved(binding, name, signatures, bounds, node=node)
    typed = [binding.coerce(one, kind).sql for one, kind in zip(bounds, found.types, strict=True)]
    if ignores_nulls:
        filters.append(f"{typed[0]} IS NOT NULL")
    if having:
        return Bound(having.format(typed[0]), found.result, is_aggregate=True)
    listed = distinct + ", ".join(typed)
    if order is not None:
        listed += f" ORDER BY {order_sql(binding, scope, order.expressions)}"
    text = found.signature.text.replace("{args})", f"{listed}){_filter(filters)}")
    if limit is not None:
        text = f"list_slice({text}, 1, {binding.coerce(limit, INT64).sql})"
    return Bound(text, found.result, is_aggregate=True)
