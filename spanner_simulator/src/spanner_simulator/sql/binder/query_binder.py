"""Queries: SELECT with all its clauses, WITH, UNION and similar operations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from spanner_simulator.errors import unsupported
from spanner_simulator.sql.binder import from_binder
from spanner_simulator.sql.binder.bound_query import (
    BoundQuery,
    Lookup,
    OutputColumn,
    has_tail,
    unwrapped,
)
from spanner_simulator.sql.binder.conditions import bind_condition
from spanner_simulator.sql.binder.select_clauses import (
    bind_having,
    check_clauses,
    check_grouped,
    distinct_sql,
    expand_items,
    group_keys,
    order_by,
    output_columns,
    tail_sql,
)
from spanner_simulator.sql.sql_types import carrier, is_same
from spanner_simulator.sql.syntax import position
from spanner_simulator.sql.terms.bound import Bound, Scope, quoted
from spanner_simulator.sql.terms.coercion import cast_sql

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spanner_simulator.core.values import ValueType
    from spanner_simulator.sql.binder.binding import Binding
    from spanner_simulator.sql.syntax import Node


def bind_query(
    binding: Binding, node: Node, *, parent: Scope | None, ctes: Mapping[str, Any]
) -> BoundQuery:
    """A query expression. Raises `SpannerError`."""
    node = unwrapped(node)
    ctes = _with_ctes(node, ctes)
    if isinstance(node, exp.Subquery):
        return _with_tail(binding, node, binding.query(node.this, parent=parent, ctes=ctes))
    if isinstance(node, exp.SetOperation):
        return _set_operation(binding, node, parent=parent, ctes=ctes)
    if isinstance(node, exp.Select):
        return _select(binding, node, parent=parent, ctes=ctes)
    raise unsupported(f"{node.key.upper()} as a query")


def _with_ctes(node: Node, ctes: Mapping[str, Any]) -> Mapping[str, Any]:
    clause = node.args.get("with_")
    if clause is None:
        return ctes
    if clause.args.get("recursive"):
        raise unsupported("WITH RECURSIVE")
    visible = dict(ctes)
    for cte in clause.expressions:
        if cte.args["alias"].columns:
            raise unsupported("column names of a WITH query")
        visible[cte.alias.lower()] = (cte.this, dict(visible))
    return visible


def _with_tail(binding: Binding, node: Node, query: BoundQuery) -> BoundQuery:
    """A query with ORDER BY, LIMIT and OFFSET around it."""
    tail = tail_sql(binding, node, query)
    sql = f"SELECT * FROM ({query.sql}) AS {binding.fresh('q')}{tail}"  # noqa: S608  # own text
    return BoundQuery(sql, query.columns)


def _select(
    binding: Binding, node: Node, *, parent: Scope | None, ctes: Mapping[str, Any]
) -> BoundQuery:
    check_clauses(node)
    scope = Scope(parent, ctes=ctes)
    from_sql = from_binder.bind_from(binding, scope, node)
    where = _where(binding, scope, node)
    if not node.expressions:
        raise binding.text.error("Syntax error: SELECT list must not be empty", position(node) or 0)
    has_from = binding.is_postgres or node.args.get("from_")
    scope.forbids_aggregates = None if has_from else "SELECT without FROM clause"
    items = expand_items(binding, scope, node.expressions)
    columns = output_columns(binding, items, node)
    group = group_keys(binding, scope, node, columns)
    having = bind_having(binding, scope, node, columns)
    is_grouped = group is not None or scope.has_aggregates
    if is_grouped:
        check_grouped(binding, node, columns, group or [])
    distinct = distinct_sql(binding, node, columns)
    order = order_by(binding, scope, node, columns, is_distinct=bool(distinct))
    tail = tail_sql(binding, node, None)
    shown = ", ".join(f"{column.bound.sql} AS {quoted(column.key)}" for column in columns)
    sql = f"SELECT {distinct}{shown}"
    sql += f" FROM {from_sql}" if from_sql else ""
    sql += f" WHERE {where.sql}" if where is not None else ""
    sql += f" GROUP BY {', '.join(group)}" if group else ""
    sql += f" HAVING {having.sql}" if having is not None else ""
    sql += order + tail
    is_plain = not (is_grouped or having or tail)
    scans = frozenset(scan for relation in scope.relations for scan in relation.scans)
    lookup = _lookup(scope, columns, where) if is_plain and not (distinct or order) else None
    return BoundQuery(sql, columns, scans, is_transparent=is_plain, lookup=lookup)


def _where(binding: Binding, scope: Scope, node: Node) -> Bound | None:
    clause = node.args.get("where")
    if clause is None:
        return None
    if node.args.get("from_") is None and not binding.is_postgres:
        raise binding.error("Query without FROM clause cannot have a WHERE clause", clause)
    scope.forbids_aggregates = "WHERE clause"
    bound = bind_condition(binding, scope, clause.this, "WHERE clause")
    for relation in scope.relations:
        binding.restrict(relation.scans, (*bound.restrictions, *scope.links))
    return bound


def _lookup(scope: Scope, columns: Sequence[OutputColumn], where: Bound | None) -> Lookup | None:
    if len(scope.relations) != 1 or len(scope.relations[0].scans) != 1:
        return None
    # A query in FROM may leave out rows that its scan reads.
    if not scope.relations[0].is_whole:
        return None
    (scan,) = scope.relations[0].scans
    if where is not None and not where.is_exact:
        return None
    return Lookup.of_row(scan, [column.bound for column in columns])


def _set_operation(
    binding: Binding, node: Node, *, parent: Scope | None, ctes: Mapping[str, Any]
) -> BoundQuery:
    """Both sides, which must have the same number of columns and common types."""
    check_clauses(node)
    word = node.key.upper()
    is_distinct = bool(node.args.get("distinct"))
    shown = f"{word} {'DISTINCT' if is_distinct else 'ALL'}"
    if node.args.get("by_name") or node.args.get("side"):
        raise unsupported(f"{word} by name")
    left = binding.query(node.this, parent=parent, ctes=ctes)
    right = binding.query(node.expression, parent=parent, ctes=ctes)
    if len(left.columns) != len(right.columns):
        raise binding.error(f"Queries in {shown} have mismatched column count", node.expression)
    kinds = [
        _common_column(
            binding, left_column, right_column, f"Column {index} in {shown}", node.expression
        )
        for index, (left_column, right_column) in enumerate(
            zip(left.columns, right.columns, strict=True), 1
        )
    ]
    columns = [
        replace(column, bound=Bound(quoted(column.key), kind, name=column.name))
        for column, kind in zip(left.columns, kinds, strict=True)
    ]
    sql = (
        f"({_converted(binding, left, columns)}) {shown.removesuffix(' DISTINCT')} "
        f"({_converted(binding, right, columns)})"
    )
    combined = BoundQuery(sql, columns)
    return _with_tail(binding, node, combined) if has_tail(node) else combined


def _common_column(
    binding: Binding, left: OutputColumn, right: OutputColumn, where: str, node: Node
) -> ValueType:
    kind = binding.common_type([left.bound, right.bound])
    if kind is None and left.is_null:
        kind = right.value_type
    elif kind is None and right.is_null:
        kind = left.value_type
    if kind is None:
        names = f"{binding.type_name(left.bound)}, {binding.type_name(right.bound)}"
        raise binding.error(f"{where} has incompatible types: {names}", node)
    return kind


def _converted(binding: Binding, query: BoundQuery, columns: Sequence[OutputColumn]) -> str:
    name = binding.fresh("q")
    shown: list[str] = []
    for source, target in zip(query.columns, columns, strict=True):
        sql = f"{name}.{quoted(source.key)}"
        if source.is_null:
            sql = f"CAST({sql} AS {carrier(target.value_type)})"
        elif not is_same(source.value_type, target.value_type):
            sql = cast_sql(sql, source.value_type, target.value_type, binding.dialect)
        shown.append(f"{sql} AS {quoted(target.key)}")
    return f"SELECT {', '.join(shown)} FROM ({query.sql}) AS {name}"  # noqa: S608  # own text
