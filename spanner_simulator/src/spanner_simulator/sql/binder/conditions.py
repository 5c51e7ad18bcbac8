"""Comparisons and logic, with what each condition says of key columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.sql.sql_types import BOOL, array_of, is_floating
from spanner_simulator.sql.terms.bound import Bound, Comparison, Constant, Restriction, Scope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spanner_simulator.core.values import ValueType
    from spanner_simulator.sql.binder.binding import Binding
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
        restrictions=tuple(one for bound in bounds for one in bound.restrictions),
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
    """`=`, `<>`, `<`, `<=`, `>`, `>=`. Raises `SpannerError` when the types do not meet."""
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
    one, other = binding.type_name(left), binding.type_name(right)
    if binding.is_postgres:
        message = f"[ERROR] operator does not exist: {one} {operator} {other}"
        return SpannerError(Code.NOT_FOUND, message)
    shown = "!=" if operator == "<>" else operator
    return binding.error(
        f"No matching signature for operator {shown} for argument types: {one}, {other}. "
        f"Supported signature: ANY {shown} ANY",
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
        # DuckDB takes NaN for the greatest number, and for equal to itself.
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
    if all(one.value_type is None for one in (value, *items)):
        value = binding.settled(value)
    kind = binding.common_type([value, *items])
    if kind is None or not all(binding.accepts(one, kind) for one in (value, *items)):
        wrong = next((one for one in items if binding.common_type([value, one]) is None), items[0])
        raise _no_operator(binding, "=", value, wrong, node)
    first = binding.coerce(value, kind)
    others = [binding.coerce(one, kind) for one in items]
    if len(others) == 1:
        return compare(binding, "=", first, others[0], node)
    tests = [compare(binding, "=", first, one, node) for one in others]
    if is_floating(kind) or kind.annotation == "PG_NUMERIC":
        return any_of(tests)
    constants = tuple(one.constant for one in others if one.constant is not None)
    is_known = first.column is not None and len(constants) == len(others)
    return Bound(
        f"({first.sql} IN ({', '.join(one.sql for one in others)}))",
        BOOL,
        restrictions=(Restriction(first.column, "=", constants),)
        if first.column is not None and is_known
        else (),
        is_exact=is_known,
        is_aggregate=any(one.is_aggregate for one in tests),
    )


def is_in_array(binding: Binding, value: Bound, array: Bound, node: Node) -> Bound:
    """`value IN UNNEST(array)`: NULL where only a NULL element could make it true."""
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
    whole = binding.coerce(array, array_of(kind))
    items = whole.sql
    found = f"list_contains({items}, {first.sql})"
    if kind.annotation == "PG_NUMERIC":
        ordered = f"list_transform({items}, lambda _e: pg_numeric_order(_e))"
        found = f"list_contains({ordered}, pg_numeric_order({first.sql}))"
    if is_floating(kind) and not binding.is_postgres:
        found = f"(NOT isnan({first.sql}) AND {found})"
    sql = (
        f"(CASE WHEN {items} IS NULL OR len({items}) = 0 THEN FALSE "
        f"WHEN {first.sql} IS NULL THEN NULL WHEN {found} THEN TRUE "
        f"WHEN list_aggregate({items}, 'count') < len({items}) THEN NULL ELSE FALSE END)"
    )
    restrictions: tuple[Restriction, ...] = ()
    if first.column is not None and whole.constant is not None:
        listed = Constant(whole.constant.value, whole.constant.parameter, is_list=True)
        restrictions = (Restriction(first.column, "=", (listed,)),)
    return Bound(
        sql,
        BOOL,
        restrictions=restrictions,
        is_exact=bool(restrictions) and not is_floating(kind),
        is_aggregate=value.is_aggregate,
    )
