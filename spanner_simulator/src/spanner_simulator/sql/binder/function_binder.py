"""Calls: scalar functions by signature, aggregates with DISTINCT and ORDER BY, EXTRACT."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from spanner_simulator.core.rows.mutations import PENDING
from spanner_simulator.core.values import ValueType
from spanner_simulator.errors import SpannerError, invalid_argument, not_found, unsupported
from spanner_simulator.sql.binder import conditions
from spanner_simulator.sql.binder.binding import NOW_SQL, Binding
from spanner_simulator.sql.binder.bound_query import unwrapped
from spanner_simulator.sql.binder.conditions import order_sql
from spanner_simulator.sql.function_tables.functions import FUNCTIONS
from spanner_simulator.sql.function_tables.signatures import resolve
from spanner_simulator.sql.functions.time_routines import DATE_PARTS, DEFAULT_ZONE
from spanner_simulator.sql.sql_types import DATE, INT64, INTERVAL, PG_NUMERIC, STRING, TIMESTAMP
from spanner_simulator.sql.terms.bound import Bound, Constant, Scope
from spanner_simulator.sql.terms.coercion import cast_sql
from spanner_simulator.sql.terms.literals import literal, text_literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spanner_simulator.sql.function_tables.signatures import Signature
    from spanner_simulator.sql.syntax import Node


_PART: Final = ValueType("PART")  # type: ignore[arg-type]  # no value has it; see `signatures`
_SCHEMAS: Final = frozenset(("spanner", "pg_catalog"))


def bind_call(binding: Binding, scope: Scope, node: Node) -> Bound:
    """`NAME(..)`, with or without a schema."""
    call = node
    if isinstance(node, exp.Dot):
        call = node.expression
        schema = node.this.sql().lower().strip('"')
        if schema not in _SCHEMAS:
            raise unsupported(f"the function {schema}.{call.name}")
    name = call.name.upper()
    arguments = list(call.expressions)
    if name == "PENDING_COMMIT_TIMESTAMP":
        return _pending(binding)
    if name == "ARRAY" and len(arguments) == 1 and isinstance(unwrapped(arguments[0]), exp.Query):
        return conditions.bind_array_query(binding, scope, unwrapped(arguments[0]))
    if name == "STRUCT":
        return binding.expression(scope, exp.Struct(expressions=arguments))
    signatures = FUNCTIONS[binding.dialect].get(name, ())
    if signatures and signatures[0].is_aggregate:
        return bind_aggregate(binding, scope, name, arguments, node)
    bounds = [
        _argument(binding, scope, argument, signatures, index)
        for index, argument in enumerate(arguments)
    ]
    return replace(apply(binding, name, bounds, node), name="")


def _argument(
    binding: Binding, scope: Scope, node: Node, signatures: Sequence[Signature], index: int
) -> Bound:
    kinds = {
        signature.arguments[index] for signature in signatures if index < len(signature.arguments)
    }
    if isinstance(node, exp.Interval) and "INTERVAL" in kinds:
        return _interval(binding, scope, node)
    if "PART" in kinds:
        return Bound(text_literal(_date_part(binding, node)), _PART)
    return binding.expression(scope, node)


def _date_part(binding: Binding, node: Node) -> str:
    name = str(node.name).upper()
    if not isinstance(node, exp.Column | exp.Var | exp.Identifier) or name not in DATE_PARTS:
        raise binding.error("A valid date part name is required", node)
    return name


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
        raise invalid_argument(
            "The PENDING_COMMIT_TIMESTAMP() function may only be used as a value for INSERT or "
            "UPDATE of an appropriately typed column. It cannot be used in SELECT, or as the input "
            "to any other scalar expression.",
        )
    return Bound(f"CAST('{PENDING}' AS HUGEINT)", TIMESTAMP, constant=Constant(PENDING))


def bind_special(binding: Binding, scope: Scope, node: Node) -> Bound:
    """EXTRACT and similar calls; any other is rejected by name."""
    match node:
        case exp.Extract():
            return _extract(binding, scope, node)
        case exp.CurrentDate() | exp.CurrentTimestamp():
            return apply(binding, node.sql_name(), [], node)
        case exp.Window():
            raise unsupported("window functions")
        case exp.Interval():
            raise unsupported("INTERVAL values")
        case exp.Query():
            return conditions.bind_scalar_query(binding, scope, unwrapped(node), node)
        case exp.SafeFunc():
            raise unsupported("functions with SAFE before them")
        case _:
            raise unsupported(f"{node.key.upper()} expressions")


def _extract(binding: Binding, scope: Scope, node: Node) -> Bound:
    part = _date_part(binding, node.this)
    source = node.expression
    place = text_literal(DEFAULT_ZONE)
    if isinstance(source, exp.AtTimeZone):
        place = binding.coerce(binding.expression(scope, source.args["zone"]), STRING).sql
        source = source.this
    bound = binding.expression(scope, source)
    code = None if bound.value_type is None else bound.value_type.code
    if code == "TIMESTAMP" and part == "DATE":
        return Bound(f"timestamp_date({bound.sql}, {place})", DATE)
    if code == "DATE":
        extracted = f"date_extract({bound.sql}, {text_literal(part)})"
    elif code == "TIMESTAMP":
        extracted = f"timestamp_extract({bound.sql}, {text_literal(part)}, {place})"
    else:
        raise binding.error(f"EXTRACT from {binding.type_name(bound)} is not supported", node)
    if binding.is_postgres:
        return Bound(cast_sql(extracted, INT64, PG_NUMERIC, binding.dialect), PG_NUMERIC)
    return Bound(extracted, INT64)


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
        return _aggregate(binding, scope, name, list(arguments), node)
    finally:
        scope.forbids_aggregates = None


def _aggregate(binding: Binding, scope: Scope, name: str, written: list[Node], node: Node) -> Bound:
    order = distinct = ""
    if written and isinstance(written[-1], exp.Order):
        order = f" ORDER BY {order_sql(binding, scope, written[-1].expressions)}"
        written[-1] = written[-1].this
    if written and isinstance(written[0], exp.Distinct):
        distinct = "DISTINCT "
        written[:1] = written[0].expressions
    bounds = [binding.expression(scope, argument) for argument in written]
    if name == "STRING_AGG" and len(bounds) == 1:
        bounds.append(literal(STRING, ","))
    resolved = resolve(FUNCTIONS[binding.dialect][name], bounds, binding.dialect)
    if resolved is None:
        raise unresolved(binding, name, bounds, node)
    typed = [
        binding.coerce(bound, kind).sql for bound, kind in zip(bounds, resolved.types, strict=True)
    ]
    text = resolved.signature.text.replace("{args}", f"{distinct}{', '.join(typed)}{order}")
    return Bound(text, resolved.result, is_aggregate=True)


_SLOT = re.compile(r"\{(\d+)(?:\.(count|part))?\}")


def apply(binding: Binding, name: str, arguments: Sequence[Bound], node: Node) -> Bound:
    """A function or operator on bound arguments.  Raises `SpannerError` if no signature matches."""
    signatures = FUNCTIONS[binding.dialect].get(name)
    if signatures is None:
        raise unsupported(f"the {_kind(name)} {name}")
    resolved = resolve(signatures, arguments, binding.dialect)
    if resolved is None:
        raise unresolved(binding, name, arguments, node)
    typed = [
        argument if kind.code in ("PART", "INTERVAL") else binding.coerce(argument, kind)
        for argument, kind in zip(arguments, resolved.types, strict=True)
    ]
    is_aggregate = any(bound.is_aggregate for bound in typed)
    return Bound(
        _filled(resolved.signature.text, typed), resolved.result, is_aggregate=is_aggregate
    )


def _filled(text: str, arguments: Sequence[Bound]) -> str:
    def slot(match: re.Match[str]) -> str:
        argument = arguments[int(match[1])]
        return text_literal(argument.name) if match[2] == "part" else argument.sql

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


def _kind(name: str) -> str:
    return "function" if name[0].isalpha() else "operator"


def unresolved(binding: Binding, name: str, arguments: Sequence[Bound], node: Node) -> SpannerError:
    """The function exists, but not for these types."""
    kind = _kind(name)
    types = ", ".join(binding.type_name(argument) for argument in arguments)
    if binding.is_postgres:
        message = f"[ERROR] {kind} does not exist: {name}({types})"
        return not_found(message)
    return binding.error(
        f"No matching signature for {kind} {name} for argument types: {types}", node
    )
