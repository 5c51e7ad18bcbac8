"""Calls: scalar functions by signature, aggregates, and the forms with a syntax of their own."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from tidegate.spanner_simulator.core.rows.mutations import PENDING
from tidegate.spanner_simulator.core.values import ValueType
from tidegate.spanner_simulator.errors import Code, SpannerError
from tidegate.spanner_simulator.sql.binder import aggregate_binder, expression_binder, subqueries
from tidegate.spanner_simulator.sql.binder.binding import NOW_SQL, Binding
from tidegate.spanner_simulator.sql.binder.bound import Bound, Constant, Scope
from tidegate.spanner_simulator.sql.binder.bound_query import unwrapped
from tidegate.spanner_simulator.sql.binder.coercion import cast_sql
from tidegate.spanner_simulator.sql.binder.literals import literal, text_literal
from tidegate.spanner_simulator.sql.functions.google_functions import GOOGLE_FUNCTIONS
from tidegate.spanner_simulator.sql.functions.json_text_sql import json_document_sql
from tidegate.spanner_simulator.sql.functions.postgres_functions import POSTGRES_FUNCTIONS
from tidegate.spanner_simulator.sql.functions.signatures import resolve
from tidegate.spanner_simulator.sql.functions.time_routines import DATE_PARTS, DEFAULT_ZONE
from tidegate.spanner_simulator.sql.sql_types import (
    DATE,
    INT64,
    INTERVAL,
    JSON,
    PG_NUMERIC,
    STRING,
    TIMESTAMP,
)
from tidegate.spanner_simulator.sql.syntax import unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidegate.spanner_simulator.sql.functions.signatures import Signature
    from tidegate.spanner_simulator.sql.syntax import Node

__all__ = [
    "apply",
    "bind_call",
    "bind_special",
    "functions_of",
    "not_found",
    "unresolved",
]

_PART: Final = ValueType("PART")  # type: ignore[arg-type]  # no value has it; see `signatures`
_SLOT = re.compile(r"\{(\d+)(?:\.(count|part))?\}")
_SCHEMAS: Final = frozenset(("spanner", "pg_catalog"))


def functions_of(binding: Binding) -> Mapping[str, tuple[Signature, ...]]:
    """The functions of the statement's dialect."""
    return POSTGRES_FUNCTIONS if binding.is_postgres else GOOGLE_FUNCTIONS


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
        return expression_binder.bind(binding, scope, exp.Struct(expressions=arguments))
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
    return expression_binder.bind(binding, scope, node)


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
        count = expression_binder.bind(binding, scope, written)
        if not binding.accepts(count, INT64):
            raise binding.error("Interval value must be coercible to INT64 type", node)
        count = binding.coerce(count, INT64)
    return Bound(count.sql, INTERVAL, name=unit.name.upper().removesuffix("S"))


def apply(
    binding: Binding,
    name: str,
    arguments: Sequence[Bound],
    node: Node,
    *,
    symbol: str | None = None,
) -> Bound:
    """A function or operator on bound arguments. Raises `SpannerError` when none fits."""
    signatures = functions_of(binding).get(name)
    if signatures is None:
        if symbol is not None:
            raise unsupported(f"the operator {symbol}")
        raise not_found(binding, node.name or name.lower(), arguments, node)
    found = resolve(signatures, arguments, binding.dialect)
    if found is None:
        raise unresolved(
            binding,
            symbol or name,
            signatures,
            arguments,
            node=node,
            is_operator=symbol is not None,
        )
    typed = [
        one if kind.code in ("PART", "INTERVAL") else binding.coerce(one, kind)
        for one, kind in zip(arguments, found.types, strict=True)
    ]
    return Bound(
        _filled(found.signature.text, typed),
        found.result,
        is_aggregate=any(one.is_aggregate for one in typed),
    )


def _filled(text: str, arguments: Sequence[Bound]) -> str:
    def slot(found: re.Match[str]) -> str:
        argument = arguments[int(found[1])]
        return text_literal(argument.name) if found[2] == "part" else argument.sql

    sqls = [argument.sql for argument in arguments]
    filled = _SLOT.sub(slot, text)
    for name, value in (
        ("{*}", ", ".join(sqls)),
        ("{||}", " || ".join(sqls)),
        ("{anynull}", " OR ".join(f"{sql} IS NULL" for sql in sqls)),
        ("{now}", NOW_SQL),
        ("{zone}", f"'{DEFAULT_ZONE}'"),
    ):
        if name in text:
            filled = filled.replace(name, value)
    return filled


def not_found(binding: Binding, name: str, arguments: Sequence[Bound], node: Node) -> SpannerError:
    """There is no such function."""
    if binding.is_postgres:
        types = ", ".join(binding.type_name(one) for one in arguments)
        return SpannerError(
            Code.NOT_FOUND,
            f"[ERROR] function {name.lower()}({types}) does not exist\nHint: No function matches "
            "the given name and argument types. You might need to add explicit type casts.",
        )
    return binding.error(f"Function not found: {name}", node)


def unresolved(
    binding: Binding,
    name: str,
    signatures: Sequence[Signature],
    arguments: Sequence[Bound],
    *,
    node: Node,
    is_operator: bool = False,
) -> SpannerError:
    """The function exists, but not for these types."""
    names = [binding.type_name(one) for one in arguments]
    if binding.is_postgres:
        if is_operator:
            what = f"operator does not exist: {f' {name} '.join(names)}"
            return SpannerError(
                Code.NOT_FOUND,
                f"[ERROR] {what}\nHint: No operator matches the given name and argument types. "
                "You might need to add explicit type casts.",
            )
        return not_found(binding, name, arguments, node)
    kind = "operator" if is_operator else "function"
    if signatures[0].is_aggregate:
        kind = "aggregate function"
    shown = [_shown(one, name, is_operator=is_operator) for one in signatures]
    plural = "s" if len(shown) > 1 else ""
    return binding.error(
        f"No matching signature for {kind} {name} for argument types: {', '.join(names)}. "
        f"Supported signature{plural}: {'; '.join(shown)}",
        node,
    )


def _shown(signature: Signature, name: str, *, is_operator: bool) -> str:
    arguments = [*signature.arguments, *([f"{signature.rest}, ..."] if signature.rest else [])]
    if is_operator:
        return f" {name} ".join(arguments) if len(arguments) > 1 else f"{name}{arguments[0]}"
    return f"{name}({', '.join(arguments)})"


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
    message = apply(binding, "ERROR", [expression_binder.bind(binding, scope, argument)], node)
    return replace(message, value_type=None)


def _to_json(
    binding: Binding, scope: Scope, name: str, arguments: Sequence[Node], node: Node
) -> Bound:
    bounds = [binding.settled(expression_binder.bind(binding, scope, one)) for one in arguments]
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
            bounds = [expression_binder.bind(binding, scope, one) for one in parts if one]
            return apply(binding, "SUBSTRING", bounds, node)
        case exp.Trim():
            prefix = {"LEADING": "L", "TRAILING": "R"}.get(str(node.args.get("position") or ""), "")
            parts = [node.this, node.args.get("expression")]
            bounds = [expression_binder.bind(binding, scope, one) for one in parts if one]
            return apply(binding, f"{prefix}TRIM", bounds, node)
        case exp.StrPosition():
            bounds = [
                expression_binder.bind(binding, scope, one)
                for one in (node.this, node.args["substr"])
            ]
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
        zone = binding.coerce(expression_binder.bind(binding, scope, source.args["zone"]), STRING)
        place, source = zone.sql, source.this
    bound = expression_binder.bind(binding, scope, source)
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
