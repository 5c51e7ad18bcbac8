"""Names to columns, from the inside out, to fields of structs and JSON, and of results."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from spanner_simulator.core.values import ValueType
from spanner_simulator.errors import SpannerError, unsupported
from spanner_simulator.sql.sql_types import JSON, field_key
from spanner_simulator.sql.terms.bound import Bound, Scope
from spanner_simulator.sql.terms.literals import text_literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spanner_simulator.sql.binder.binding import Binding
    from spanner_simulator.sql.syntax import Node
    from spanner_simulator.sql.terms.bound import Relation, RelationColumn


def name_parts(node: exp.Column | exp.Dot) -> list[exp.Identifier]:
    """The identifiers of a path, outermost first; empty if it has other parts."""
    if isinstance(node, exp.Column):
        parts = [node.args.get(key) for key in ("catalog", "db", "table", "this")]
        return [part for part in parts if isinstance(part, exp.Identifier)]
    left, right = node.this, node.expression
    if isinstance(left, exp.Column | exp.Dot) and isinstance(right, exp.Identifier):
        before = name_parts(left)
        return [*before, right] if before else []
    return []


def bind_name(binding: Binding, scope: Scope, parts: Sequence[exp.Identifier]) -> Bound:
    """A path: `column`, `table.column`, or either followed by fields.  Raises `SpannerError`."""
    current: Scope | None = scope
    while current is not None:
        name_found = _in_scope(binding, current, parts)
        if name_found is not None:
            bound, used = name_found
            binding.mark(bound)
            for part in parts[used:]:
                bound = access_field(binding, bound, part)
            return replace(bound, name=parts[-1].name)
        current = current.parent
    raise unknown(binding, parts)


def unknown(binding: Binding, parts: Sequence[exp.Expr]) -> SpannerError:
    """The error for an unknown name."""
    first = parts[0]
    if binding.is_postgres:
        return binding.error(f'column "{first.name}" does not exist')
    return binding.error(f"Unrecognized name: {first.name}", first)


def _in_scope(
    binding: Binding, scope: Scope, parts: Sequence[exp.Identifier]
) -> tuple[Bound, int] | None:
    """The beginning of the path in this scope, and the number of its parts that it uses."""
    first = parts[0].name.lower()
    if len(parts) > 1:
        for relation in scope.relations:
            if relation.alias.lower() != first:
                continue
            columns = _named(binding, relation, parts[1])
            if len(columns) == 1:
                return columns[0].bound, 2
            if len(columns) > 1:
                raise _ambiguous(binding, parts[1])
            if relation.value is not None:
                return relation.value, 1
            message = f"Name {parts[1].name} not found inside {parts[0].name}"
            raise binding.error(message, parts[1])
    if len(parts) == 1 and first in scope.aliases:
        return scope.aliases[first], 1
    if first in scope.merged:
        return scope.merged[first], 1
    candidates = [
        column.bound
        for relation in scope.relations
        for column in _named(binding, relation, parts[0])
    ]
    candidates += [
        relation.value
        for relation in scope.relations
        if relation.value is not None and relation.alias.lower() == first
    ]
    if len(candidates) > 1:
        raise _ambiguous(binding, parts[0])
    return (candidates[0], 1) if candidates else None


def _named(binding: Binding, relation: Relation, part: exp.Identifier) -> list[RelationColumn]:
    """The columns of that name; PostgreSQL compares a quoted name exactly."""
    columns = relation.find(part.name)
    if binding.is_postgres and part.args.get("quoted"):
        return [column for column in columns if column.name == part.name]
    return columns


def _ambiguous(binding: Binding, part: exp.Identifier) -> SpannerError:
    return binding.error(f"Column name {part.name} is ambiguous", part)


def access_field(binding: Binding, bound: Bound, part: exp.Identifier) -> Bound:
    """One field of a struct or of a JSON object."""
    kind = bound.value_type
    if kind is not None and kind.code == "STRUCT":
        matches = [
            (index, field_type)
            for index, (name, field_type) in enumerate(kind.fields)
            if name.lower() == part.name.lower()
        ]
        if len(matches) == 1:
            index, field_type = matches[0]
            sql = f"struct_extract({bound.sql}, '{field_key(index)}')"
            return Bound(sql, field_type, name=part.name)
        fault = "is ambiguous" if matches else "does not exist"
        raise binding.error(f"Field name {part.name} {fault} in {binding.type_name(bound)}", part)
    if kind is not None and kind.code == "JSON" and not binding.is_postgres:
        return Bound(f"json_step({bound.sql}, {text_literal(part.name)})", JSON, name=part.name)
    if kind is not None and kind.code == "PROTO":
        raise unsupported(f"access to fields of messages ({part.name} of {kind.proto_name})")
    message = f"Cannot access field {part.name} on a value with type {binding.type_name(bound)}"
    raise binding.error(message, part)


def pack(bounds: Sequence[Bound], fields: tuple[tuple[str, ValueType], ...]) -> Bound:
    """A struct of these values."""
    packed = ", ".join(f"{field_key(index)} := {bound.sql}" for index, bound in enumerate(bounds))
    aggregate = any(bound.is_aggregate for bound in bounds)
    kind = ValueType("STRUCT", fields=fields)
    return Bound(f"struct_pack({packed})", kind, is_aggregate=aggregate)


_NAMELESS: Final = "?column?"


def identifier_name(binding: Binding, node: Node) -> str:
    """An identifier; PostgreSQL folds it to lower case unless it is quoted."""
    name = str(node.name)
    return name.lower() if binding.is_postgres and not node.args.get("quoted") else name


def output_name(binding: Binding, node: Node) -> str:
    """The name of a SELECT item, by the dialect's rules."""
    if isinstance(node, exp.Alias):
        return identifier_name(binding, node.args["alias"])
    if isinstance(node, exp.Column):
        return identifier_name(binding, node.this)
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        return identifier_name(binding, node.expression)
    return _postgres_name(binding, node) if binding.is_postgres else ""


def _postgres_name(binding: Binding, node: Node) -> str:
    match node:
        case exp.Paren() | exp.Bracket() | exp.Cast():
            return output_name(binding, node.this)
        case exp.Dot():
            return output_name(binding, node.expression)
        case exp.Case() | exp.Exists() | exp.Array() | exp.Extract():
            return str(node.key).lower()
        case exp.CurrentTimestamp():
            return "current_timestamp"
        case exp.Anonymous():
            return str(node.name).lower()
        case _:
            return _NAMELESS
