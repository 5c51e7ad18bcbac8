"""Literals and parameters, casts and their types, arrays, structs and access to their elements."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from sqlglot import exp

from spanner_simulator.core.values import ValueType
from spanner_simulator.errors import SpannerError, unsupported
from spanner_simulator.sql.binder import conditions
from spanner_simulator.sql.binder.bound_query import unwrapped
from spanner_simulator.sql.binder.names import pack
from spanner_simulator.sql.sql_types import (
    BOOL,
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INT64,
    INTERVAL,
    JSON,
    NUMERIC,
    PG_JSONB,
    PG_NUMERIC,
    STRING,
    TIMESTAMP,
    UUID,
    array_of,
    carrier,
    is_same,
)
from spanner_simulator.sql.syntax import literal_of, position
from spanner_simulator.sql.terms.bound import Bound, Constant, Scope
from spanner_simulator.sql.terms.coercion import cast_sql, read_literal
from spanner_simulator.sql.terms.literals import literal, text_literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spanner_simulator.sql.binder.binding import Binding
    from spanner_simulator.sql.syntax import Node


def bind_literal(binding: Binding, _scope: Scope, node: Node) -> Bound:
    """A number, a string or bytes."""
    text = literal_of(binding.text, node)
    if isinstance(text, str):
        return literal(STRING, text)
    if isinstance(text, bytes):
        return literal(BYTES, text)
    digits = node.name
    if digits.isdigit() and int(digits) < 2**63:
        return literal(INT64, int(digits))
    if binding.is_postgres:
        return cast("Bound", read_literal(digits, PG_NUMERIC, "POSTGRESQL"))
    if digits.isdigit():
        raise binding.error(f"Invalid integer literal: {digits}", node)
    return literal(FLOAT64, float(digits))


def bind_boolean(_binding: Binding, _scope: Scope, node: Node) -> Bound:
    """TRUE and FALSE."""
    return literal(BOOL, bool(node.this))


def bind_null(_binding: Binding, _scope: Scope, _node: Node) -> Bound:
    """NULL, which converts to any type."""
    return Bound("NULL", None, constant=Constant(), is_literal=True)


def bind_parameter(binding: Binding, _scope: Scope, node: Node) -> Bound:
    """`@name` and `$1`."""
    name = node.this.name
    return binding.parameter(f"p{name}" if binding.is_postgres else name)


def bind_cast(binding: Binding, scope: Scope, node: Node) -> Bound:
    """CAST, SAFE_CAST, `::`, and literals with a type before them."""
    target = read_type(binding, node.args["to"])
    is_safe = isinstance(node, exp.TryCast) and not binding.is_postgres
    if isinstance(node.this, exp.Array) and target.element is not None:
        items = [binding.expression(scope, item) for item in node.this.expressions]
        accepted = (binding.accepts(item, target.element) for item in items)
        if not binding.is_postgres and not all(accepted):
            raise binding.error("An array element does not coerce to its type", node.this)
        return _list_of(binding, items, target.element)
    bound = binding.expression(scope, node.this)
    if bound.value_type is None:
        bound = replace(binding.coerce(bound, target), is_literal=False)
        if target.length is None:
            return bound
    source = bound.value_type or target
    value = None if bound.constant is None else bound.constant.value
    if isinstance(value, str) and source.code == "STRING" and not is_safe:
        read = _read(binding, value, target, node)
        if read is not None:
            return read
    sql = cast_sql(bound.sql, source, target, binding.dialect, is_safe=is_safe)
    is_unchanged = is_same(source, target) and target.length is None
    constant = bound.constant if is_unchanged else None
    return Bound(sql, target, constant=constant, is_aggregate=bound.is_aggregate)


def _read(binding: Binding, text: str, target: ValueType, node: Node) -> Bound | None:
    """CAST of a string literal, or a literal such as DATE '..', which is wrong at once."""
    try:
        return read_literal(text, target, binding.dialect)
    except SpannerError:
        text_start = position(node)
        before = binding.text.parsed[: text_start or 0].rstrip().upper()
        if binding.is_postgres or not before.endswith(target.code):
            raise
        start = len(before) - len(target.code)
        raise binding.text.error(f"Invalid {target.code} literal", start) from None


def bind_json_literal(binding: Binding, _scope: Scope, node: Node) -> Bound:
    """JSON '..'."""
    text = literal_of(binding.text, node.this)
    if text is None:
        raise unsupported("a JSON literal with something right behind it; put it in parentheses")
    return cast("Bound", _read(binding, str(text), JSON, node.this))


def _list_of(binding: Binding, items: Sequence[Bound], element: ValueType) -> Bound:
    typed = [binding.coerce(item, element) for item in items]
    kind = array_of(element)
    values = [item.constant.value if item.constant is not None else None for item in typed]
    is_constant = all(
        item.is_literal and item.constant is not None and item.constant.parameter is None
        for item in typed
    )
    listed = ", ".join(item.sql for item in typed)
    return Bound(
        f"CAST([{listed}] AS {carrier(kind)})",
        kind,
        constant=Constant(tuple(values)) if is_constant else None,
        is_literal=is_constant,
        is_aggregate=any(item.is_aggregate for item in typed),
    )


def bind_array(binding: Binding, scope: Scope, node: Node) -> Bound:
    """`[..]`, ARRAY[..] and ARRAY(query)."""
    if len(node.expressions) == 1 and isinstance(unwrapped(node.expressions[0]), exp.Query):
        return conditions.bind_array_query(binding, scope, unwrapped(node.expressions[0]))
    if not node.expressions:
        return _list_of(binding, [], INT64)
    bounds = [binding.expression(scope, item) for item in node.expressions]
    typed, kind = binding.coerced_all(bounds, node, "Array elements")
    if kind.element is not None:
        raise binding.error("Nested arrays are not supported", node)
    return _list_of(binding, typed, kind)


def bind_struct(binding: Binding, scope: Scope, node: Node) -> Bound:
    """STRUCT(..) and `(a, b)`."""
    names = [item.alias if isinstance(item, exp.Alias) else "" for item in node.expressions]
    written = [item.this if isinstance(item, exp.Alias) else item for item in node.expressions]
    bounds = [binding.settled(binding.expression(scope, item)) for item in written]
    fields = tuple(
        (name or (bound.name if isinstance(item, exp.Column) else ""), bound.value_type or INT64)
        for name, bound, item in zip(names, bounds, written, strict=True)
    )
    return pack(bounds, fields)


def bind_bracket(binding: Binding, scope: Scope, node: Node) -> Bound:
    """`array[OFFSET(0)]`, `json[..]`."""
    container = binding.expression(scope, node.this)
    kind = container.value_type
    index = binding.expression(scope, node.expressions[0])
    if kind is not None and kind.code == "JSON":
        return Bound(f"json_step({container.sql}, CAST({index.sql} AS VARCHAR))", kind)
    if kind is None or kind.element is None or not binding.accepts(index, INT64):
        whole_type, index_type = binding.type_name(container), binding.type_name(index)
        raise binding.error(
            f"Subscript [{index_type}] is not supported on values of type {whole_type}", node
        )
    place = binding.coerce(index, INT64)
    if binding.is_postgres:
        return Bound(f"array_at({container.sql}, {place.sql} - 1)", kind.element)
    if node.args.get("offset") is None:
        raise binding.error(
            "Array element access with array[position] is not supported. Use "
            "array[OFFSET(zero_based_offset)] or array[ORDINAL(one_based_ordinal)]",
            node.expressions[0],
        )
    index_sql = f"{place.sql} - {int(node.args['offset'])}"
    if node.args.get("safe"):
        return Bound(f"array_at({container.sql}, {index_sql})", kind.element)
    return Bound(f"array_at_checked({container.sql}, {index_sql}, {place.sql})", kind.element)


def bind_json_arrow(binding: Binding, scope: Scope, node: Node) -> Bound:
    """`->` and `->>` of jsonb."""
    document = binding.coerce(binding.expression(scope, node.this), PG_JSONB)
    step = node.expression
    if isinstance(step, exp.JSONPath):
        key = str(step.expressions[-1].this)
        step_sql = text_literal(str(binding.text.literals[int(key[1:])]) if key[0] == "~" else key)
    else:
        step_sql = f"CAST({binding.settled(binding.expression(scope, step)).sql} AS VARCHAR)"
    stepped = f"jsonb_step({document.sql}, {step_sql})"
    if isinstance(node, exp.JSONExtractScalar):
        return Bound(f"jsonb_text({stepped})", STRING)
    return Bound(stepped, PG_JSONB)


_TYPES: Final = {
    "BIGINT": INT64, "INT": INT64, "BOOLEAN": BOOL, "DOUBLE": FLOAT64, "FLOAT": FLOAT32,
    "TEXT": STRING, "VARCHAR": STRING, "VARBINARY": BYTES, "DATE": DATE, "TIMESTAMPTZ": TIMESTAMP,
    "UUID": UUID, "INTERVAL": INTERVAL,
}  # fmt: skip
_GOOGLE: Final = {"DECIMAL": NUMERIC, "BINARY": BYTES, "TIMESTAMP": TIMESTAMP, "JSON": JSON}
_POSTGRES: Final = {"DECIMAL": PG_NUMERIC, "JSONB": PG_JSONB}


def _named(binding: Binding, name: str) -> ValueType:
    kind = binding.named_type(name)
    if kind is not None:
        return kind
    raise binding.error(f"Type not found: {name}")


def read_type(binding: Binding, node: Node) -> ValueType:
    """The type of a tree.  Raises `SpannerError` for a type that Spanner does not have."""
    if not isinstance(node, exp.DataType):
        raise unsupported(f"the type {node.sql()}")
    kind = node.this
    name = kind.value if isinstance(kind, exp.DType) else str(kind)
    if name in ("ARRAY", "LIST"):
        return array_of(read_type(binding, node.expressions[0]))
    if name == "USER-DEFINED":
        return _named(binding, str(node.args["kind"]))
    read = (_TYPES | (_POSTGRES if binding.is_postgres else _GOOGLE)).get(name)
    if read is None:
        raise unsupported(f"the type {name}")
    if read.code == "STRING" and node.expressions:
        length = node.expressions[0].name
        if length.isdigit():
            return ValueType("STRING", length=int(length))
    return read
