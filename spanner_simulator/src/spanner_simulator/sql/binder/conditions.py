"""Comparisons and logic, with what each condition says of key columns; queries inside expressions.

ORDER BY: NULL comes first in GoogleSQL and last in PostgreSQL; JSON and arrays have no order. NaN
is the least number in GoogleSQL, and the greatest in PostgreSQL as in DuckDB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spanner_simulator.errors import SpannerError, not_found, unsupported
from spanner_simulator.sql.sql_types import BOOL, array_of, is_floating
from spanner_simulator.sql.terms.bound import (
    Bound,
    Comparison,
    Constant,
    Restriction,
    Scope,
    quoted,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spanner_simulator.core.values import ValueType
    from spanner_simulator.sql.binder.binding import Binding
    from spanner_simulator.sql.binder.bound_query import BoundQuery, OutputColumn
    from spanner_simulator.sql.syntax import Node


_FLIPPED: Final[dict[str, Comparison]] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def as_condition(binding: Binding, bound: Bound, clause: str, node: Node) -> Bound:
    """A BOOL, or an error that names the clause."""
    if not binding.accepts(bound, BOOL):
        kind = binding.type_name(bound)
        raise binding.error(f"{clause} should return type BOOL, but returns {kind}", node)
    return binding.coerce(bound, BOOL)


def bind_condition(binding: Binding, scope: Scope, node: Node, clause: str) -> Bound:
    """An expression that must be a BOOL."""
    return as_condition(binding, binding.expression(scope, node), clause, node)


def all_of(bounds: Sequence[Bound]) -> Bound:
    """AND."""
    if len(bounds) == 1:
        return bounds[0]
    return Bound(
        "(" + " AND ".join(bound.sql for bound in bounds) + ")",
        BOOL,
        restrictions=tuple(restriction for bound in bounds for restriction in bound.restrictions),
        is_exact=all(bound.is_exact for bound in bounds),
        is_aggregate=any(bound.is_aggregate for bound in bounds),
    )


def any_of(bounds: Sequence[Bound]) -> Bound:
    """OR."""
    return Bound(
        "(" + " OR ".join(bound.sql for bound in bounds) + ")",
        BOOL,
        is_aggregate=any(bound.is_aggregate for bound in bounds),
    )


def negated(bound: Bound) -> Bound:
    """NOT."""
    return Bound(f"(NOT {bound.sql})", BOOL, is_aggregate=bound.is_aggregate)


def compare(binding: Binding, operator: str, left: Bound, right: Bound, node: Node) -> Bound:
    """`=`, `<>`, `<`, `<=`, `>`, `>=`.  Raises `SpannerError` if the types are not comparable."""
    first, second, kind = _brought_together(binding, operator, left, right, node)
    _check_comparable(binding, operator, kind, node)
    sql = _comparison_sql(binding, operator, first.sql, second.sql, kind)
    restrictions = _restrictions(operator, first, second)
    if is_floating(kind) and binding.is_postgres and operator != "=":
        restrictions = ()  # a NaN is greater than all numbers, but comes first among keys
    return Bound(
        sql,
        BOOL,
        restrictions=restrictions,
        is_exact=bool(restrictions) and restrictions[0].other is None and not is_floating(kind),
        is_aggregate=left.is_aggregate or right.is_aggregate,
    )


def _brought_together(
    binding: Binding, operator: str, left: Bound, right: Bound, node: Node
) -> tuple[Bound, Bound, ValueType]:
    if left.value_type is None and right.value_type is None:
        left, right = binding.settled(left), binding.settled(right)
    kind = binding.common_type([left, right])
    if kind is None or not (binding.accepts(left, kind) and binding.accepts(right, kind)):
        raise _no_operator(binding, operator, left, right, node)
    return binding.coerce(left, kind), binding.coerce(right, kind), kind


def _no_operator(
    binding: Binding, operator: str, left: Bound, right: Bound, node: Node
) -> SpannerError:
    left_type, right_type = binding.type_name(left), binding.type_name(right)
    if binding.is_postgres:
        message = f"[ERROR] operator does not exist: {left_type} {operator} {right_type}"
        return not_found(message)
    shown = "!=" if operator == "<>" else operator
    return binding.error(
        f"No matching signature for operator {shown} for argument types: "
        f"{left_type}, {right_type}. Supported signature: ANY {shown} ANY",
        node,
    )


def _check_comparable(binding: Binding, operator: str, kind: ValueType, node: Node) -> None:
    refused = ("JSON", "ARRAY", "PROTO", *(() if operator in ("=", "<>") else ("STRUCT",)))
    if kind.code in refused:
        name = kind.wire_name() if kind.proto_name else binding.type_name(Bound("", kind))
        raise binding.error(f"{operator} is not defined for arguments of type {name}", node)


def _comparison_sql(
    binding: Binding, operator: str, first: str, second: str, kind: ValueType
) -> str:
    if kind.annotation == "PG_NUMERIC":
        return f"(pg_numeric_order({first}) {operator} pg_numeric_order({second}))"
    if is_floating(kind) and not binding.is_postgres:
        # DuckDB treats NaN as the greatest number, and as equal to itself.
        test = f"{first} {operator} {second}"
        either = f"isnan({first}) OR isnan({second})"
        with_nan = "TRUE" if operator == "<>" else "FALSE"
        return f"(CASE WHEN {either} THEN {with_nan} ELSE {test} END)"
    return f"({first} {operator} {second})"


def _restrictions(operator: str, first: Bound, second: Bound) -> tuple[Restriction, ...]:
    if operator not in _FLIPPED:
        return ()
    comparison = _FLIPPED[_FLIPPED[operator]]
    if first.column is not None and second.constant is not None:
        return (Restriction(first.column, comparison, (second.constant,)),)
    if second.column is not None and first.constant is not None:
        return (Restriction(second.column, _FLIPPED[operator], (first.constant,)),)
    if operator == "=" and first.column is not None and second.column is not None:
        return (
            Restriction(first.column, "=", other=second.column),
            Restriction(second.column, "=", other=first.column),
        )
    return ()


def is_in(binding: Binding, value: Bound, items: Sequence[Bound], node: Node) -> Bound:
    """`value IN (item, ..)`."""
    if all(boundm.value_type is None for boundm in (value, *items)):
        value = binding.settled(value)
    kind = binding.common_type([value, *items])
    if kind is None or not all(binding.accepts(item, kind) for item in (value, *items)):
        wrong = next(
            (item for item in items if binding.common_type([value, item]) is None), items[0]
        )
        raise _no_operator(binding, "=", value, wrong, node)
    first = binding.coerce(value, kind)
    coerced = [binding.coerce(item, kind) for item in items]
    if len(coerced) == 1:
        return compare(binding, "=", first, coerced[0], node)
    tests = [compare(binding, "=", first, item, node) for item in coerced]
    if is_floating(kind) or kind.annotation == "PG_NUMERIC":
        return any_of(tests)
    constants = tuple(item.constant for item in coerced if item.constant is not None)
    is_known = first.column is not None and len(constants) == len(coerced)
    return Bound(
        f"({first.sql} IN ({', '.join(item.sql for item in coerced)}))",
        BOOL,
        restrictions=(Restriction(first.column, "=", constants),)
        if first.column is not None and is_known
        else (),
        is_exact=is_known,
        is_aggregate=any(itemt.is_aggregate for itemt in tests),
    )


def is_in_array(binding: Binding, value: Bound, array: Bound, node: Node) -> Bound:
    """`value IN UNNEST(array)`: NULL if only a NULL element could make it true."""
    element = None if array.value_type is None else array.value_type.element
    if array.value_type is not None and element is None:
        raise binding.error(
            f"Second argument of IN UNNEST must be an array but was {binding.type_name(array)}",
            node,
        )
    if element is None:
        kind = binding.settled(value).value_type
    else:
        kind = binding.common_type([value, Bound("", element)])
    if kind is None:
        raise _no_operator(binding, "=", value, Bound("", element), node)
    _check_comparable(binding, "=", kind, node)
    first = binding.coerce(value, kind)
    coerced_array = binding.coerce(array, array_of(kind))
    items = coerced_array.sql
    condition = f"list_contains({items}, {first.sql})"
    if kind.annotation == "PG_NUMERIC":
        ordered = f"list_transform({items}, lambda _e: pg_numeric_order(_e))"
        condition = f"list_contains({ordered}, pg_numeric_order({first.sql}))"
    if is_floating(kind) and not binding.is_postgres:
        condition = f"(NOT isnan({first.sql}) AND {condition})"
    sql = (
        f"(CASE WHEN {items} IS NULL OR len({items}) = 0 THEN FALSE "
        f"WHEN {first.sql} IS NULL THEN NULL WHEN {condition} THEN TRUE "
        f"WHEN list_aggregate({items}, 'count') < len({items}) THEN NULL ELSE FALSE END)"
    )
    restrictions: tuple[Restriction, ...] = ()
    if first.column is not None and coerced_array.constant is not None:
        listed = Constant(
            coerced_array.constant.value, coerced_array.constant.parameter, is_list=True
        )
        restrictions = (Restriction(first.column, "=", (listed,)),)
    return Bound(
        sql,
        BOOL,
        restrictions=restrictions,
        is_exact=bool(restrictions) and not is_floating(kind),
        is_aggregate=value.is_aggregate,
    )


_UNORDERED = frozenset(("ARRAY", "STRUCT", "JSON", "PROTO"))


def order_sql(binding: Binding, scope: Scope, items: Sequence[Node]) -> str:
    """The keys of an ORDER BY inside an aggregate."""
    return ", ".join(
        f"{orderable(binding, binding.expression(scope, item.this), item)} "
        f"{direction_sql(binding, item)}"
        for item in items
    )


def orderable(binding: Binding, bound: Bound, node: Node) -> str:
    """The sort key of an expression; INVALID_ARGUMENT for a type without an order."""
    kind = bound.value_type
    if kind is not None and kind.code in _UNORDERED:
        name = binding.type_name(bound)
        raise binding.error(f"ORDER BY does not support expressions of type {name}", node)
    if kind is not None and kind.annotation == "PG_NUMERIC":
        return f"pg_numeric_order({bound.sql})"
    if kind is not None and is_floating(kind) and not binding.is_postgres:
        return f"float_order({bound.sql})"
    return bound.sql


def direction_sql(binding: Binding, item: Node) -> str:
    """ASC or DESC, with the dialect's place for NULL unless PostgreSQL names one."""
    is_descending = bool(item.args.get("desc"))
    nulls_first = item.args.get("nulls_first")
    first = is_descending if binding.is_postgres else not is_descending
    if nulls_first is not None and bool(nulls_first) != first:
        if not binding.is_postgres:
            raise unsupported("NULLS FIRST and NULLS LAST")
        first = not first
    return f"{'DESC' if is_descending else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"


def _single_column(binding: Binding, query: BoundQuery, subject: str, node: Node) -> OutputColumn:
    if len(query.columns) != 1:
        raise binding.error(f"{subject} cannot have more than one column", node)
    return query.columns[0]


def bind_scalar_query(binding: Binding, scope: Scope, query: Node, node: Node) -> Bound:
    """A query that returns one value."""
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
    searched = binding.expression(scope, value)
    bound = binding.query(query, parent=scope, ctes=scope.ctes)
    column = _single_column(binding, bound, "Subquery of type IN", node)
    # The form of a comparison of the two, with their types converted.
    name = binding.fresh("q")
    other = Bound(f"{name}.{quoted(column.key)}", column.value_type)
    test = compare(binding, "=", searched, other, node)
    kind = binding.common_type([searched, other]) or column.value_type
    first, second = binding.coerce(searched, kind).sql, binding.coerce(other, kind).sql
    if test.sql.startswith("(pg_numeric_order"):
        first, second = f"pg_numeric_order({first})", f"pg_numeric_order({second})"
    sql = f"({first} IN (SELECT {second} FROM ({bound.sql}) AS {name}))"  # noqa: S608  # own text
    if is_floating(kind) and not binding.is_postgres:
        sql = f"(CASE WHEN isnan({first}) THEN FALSE ELSE {sql} END)"
    return Bound(sql, BOOL, is_aggregate=searched.is_aggregate)
