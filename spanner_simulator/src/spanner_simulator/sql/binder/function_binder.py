"""Calls: scalar functions by signature, aggregates, and the forms with a syntax of their own."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from spanner_simulator.core.rows.mutations import PENDING
from spanner_simulator.core.values import ValueType
from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.sql.binder import aggregate_binder, subqueries
from spanner_simulator.sql.binder.bound_query import unwrapped
from spanner_simulator.sql.binder.resolution import apply, functions_of, not_found
from spanner_simulator.sql.function_tables.json_text_sql import json_document_sql
from spanner_simulator.sql.functions.time_routines import DATE_PARTS, DEFAULT_ZONE
from spanner_simulator.sql.sql_types import (
    DATE,
    INT64,
    INTERVAL,
    JSON,
    PG_NUMERIC,
    STRING,
    TIMESTAMP,
)
from spanner_simulator.sql.syntax import unsupported
from spanner_simulator.sql.terms.bound import Bound, Constant, Scope
from spanner_simulator.sql.terms.coercion import cast_sql
from spanner_simulator.sql.terms.literals import literal, text_literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spanner_simulator.sql.binder.binding import Binding
    from spanner_simulator.sql.function_tables.signatures import Signature
    from spanner_simulator.sql.syntax import Node


_PART: Final = ValueType("PART")  # type: ignore[arg-type]  # no value has it; see `signatures`
_SCHEMAS: Final = frozenset(("spanner", "pg_catalog"))


def bind_call(binding: Binding, scope: Scope, node: Node) -> Bound:
    """`NAME(..)`, with a schema before it or not."""
    call = node
    if isinstance(node, exp.Dot):
        call = node.expression
        schema = node.this.sql().lower().strip('"')
        if schema not in _SCHEMAS and binding.is_postgres:
            raise not_found(binding, f"{schema}.{call.name}", [], node)
    name = call.name.upper()
    arguments = list(call.expressions)
    if name == "PENDING_COMMIT_TIMESTAMP":
        return _pending(binding)
    if name == "ARRAY" and len(arguments) == 1 and isinstance(unwrapped(arguments[0]), exp.Query):
        return subqueries.bind_array_query(binding, scope, unwrapped(arguments[0]))
    if name == "ERROR" and len(arguments) == 1 and not binding.is_postgres:
        return _error(binding, scope, arguments[0], node)
    if name == "STRUCT":
        return binding.expression(scope, exp.Struct(expressions=arguments))
    if name in ("TO_JSON", "TO_JSON_STRING", "JSON_ARRAY", "JSON_OBJECT") and (
        not binding.is_postgres
    ):
        return _to_json(binding, scope, name, arguments, node)
    signatures = functions_of(binding).get(name, ())
    if name == "COUNT" or (signatures and signatures[0].is_aggregate):
        return aggregate_binder.bind_aggregate(binding, scope, name, arguments, node)
    bounds = [
        _argument(binding, scope, argument, signatures, index)
        for index, argument in enumerate(arguments)
    ]
    return replace(apply(binding, name, bounds, node), name="")


def _argument(
    binding: Binding, scope: Scope, node: Node, signatures: Sequence[Signature], index: int
) -> Bound:
    wanted = {one.arguments[index] for one in signatures if index < len(one.arguments)}
    if isinstance(node, exp.Interval):
        if "INTERVAL" not in wanted:
            raise unsupported("INTERVAL values")
        return _interval(binding, scope, node)
    if "PART" in wanted:
        part = date_part(node)
        if part is None:
            raise binding.error("A valid date part name is required", node)
        return Bound(text_literal(part), _PART)
    if isinstance(node, exp.Kwarg | exp.PropertyEQ | exp.Lambda):
        raise unsupported("named arguments and lambdas")
    return binding.expression(scope, node)


def date_part(node: Node) -> str | None:
    """DAY, or WEEK(MONDAY); None when the node names no date part."""
    name = node.name.upper()
    if isinstance(node, exp.Column | exp.Var | exp.Identifier) and name in DATE_PARTS:
        return str(name)
    if isinstance(node, exp.Anonymous) and name == "WEEK" and len(node.expressions) == 1:
        return f"WEEK({node.expressions[0].name.upper()})"
    if isinstance(node, exp.WeekStart):
        return f"WEEK({node.this.name.upper()})"
    return None


def _interval(binding: Binding, scope: Scope, node: Node) -> Bound:
    unit = node.args.get("unit")
    if unit is None or isinstance(unit, exp.IntervalSpan):
        raise unsupported("INTERVAL values with more than one part")
    written = node.this
    if isinstance(written, exp.Literal) and re.fullmatch(r"-?\d+", written.name):
        count = literal(INT64, int(written.name))
    else:
        count = binding.expression(scope, written)
        if not binding.accepts(count, INT64):
            raise binding.error("Interval value must be coercible to INT64 type", node)
        count = binding.coerce(count, INT64)
    return Bound(count.sql, INTERVAL, name=unit.name.upper().removesuffix("S"))


def _pending(binding: Binding) -> Bound:
    if not binding.allows_pending:
        raise SpannerError(
            Code.INVALID_ARGUMENT,
            "The PENDING_COMMIT_TIMESTAMP() function may only be used as a value for INSERT or "
            "UPDATE of an appropriately typed column. It cannot be used in SELECT, or as the input "
            "to any other scalar expression.",
        )
    return Bound(f"CAST('{PENDING}' AS HUGEINT)", TIMESTAMP, constant=Constant(PENDING))


def _error(binding: Binding, scope: Scope, argument: Node, node: Node) -> Bound:
    """ERROR(message), which takes the place of a value of any type."""
    message = apply(binding, "ERROR", [binding.expression(scope, argument)], node)
    return replace(message, value_type=None)


def _to_json(
    binding: Binding, scope: Scope, name: str, arguments: Sequence[Node], node: Node
) -> Bound:
    bounds = [binding.settled(binding.expression(scope, one)) for one in arguments]
    quotes_wide = name == "TO_JSON_STRING"
    texts = [
        json_document_sql(one.sql, one.value_type or INT64, quotes_wide=quotes_wide)
        for one in bounds
    ]
    match name:
        case "JSON_ARRAY":
            return Bound(f"json_array_text(CAST([{', '.join(texts)}] AS VARCHAR[]))", JSON)
        case "JSON_OBJECT":
            if len(bounds) % 2:
                raise binding.error("JSON_OBJECT needs an even number of arguments", node)
            keys = ", ".join(one.sql for one in bounds[::2])
            values = ", ".join(texts[1::2])
            arrays = f"CAST([{keys}] AS VARCHAR[]), CAST([{values}] AS VARCHAR[])"
            return Bound(f"json_normal(json_object_text({arrays}))", JSON)
        case _:
            if len(bounds) != 1:
                raise unsupported(f"{name} with more than one argument")
            if bounds[0].value_type is not None and bounds[0].value_type.code == "STRUCT":
                raise SpannerError(
                    Code.UNIMPLEMENTED,
                    f"{name} is not supported on values of type {binding.type_name(bounds[0])}",
                )
            aggregate = bounds[0].is_aggregate
            return Bound(texts[0], STRING if name == "TO_JSON_STRING" else JSON,
                         is_aggregate=aggregate)  # fmt: skip


# -- forms with a syntax of their own


def bind_special(binding: Binding, scope: Scope, node: Node) -> Bound:
    """EXTRACT, SAFE.f(), TRIM(.. FROM ..) and their like; anything else is refused by name."""
    match node:
        case exp.SafeFunc():
            bound = bind_call(binding, scope, node.this)
            return replace(bound, sql=f"TRY({bound.sql})")
        case exp.Extract():
            return _extract(binding, scope, node)
        case exp.Filter() | exp.IgnoreNulls() | exp.RespectNulls():
            return aggregate_binder.bind_wrapped(binding, scope, node)
        case exp.Substring():
            parts = [node.this, node.args.get("start"), node.args.get("length")]
            bounds = [binding.expression(scope, one) for one in parts if one]
            return apply(binding, "SUBSTRING", bounds, node)
        case exp.Trim():
            prefix = {"LEADING": "L", "TRAILING": "R"}.get(str(node.args.get("position") or ""), "")
            parts = [node.this, node.args.get("expression")]
            bounds = [binding.expression(scope, one) for one in parts if one]
            return apply(binding, f"{prefix}TRIM", bounds, node)
        case exp.StrPosition():
            bounds = [binding.expression(scope, one) for one in (node.this, node.args["substr"])]
            return apply(binding, "STRPOS", bounds, node)
        case exp.Concat() if not binding.is_postgres:
            raise binding.error(
                "Concatenation of subsequent string literals is not supported. Did you mean to "
                "use the || operator?",
                node,
            )
        case exp.CurrentDate():
            return apply(binding, "CURRENT_DATE", [], node)
        case exp.Window():
            if binding.is_postgres:
                raise unsupported("window functions")
            raise binding.error("Analytic functions not supported", node)
        case exp.Interval():
            raise unsupported("INTERVAL values")
        case exp.Star():
            raise binding.error("Star is not allowed here", node)
        case exp.Unnest():
            raise binding.error("UNNEST is not allowed here", node)
        case exp.Alias():
            raise binding.error("An alias is not allowed here", node)
        case exp.Subquery() | exp.Query():
            return subqueries.bind_scalar_query(binding, scope, unwrapped(node), node)
        case exp.Func():
            raise unsupported(f"the function {node.sql_name()}")
        case _:
            raise unsupported(f"{node.key.upper()} expressions")


def _extract(binding: Binding, scope: Scope, node: Node) -> Bound:
    part = date_part(node.this)
    if part is None:
        raise binding.error(f"A valid date part name is required but found {node.this.name}", node)
    source = node.expression
    place = text_literal(DEFAULT_ZONE)
    if isinstance(source, exp.AtTimeZone):
        zone = binding.coerce(binding.expression(scope, source.args["zone"]), STRING)
        place, source = zone.sql, source.this
    bound = binding.expression(scope, source)
    kind = bound.value_type
    if kind is not None and kind.code == "DATE":
        found = Bound(f"date_extract({bound.sql}, {text_literal(part)})", INT64)
    elif kind is not None and kind.code == "TIMESTAMP":
        if part == "DATE":
            return Bound(f"timestamp_date({bound.sql}, {place})", DATE)
        call = f"timestamp_extract({bound.sql}, {text_literal(part)}, {place})"
        found = Bound(call, INT64)
    else:
        raise binding.error(f"EXTRACT from {binding.type_name(bound)} is not supported", node)
    if binding.is_postgres:
        return Bound(cast_sql(found.sql, INT64, PG_NUMERIC, binding.dialect), PG_NUMERIC)
    return found
