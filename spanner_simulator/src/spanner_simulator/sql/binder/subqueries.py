"""Queries inside expressions: scalar, ARRAY, EXISTS and IN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spanner_simulator.sql.binder import conditions
from spanner_simulator.sql.sql_types import BOOL, array_of, is_floating
from spanner_simulator.sql.terms.bound import Bound, Scope, quoted

if TYPE_CHECKING:
    from spanner_simulator.sql.binder.binding import Binding
    from spanner_simulator.sql.binder.bound_query import BoundQuery, OutputColumn
    from spanner_simulator.sql.syntax import Node


def _single_column(binding: Binding, query: BoundQuery, what: str, node: Node) -> OutputColumn:
    if len(query.columns) != 1:
        raise binding.error(f"{what} cannot have more than one column", node)
    return query.columns[0]


def bind_scalar_query(binding: Binding, scope: Scope, query: Node, node: Node) -> Bound:
    """A query that gives one value."""
    bound = binding.query(query, parent=scope, ctes=scope.ctes)
    column = _single_column(binding, bound, "Scalar subquery", node)
    return Bound(f"({bound.sql})", column.value_type)


def bind_array_query(binding: Binding, scope: Scope, query: Node) -> Bound:
    """ARRAY(query)."""
    bound = binding.query(query, parent=scope, ctes=scope.ctes)
    column = _single_column(binding, bound, "ARRAY subquery", query)
    if column.value_type.element is not None:
        raise binding.error("Nested arrays are not supported", query)
    return Bound(f"ARRAY({bound.sql})", array_of(column.value_type))


def bind_exists(binding: Binding, scope: Scope, query: Node) -> Bound:
    """EXISTS(query)."""
    bound = binding.query(query, parent=scope, ctes=scope.ctes)
    return Bound(f"EXISTS ({bound.sql})", BOOL)


def bind_in_query(binding: Binding, scope: Scope, value: Node, query: Node, node: Node) -> Bound:
    """`value IN (query)`."""
    one = binding.expression(scope, value)
    bound = binding.query(query, parent=scope, ctes=scope.ctes)
    column = _single_column(binding, bound, "Subquery of type IN", node)
    # What a comparison of the two would look like, with the types brought together.
    name = binding.fresh("q")
    other = Bound(f"{name}.{quoted(column.key)}", column.value_type)
    test = conditions.compare(binding, "=", one, other, node)
    kind = binding.common_type([one, other]) or column.value_type
    first, second = binding.coerce(one, kind).sql, binding.coerce(other, kind).sql
    if test.sql.startswith("(pg_numeric_order"):
        first, second = f"pg_numeric_order({first})", f"pg_numeric_order({second})"
    sql = f"({first} IN (SELECT {second} FROM ({bound.sql}) AS {name}))"  # noqa: S608  # own text
    if is_floating(kind) and not binding.is_postgres:
        sql = f"(CASE WHEN isnan({first}) THEN FALSE ELSE {sql} END)"
    return Bound(sql, BOOL, is_aggregate=one.is_aggregate)
