"""One expression of the tree: names, literals, operators, conditionals, arrays and structs.

Calls go to `function_binder`.  A node that is not in the table below is rejected by name, never
passed on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from sqlglot import exp

from spanner_simulator.errors import unsupported
from spanner_simulator.sql.binder import composites, conditions, function_binder
from spanner_simulator.sql.binder.bound_query import unwrapped
from spanner_simulator.sql.binder.function_binder import apply
from spanner_simulator.sql.binder.names import access_field, bind_name, name_parts
from spanner_simulator.sql.sql_types import BOOL, INT64
from spanner_simulator.sql.terms.bound import Bound, Scope
from spanner_simulator.sql.terms.literals import literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spanner_simulator.sql.binder.binding import Binding
    from spanner_simulator.sql.syntax import Node


_COMPARISONS: Final[dict[type[Any], str]] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
_OPERATORS: Final[dict[type[Any], str]] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.Neg: "-",
    exp.DPipe: "||", exp.Like: "LIKE",
}  # fmt: skip
# Arguments that the parser may add to a node that is bound here; others are errors, not ignored.
_KNOWN_ARGS: Final = frozenset(
    (
        "this", "expression", "expressions", "negate", "table", "db", "catalog", "is_string",
        "is_integer", "is_bytes", "is_literal", "true", "false", "ifs", "default", "to", "safe",
        "low", "high", "query", "unnest", "offset", "nested", "value_constructor",
        "struct_name_inheritance", "only_json_types", "bracket_notation", "typed",
    )
)  # fmt: skip


def bind(binding: Binding, scope: Scope, node: Node) -> Bound:
    """DuckDB's text and Spanner's type of an expression. Raises `SpannerError`."""
    bound = _bind(binding, scope, node)
    # IS NOT, NOT IN, NOT LIKE and NOT BETWEEN.
    return conditions.negated(bound) if node.args.get("negate") else bound


def _bind(binding: Binding, scope: Scope, node: Node) -> Bound:
    kind = type(node)
    for name, value in node.args.items():
        if value and name not in _KNOWN_ARGS and kind in _BINDERS:
            raise unsupported(f"{name.upper()} in {node.key.upper()}")
    if kind in _COMPARISONS:
        return _comparison(binding, scope, node, _COMPARISONS[kind])
    if kind in _OPERATORS:
        return _operator(binding, scope, node, _OPERATORS[kind])
    binder = _BINDERS.get(kind)
    if binder is None:
        return function_binder.bind_special(binding, scope, node)
    return binder(binding, scope, node)


def _comparison(binding: Binding, scope: Scope, node: Node, operator: str) -> Bound:
    right = node.expression
    if isinstance(right, exp.Any) and operator == "=":
        array = unwrapped(right.this)
        if isinstance(array, exp.Query):
            return conditions.bind_in_query(binding, scope, node.this, array, node)
        value = bind(binding, scope, node.this)
        return conditions.is_in_array(binding, value, bind(binding, scope, array), node)
    if isinstance(right, exp.Any | exp.All):
        raise unsupported(f"{operator} ANY and ALL")
    left, right_bound = bind(binding, scope, node.this), bind(binding, scope, right)
    return conditions.compare(binding, operator, left, right_bound, node)


def _operator(binding: Binding, scope: Scope, node: Node, name: str) -> Bound:
    operands = [node.this] if isinstance(node, exp.Unary) else [node.this, node.expression]
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal):
        if node.this.name == str(2**63) and not node.this.is_string:
            return literal(INT64, -(2**63))
        number = bind(binding, scope, node.this)
        value = number.constant.value if number.constant is not None else None
        if isinstance(value, int | float) and number.value_type is not None:
            return literal(number.value_type, -value)
    return apply(binding, name, [bind(binding, scope, operand) for operand in operands], node)


# -- names


def _column(binding: Binding, scope: Scope, node: Node) -> Bound:
    parts = name_parts(cast("exp.Column", node))
    if binding.is_postgres and len(parts) == 1 and parts[0].name.upper() == "CURRENT_TIMESTAMP":
        return apply(binding, "CURRENT_TIMESTAMP", [], node)
    return bind_name(binding, scope, parts)


def _dot(binding: Binding, scope: Scope, node: Node) -> Bound:
    if isinstance(node.expression, exp.Anonymous):
        return function_binder.bind_call(binding, scope, node)
    parts = name_parts(cast("exp.Dot", node))
    if parts:
        return bind_name(binding, scope, parts)
    part = cast("exp.Identifier", node.expression)
    return access_field(binding, bind(binding, scope, node.this), part)


def _paren(binding: Binding, scope: Scope, node: Node) -> Bound:
    bound = bind(binding, scope, node.this)
    return replace(bound, sql=f"({bound.sql})")


# -- logic


def _conditions(binding: Binding, scope: Scope, nodes: Iterable[Node], word: str) -> list[Bound]:
    return [conditions.bind_condition(binding, scope, node, word) for node in nodes]


def _and(binding: Binding, scope: Scope, node: Node) -> Bound:
    return conditions.all_of(_conditions(binding, scope, node.flatten(), "AND"))


def _or(binding: Binding, scope: Scope, node: Node) -> Bound:
    return conditions.any_of(_conditions(binding, scope, node.flatten(), "OR"))


def _not(binding: Binding, scope: Scope, node: Node) -> Bound:
    return conditions.negated(conditions.bind_condition(binding, scope, node.this, "NOT"))


def _is(binding: Binding, scope: Scope, node: Node) -> Bound:
    bound = bind(binding, scope, node.this)
    other = node.expression
    if isinstance(other, exp.Null):
        return Bound(f"({bound.sql} IS NULL)", BOOL, is_aggregate=bound.is_aggregate)
    if isinstance(other, exp.Boolean):
        tested = conditions.as_condition(binding, bound, "IS operand", node)
        word = "TRUE" if other.this else "FALSE"
        return Bound(f"({tested.sql} IS NOT DISTINCT FROM {word})", BOOL)
    raise unsupported(f"IS {other.sql()}")


def _between(binding: Binding, scope: Scope, node: Node) -> Bound:
    value, low, high = (
        bind(binding, scope, bound_node)
        for bound_node in (node.this, node.args["low"], node.args["high"])
    )
    return conditions.all_of(
        [
            conditions.compare(binding, ">=", value, low, node),
            conditions.compare(binding, "<=", value, high, node),
        ]
    )


def _in(binding: Binding, scope: Scope, node: Node) -> Bound:
    if node.args.get("query") is not None:
        query = unwrapped(node.args["query"])
        return conditions.bind_in_query(binding, scope, node.this, query, node)
    value = bind(binding, scope, node.this)
    unnested = node.args.get("unnest")
    if unnested is not None:
        array = bind(binding, scope, unnested.expressions[0])
        return conditions.is_in_array(binding, value, array, node)
    items = [bind(binding, scope, item) for item in node.expressions]
    return conditions.is_in(binding, value, items, node)


# -- conditionals


def _if(binding: Binding, scope: Scope, node: Node) -> Bound:
    test = conditions.bind_condition(binding, scope, node.this, "IF")
    chosen = [node.args["true"], node.args.get("false") or exp.Null()]
    bounds = [bind(binding, scope, branch) for branch in chosen]
    (yes, no), kind = binding.coerced_all(bounds, node, "Results of IF")
    return Bound(
        f"(CASE WHEN {test.sql} THEN {yes.sql} ELSE {no.sql} END)",
        kind,
        is_aggregate=any(boundnch.is_aggregate for boundnch in (test, *bounds)),
    )


def _case(binding: Binding, scope: Scope, node: Node) -> Bound:
    subject = None if node.this is None else bind(binding, scope, node.this)
    tests: list[Bound] = []
    results: list[Bound] = []
    for branch in node.args["ifs"]:
        if subject is None:
            tests.append(conditions.bind_condition(binding, scope, branch.this, "CASE WHEN"))
        else:
            value = bind(binding, scope, branch.this)
            tests.append(conditions.compare(binding, "=", subject, value, branch))
        results.append(bind(binding, scope, branch.args["true"]))
    results.append(bind(binding, scope, node.args.get("default") or exp.Null()))
    typed, kind = binding.coerced_all(results, node, "Results of CASE")
    branches = " ".join(
        f"WHEN {test.sql} THEN {result.sql}" for test, result in zip(tests, typed, strict=False)
    )
    return Bound(
        f"(CASE {branches} ELSE {typed[-1].sql} END)",
        kind,
        is_aggregate=any(bound.is_aggregate for bound in (*tests, *results)),
    )


def _exists(binding: Binding, scope: Scope, node: Node) -> Bound:
    return conditions.bind_exists(binding, scope, unwrapped(node.this))


_BINDERS: Final[dict[type[Any], Callable[[Binding, Scope, Node], Bound]]] = {
    exp.Literal: composites.bind_literal,
    exp.ByteString: composites.bind_literal,
    exp.Boolean: composites.bind_boolean,
    exp.Null: composites.bind_null,
    exp.Parameter: composites.bind_parameter,
    exp.Column: _column,
    exp.Dot: _dot,
    exp.Paren: _paren,
    exp.And: _and,
    exp.Or: _or,
    exp.Not: _not,
    exp.Is: _is,
    exp.Between: _between,
    exp.In: _in,
    exp.If: _if,
    exp.Case: _case,
    exp.Cast: composites.bind_cast,
    exp.TryCast: composites.bind_cast,
    exp.ParseJSON: composites.bind_json_literal,
    exp.Array: composites.bind_array,
    exp.Struct: composites.bind_struct,
    exp.Tuple: composites.bind_struct,
    exp.Bracket: composites.bind_bracket,
    exp.JSONExtract: composites.bind_json_arrow,
    exp.JSONExtractScalar: composites.bind_json_arrow,
    exp.Exists: _exists,
    exp.Anonymous: function_binder.bind_call,
}
