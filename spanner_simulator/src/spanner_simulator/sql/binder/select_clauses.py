"""The SELECT list, and the clauses that use it: GROUP BY, HAVING, ORDER BY, LIMIT and OFFSET."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp

from spanner_simulator.errors import unsupported
from spanner_simulator.sql.binder.bound_query import (
    BoundQuery,
    OutputColumn,
    plain_columns,
    relation_of,
)
from spanner_simulator.sql.binder.conditions import bind_condition, direction_sql, orderable
from spanner_simulator.sql.binder.names import output_name, pack, unknown
from spanner_simulator.sql.sql_types import INT64
from spanner_simulator.sql.terms.bound import Bound, RelationColumn, Scope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spanner_simulator.sql.binder.binding import Binding
    from spanner_simulator.sql.syntax import Node


_CLAUSES: Final = frozenset(
    (
        "expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset",
        "distinct", "with_", "kind", "locks", "operation_modifiers", "this", "expression",
        "by_name", "side", "on",
    )
)  # fmt: skip


def check_clauses(node: Node) -> None:
    """Reject, by name, the clauses that are not supported here."""
    for name, value in node.args.items():
        if value and name not in _CLAUSES:
            raise unsupported(f"{name.strip('_').upper()} in a query")


def group_keys(
    binding: Binding, scope: Scope, node: Node, columns: Sequence[OutputColumn]
) -> list[str] | None:
    """The keys of GROUP BY; None without one."""
    clause = node.args.get("group")
    if clause is None:
        return None
    for name, value in clause.args.items():
        if name != "expressions" and value:
            raise unsupported(f"GROUP BY {name.upper()}")
    outer = scope.forbids_aggregates
    scope.forbids_aggregates = "GROUP BY clause"
    keys: list[str] = []
    for key in clause.expressions:
        bound = _by_ordinal(binding, key, columns, "GROUP BY")
        if bound is None:
            bound = _by_alias(binding, scope, key, columns)
        if bound is None:
            bound = binding.expression(scope, key)
        kind = bound.value_type
        if kind is not None and kind.code in ("JSON", "ARRAY", "STRUCT", "PROTO"):
            raise binding.error(f"Grouping by expressions of type {kind.code} is not allowed", key)
        keys.append(bound.sql)
    scope.forbids_aggregates = outer
    return keys


def _by_ordinal(
    binding: Binding, node: Node, columns: Sequence[OutputColumn], clause: str
) -> Bound | None:
    if not (isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit()):
        return None
    number = int(node.name)
    if not 1 <= number <= len(columns):
        raise binding.error(f"{clause} is out of SELECT column number range: {number}", node)
    return columns[number - 1].bound


def _by_alias(
    binding: Binding, scope: Scope, node: Node, columns: Sequence[OutputColumn]
) -> Bound | None:
    """A SELECT alias, unless a column of PostgreSQL's FROM clause has that name."""
    if not isinstance(node, exp.Column) or node.args.get("table") is not None:
        return None
    name = node.name.lower()
    if binding.is_postgres and any(relation.find(name) for relation in scope.relations):
        return None
    return aliases(columns).get(name)


def bind_having(
    binding: Binding, scope: Scope, node: Node, columns: Sequence[OutputColumn]
) -> Bound | None:
    """HAVING, in which the aliases of the SELECT list are visible."""
    clause = node.args.get("having")
    if clause is None:
        return None
    inner = Scope(scope.parent, scope.relations, scope.merged, aliases(columns), ctes=scope.ctes)
    bound = bind_condition(binding, inner, clause.this, "HAVING clause")
    scope.has_aggregates |= inner.has_aggregates
    return bound


def check_grouped(
    binding: Binding, node: Node, columns: Sequence[OutputColumn], group: Sequence[str]
) -> None:
    """Reject a plain column that has no single value per group."""
    for column, written in zip(columns, node.expressions, strict=False):
        bound = column.bound
        if bound.column is None or bound.sql in group:
            continue
        name = bound.column.column
        raise binding.error(
            f"SELECT list expression references column {name} which is neither grouped nor "
            "aggregated",
            written,
        )


def order_by(
    binding: Binding,
    scope: Scope,
    node: Node,
    columns: Sequence[OutputColumn],
    *,
    is_distinct: bool,
) -> str:
    """ORDER BY; an output column is named by its position."""
    clause = node.args.get("order")
    if clause is None:
        return ""
    inner = Scope(scope.parent, scope.relations, scope.merged, aliases(columns), ctes=scope.ctes)
    keys: list[str] = []
    for item in clause.expressions:
        bound = _by_ordinal(binding, item.this, columns, "ORDER BY")
        if bound is None:
            bound = binding.expression(inner, item.this)
        place = [index for index, column in enumerate(columns, 1) if column.bound.sql == bound.sql]
        if is_distinct and not place:
            raise binding.error(
                "ORDER BY of an expression that is not visible after SELECT DISTINCT", item
            )
        text = orderable(binding, bound, item)
        if place and text == bound.sql:
            text = str(place[0])
        elif bound.constant is not None:
            continue  # nothing to order by; DuckDB would read a number as a position
        keys.append(f"{text} {direction_sql(binding, item)}")
    scope.has_aggregates |= inner.has_aggregates
    return f" ORDER BY {', '.join(keys)}" if keys else ""


def tail_sql(binding: Binding, node: Node, ordered: BoundQuery | None) -> str:
    """ORDER BY over an inner query's columns, LIMIT and OFFSET."""
    text = ""
    if ordered is not None and node.args.get("order") is not None:
        scope = Scope(relations=[relation_of(ordered, "", "")])
        text = order_by(binding, scope, node, plain_columns(ordered.columns), is_distinct=False)
    for name, word in (("limit", "LIMIT"), ("offset", "OFFSET")):
        clause = node.args.get(name)
        if isinstance(clause, exp.Fetch):
            raise unsupported("FETCH")
        if clause is not None:
            text += f" {word} {_count(binding, clause.expression, word)}"
    return text


def _count(binding: Binding, node: Node, word: str) -> str:
    inner = node.this if isinstance(node, exp.Cast) else node
    is_number = isinstance(node, exp.Literal) and node.name.isdigit() and not node.is_string
    if not is_number and not isinstance(inner, exp.Parameter):
        raise binding.error(
            f"{word} expects a non-negative integer literal or parameter"
            if isinstance(node, exp.Neg)
            else f"{word} expects an integer literal or parameter",
            node,
        )
    bound = binding.expression(Scope(), node)
    if not binding.accepts(bound, INT64):
        raise binding.error(f"{word} expects an integer literal or parameter", node)
    return f"non_negative({binding.coerce(bound, INT64).sql}, '{word}')"


def expand_items(binding: Binding, scope: Scope, nodes: Sequence[Node]) -> list[tuple[str, Bound]]:
    """The SELECT list with its stars expanded."""
    items: list[tuple[str, Bound]] = []
    for node in nodes:
        inner = node.this if isinstance(node, exp.Alias) else node
        star = inner.this if isinstance(inner, exp.Column) else inner
        if isinstance(star, exp.Star):
            items.extend(_expand_star(binding, scope, inner, star))
            continue
        bound = binding.expression(scope, inner)
        items.append((output_name(binding, node), bound))
    return items


def _expand_star(binding: Binding, scope: Scope, node: Node, star: Node) -> list[tuple[str, Bound]]:
    if any(star.args.values()):
        raise unsupported("* with EXCEPT or REPLACE")
    columns: list[RelationColumn] = []
    if isinstance(node, exp.Column):
        table = node.args["table"].name.lower()
        relations = [relation for relation in scope.relations if relation.alias.lower() == table]
        if not relations:
            raise unknown(binding, [node.args["table"], star])
        columns = list(relations[0].columns)
    else:
        if not scope.relations:
            raise binding.error("SELECT * must have a FROM clause", star)
        columns += [RelationColumn(merged.name, merged) for merged in scope.merged.values()]
        for relation in scope.relations:
            columns += [
                column for column in relation.columns if column.name.lower() not in relation.hidden
            ]
    columns = [column for column in columns if not column.is_hidden]
    for column in columns:
        binding.mark(column.bound)
    return [(column.name, column.bound) for column in columns]


def output_columns(
    binding: Binding, items: Sequence[tuple[str, Bound]], node: Node
) -> list[OutputColumn]:
    """Output columns with distinct names for DuckDB."""
    kind = node.args.get("kind")
    settled = [(name, binding.settled(bound)) for name, bound in items]
    if kind == "STRUCT":
        fields = tuple((name, bound.value_type or INT64) for name, bound in settled)
        return [OutputColumn("", "c1", pack([bound for _, bound in settled], fields))]
    if kind is not None:
        raise unsupported(f"SELECT AS {kind}")
    used_keys: set[str] = set()
    columns: list[OutputColumn] = []
    for index, (name, bound) in enumerate(settled, start=1):
        key = name if name and name.lower() not in used_keys else f"{name}#{index}"
        used_keys.add(key.lower())
        columns.append(OutputColumn(name, key, bound))
    return columns


def aliases(columns: Sequence[OutputColumn]) -> dict[str, Bound]:
    """The expressions of the SELECT list by lower-case name."""
    return {column.name.lower(): column.bound for column in columns if column.name}


def distinct_sql(binding: Binding, node: Node, columns: Sequence[OutputColumn]) -> str:
    """DISTINCT, which some types do not support."""
    clause = node.args.get("distinct")
    if clause is None:
        return ""
    if clause.args.get("on"):
        raise unsupported("DISTINCT ON")
    for column in columns:
        if column.value_type.code in ("JSON", "ARRAY", "STRUCT", "PROTO"):
            kind = column.value_type.code
            raise binding.error(
                f"Column {column.name} of type {kind} cannot be used in SELECT DISTINCT", node
            )
    return "DISTINCT "
