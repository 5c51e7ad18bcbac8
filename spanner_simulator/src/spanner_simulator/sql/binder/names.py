"""Names to columns: scopes from the inside out, fields of structs and JSON documents."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.sql.sql_types import JSON, field_key
from spanner_simulator.sql.syntax import position, unsupported
from spanner_simulator.sql.terms.bound import Bound, Scope
from spanner_simulator.sql.terms.literals import text_literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spanner_simulator.sql.binder.binding import Binding
    from spanner_simulator.sql.terms.bound import Relation, RelationColumn


def name_parts(node: exp.Column | exp.Dot) -> list[exp.Identifier]:
    """The identifiers of a path, outermost first; empty when something else is in it."""
    if isinstance(node, exp.Column):
        parts = [node.args.get(key) for key in ("catalog", "db", "table", "this")]
        return [part for part in parts if isinstance(part, exp.Identifier)]
    left, right = node.this, node.expression
    if isinstance(left, exp.Column | exp.Dot) and isinstance(right, exp.Identifier):
        before = name_parts(left)
        return [*before, right] if before else []
    return []


def bind_name(binding: Binding, scope: Scope, parts: Sequence[exp.Identifier]) -> Bound:
    """A path: `column`, `table.column`, or either with fields behind. Raises `SpannerError`."""
    here: Scope | None = scope
    while here is not None:
        found = _in_scope(binding, here, parts)
        if found is not None:
            bound, used = found
            binding.mark(bound)
            for part in parts[used:]:
                bound = access_field(binding, bound, part)
            return replace(bound, name=parts[-1].name)
        here = here.parent
    raise unknown(binding, parts)


def unknown(binding: Binding, parts: Sequence[exp.Expr]) -> SpannerError:
    """There is nothing of that name."""
    first = parts[0]
    if not binding.is_postgres:
        return binding.error(f"Unrecognized name: {first.name}", first)
    if len(parts) > 1:
        return SpannerError(
            Code.NOT_FOUND, f'[ERROR] missing FROM-clause entry for table "{first.name}"'
        )
    return binding.error(f'column "{first.name}" does not exist')


def _in_scope(
    binding: Binding, scope: Scope, parts: Sequence[exp.Identifier]
) -> tuple[Bound, int] | None:
    """What the path begins with in this scope, and how many of its parts that used."""
    first = parts[0].name.lower()
    if len(parts) > 1:
        for relation in scope.relations:
            if relation.alias.lower() != first:
                continue
            columns = _named(binding, relation, parts[1])
            if len(columns) == 1:
                return columns[0].bound, 2
            if len(columns) > 1:
                if not binding.is_postgres:
                    name = f"Name {parts[1].name} is ambiguous inside {parts[0].name}"
                    raise binding.error(name, parts[1])
                raise _ambiguous(binding, parts[1])
            if relation.value is not None:
                return relation.value, 1
            raise _not_inside(binding, parts)
    if len(parts) == 1 and first in scope.aliases:
        return scope.aliases[first], 1
    if first in scope.merged:
        return scope.merged[first], 1
    found = [
        column for relation in scope.relations for column in _named(binding, relation, parts[0])
    ]
    values = [
        relation.value
        for relation in scope.relations
        if relation.value is not None and relation.alias.lower() == first
    ]
    if len(found) == 1 and not values:
        return found[0].bound, 1
    if values and (not found or len(values) == 1):
        return values[0], 1
    if len(found) > 1:
        raise _ambiguous(binding, parts[0])
    return None


def _named(binding: Binding, relation: Relation, part: exp.Identifier) -> list[RelationColumn]:
    """The columns of that name; PostgreSQL takes a quoted one for just what it says."""
    found = relation.find(part.name)
    if binding.is_postgres and part.args.get("quoted"):
        return [column for column in found if column.name == part.name]
    return found


def _ambiguous(binding: Binding, part: exp.Identifier) -> SpannerError:
    if binding.is_postgres:
        return binding.error(f'column reference "{part.name}" is ambiguous')
    return binding.error(f"Column name {part.name} is ambiguous", part)


def _not_inside(binding: Binding, parts: Sequence[exp.Identifier]) -> SpannerError:
    table, column = parts[0].name, parts[1].name
    if binding.is_postgres:
        return binding.error(f"column {table}.{column} does not exist")
    return binding.error(f"Name {column} not found inside {table}", parts[1])


def access_field(binding: Binding, bound: Bound, part: exp.Identifier) -> Bound:
    """One field of a struct or of a JSON object."""
    kind = bound.value_type
    if kind is not None and kind.code == "STRUCT":
        wanted = part.name.lower()
        found = [
            (index, field_type)
            for index, (name, field_type) in enumerate(kind.fields)
            if name.lower() == wanted
        ]
        if len(found) == 1:
            index, field_type = found[0]
            return Bound(f"struct_extract({bound.sql}, '{field_key(index)}')", field_type)
        what = "is ambiguous" if found else "does not exist"
        raise binding.error(f"Field name {part.name} {what} in {binding.type_name(bound)}", part)
    if kind is not None and kind.code == "JSON" and not binding.is_postgres:
        return Bound(f"json_field({bound.sql}, {text_literal(part.name)})", JSON)
    if kind is not None and kind.code == "PROTO":
        raise unsupported(f"access to fields of messages ({part.name} of {kind.proto_name})")
    message = f"Cannot access field {part.name} on a value with type {binding.type_name(bound)}"
    raise binding.text.error(message, position(part))
