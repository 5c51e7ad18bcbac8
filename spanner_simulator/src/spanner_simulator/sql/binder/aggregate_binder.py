"""Aggregate calls, with DISTINCT and ORDER BY."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp

from spanner_simulator.sql.binder.ordering import order_sql
from spanner_simulator.sql.binder.resolution import unresolved
from spanner_simulator.sql.function_tables.functions import FUNCTIONS
from spanner_simulator.sql.function_tables.signatures import resolve
from spanner_simulator.sql.sql_types import INT64, STRING
from spanner_simulator.sql.terms.bound import Bound, Scope
from spanner_simulator.sql.terms.literals import literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spanner_simulator.sql.binder.binding import Binding
    from spanner_simulator.sql.syntax import Node


_INSIDE: Final = "an aggregate function"


def bind_aggregate(
    binding: Binding, scope: Scope, name: str, arguments: Sequence[Node], node: Node
) -> Bound:
    """An aggregate call of the innermost query."""
    is_star = len(arguments) == 1 and isinstance(arguments[0], exp.Star)
    if scope.forbids_aggregates is not None:
        shown = "COUNT(*)" if name == "COUNT" and is_star else name
        raise binding.error(
            f"Aggregate function {shown} not allowed in {scope.forbids_aggregates}", node
        )
    scope.has_aggregates = True
    if name == "COUNT" and is_star:
        return Bound("count(*)", INT64, is_aggregate=True)
    scope.forbids_aggregates = _INSIDE
    try:
        return _bind(binding, scope, name, list(arguments), node)
    finally:
        scope.forbids_aggregates = None


def _bind(binding: Binding, scope: Scope, name: str, written: list[Node], node: Node) -> Bound:
    order = distinct = ""
    if written and isinstance(written[-1], exp.Order):
        order = f" ORDER BY {order_sql(binding, scope, written[-1].expressions)}"
        written[-1] = written[-1].this
    if written and isinstance(written[0], exp.Distinct):
        distinct = "DISTINCT "
        written[:1] = written[0].expressions
    bounds = [binding.expression(scope, one) for one in written]
    if name == "STRING_AGG" and len(bounds) == 1:
        bounds.append(literal(STRING, ","))
    found = resolve(FUNCTIONS[binding.dialect][name], bounds, binding.dialect)
    if found is None:
        raise unresolved(binding, name, bounds, node, is_operator=False)
    typed = [binding.coerce(one, kind).sql for one, kind in zip(bounds, found.types, strict=True)]
    text = found.signature.text.replace("{args}", f"{distinct}{', '.join(typed)}{order}")
    return Bound(text, found.result, is_aggregate=True)
