"""FROM clauses: tables, views, subqueries, WITH queries, UNNEST, and joins of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp

from spanner_simulator.errors import unsupported
from spanner_simulator.sql.binder.bound_query import has_tail, relation_of, unwrapped
from spanner_simulator.sql.binder.conditions import all_of, bind_condition, compare
from spanner_simulator.sql.binder.names import identifier_name
from spanner_simulator.sql.binder.tables import path_of, table_relation
from spanner_simulator.sql.sql_types import BOOL, INT64, field_key
from spanner_simulator.sql.terms.bound import Bound, Relation, RelationColumn, Scope

if TYPE_CHECKING:
    from spanner_simulator.sql.binder.binding import Binding
    from spanner_simulator.sql.syntax import Node


_JOIN_ARGS: Final = frozenset(("this", "side", "kind", "on", "using"))


def bind_from(binding: Binding, scope: Scope, node: Node) -> str:
    """DuckDB's text of a FROM clause; its names are added to `scope`.  Empty without a clause."""
    clause = node.args.get("from_")
    if clause is None:
        return ""
    text, relation = bind_relation(binding, scope, clause.this, is_first=True)
    scope.relations.append(relation)
    for join in (*(clause.this.args.get("joins") or ()), *(node.args.get("joins") or ())):
        text += _join(binding, scope, join)
    seen: set[str] = set()
    for alias in filter(None, (relation.alias.lower() for relation in scope.relations)):
        if alias in seen:
            raise binding.error(f"Duplicate table alias {alias} in the same FROM clause", clause)
        seen.add(alias)
    return text


def bind_relation(
    binding: Binding, scope: Scope, node: Node, *, is_first: bool = False
) -> tuple[str, Relation]:
    """One item of a FROM clause."""
    for name in ("pivots", "sample"):
        if node.args.get(name):
            raise unsupported(f"{name.upper()} in FROM")
    alias = node.args.get("alias")
    if alias is not None and alias.columns and not isinstance(node, exp.Unnest):
        raise unsupported("column names of an alias")
    match node:
        case exp.Table():
            return _table(binding, scope, node)
        case exp.Subquery() if isinstance(unwrapped(node), exp.Query):
            name = identifier_name(binding, node.args["alias"].this) if node.alias else ""
            return _derived(binding, scope, node if has_tail(node) else node.this, name)
        case exp.Unnest():
            return _unnest(binding, scope, node, is_first=is_first)
        case _:
            raise unsupported(f"{node.key.upper()} in FROM")


def _table(binding: Binding, scope: Scope, node: exp.Table) -> tuple[str, Relation]:
    alias = identifier_name(binding, node.args["alias"].this) if node.alias else None
    parts = path_of(node)
    if not parts:
        raise unsupported(f"the function {node.this.name or node.this.key.upper()} in FROM")
    if len(parts) == 1 and parts[0].name.lower() in scope.ctes:
        query, ctes = scope.ctes[parts[0].name.lower()]
        return _derived(binding, Scope(ctes=ctes), query, alias or parts[0].name)
    return table_relation(binding, node, alias)


def _derived(binding: Binding, scope: Scope, query: Node, alias: str) -> tuple[str, Relation]:
    bound = binding.query(query, parent=None, ctes=scope.ctes)
    name = binding.fresh("r")
    return f"({bound.sql}) AS {name}", relation_of(bound, alias, name)


# -- UNNEST


def _unnest(
    binding: Binding, scope: Scope, node: exp.Unnest, *, is_first: bool
) -> tuple[str, Relation]:
    if len(node.expressions) != 1:
        raise unsupported("UNNEST of several arrays")
    array = binding.settled(binding.expression(scope, node.expressions[0]))
    alias_node = node.args.get("alias")
    offset = node.args.get("offset")
    offset_name: str | None = None
    if isinstance(offset, exp.Identifier):
        offset_name = identifier_name(binding, offset)
    elif offset:
        offset_name = "ordinality" if binding.is_postgres else "offset"
    named = [] if alias_node is None else [alias_node.this, *alias_node.columns]
    names = [identifier_name(binding, part) for part in named if part is not None]
    alias, column = (names[0], names[-1]) if names else ("", "")
    element = None if array.value_type is None else array.value_type.element
    if element is None:
        raise binding.error(
            "Values referenced in UNNEST must be arrays. UNNEST contains expression of type "
            f"{binding.type_name(array)}",
            node,
        )
    name = binding.fresh("r")
    number = f"{name}.o + 1" if binding.is_postgres else f"{name}.o"
    text = (
        f"{'' if is_first else 'LATERAL '}(SELECT unnest({array.sql}) AS v, "
        f"unnest(range(len({array.sql}))) AS o) AS {name}"
    )
    value = Bound(f"{name}.v", element)
    if element.code == "STRUCT":
        columns = [
            RelationColumn(field, Bound(f"struct_extract({name}.v, '{field_key(index)}')", kind))
            for index, (field, kind) in enumerate(element.fields)
        ]
        relation = Relation(alias, columns, value if alias else None)
    else:
        # A bare alias is the element, so the column and the relation have the same name.
        shown = column or ("unnest" if binding.is_postgres else "")
        relation = Relation(alias, [RelationColumn(shown, value)])
    if offset_name is not None:
        relation.columns.append(
            RelationColumn(offset_name, Bound(f"CAST({number} AS BIGINT)", INT64))
        )
    return text, relation


# -- joins


def _join(binding: Binding, scope: Scope, node: exp.Join) -> str:
    for key, value in node.args.items():
        if key not in _JOIN_ARGS and value:
            raise unsupported(f"{key.upper()} in a join")
    side = str(node.args.get("side") or "").upper()
    kind = str(node.args.get("kind") or "").upper()
    if kind not in ("", "INNER", "OUTER", "CROSS"):
        raise unsupported(f"{side} {kind} JOIN".strip())
    left = list(scope.relations)
    outer = scope.forbids_aggregates
    scope.forbids_aggregates = "FROM clause"
    text, relation = bind_relation(binding, scope, node.this)
    scope.relations.append(relation)
    for join in node.this.args.get("joins") or ():
        text += _join(binding, scope, join)
    condition = _condition(binding, scope, node, left=left, right=relation, side=side)
    scope.forbids_aggregates = outer
    if condition is None:
        if side and not isinstance(node.this, exp.Unnest):
            raise binding.error(
                f"{side} JOIN must have an immediately following ON or USING clause", node
            )
        if side:
            return f" {side} JOIN {text} ON TRUE"
        return f" CROSS JOIN {text}"
    return f" {side or 'INNER'} JOIN {text} ON {condition.sql}"


def _condition(
    binding: Binding,
    scope: Scope,
    node: exp.Join,
    *,
    left: list[Relation],
    right: Relation,
    side: str,
) -> Bound | None:
    on = node.args.get("on")
    using = node.args.get("using")
    if on is not None:
        bound = bind_condition(binding, scope, on, "JOIN ON clause")
    elif using:
        bound = all_of(
            [_using(binding, scope, name, left=left, right=right, side=side) for name in using]
        )
    else:
        return None
    sides: frozenset[int] = frozenset()
    if side in ("", "LEFT"):
        sides |= right.scans
    if side in ("", "RIGHT"):
        sides = sides.union(*(relation.scans for relation in left))
    binding.restrict(sides, bound.restrictions)
    scope.links += [
        restriction for restriction in bound.restrictions if restriction.column.scan in sides
    ]
    return bound


def _using(
    binding: Binding,
    scope: Scope,
    part: exp.Identifier,
    *,
    left: list[Relation],
    right: Relation,
    side: str,
) -> Bound:
    name = part.name.lower()
    left_columns = [column.bound for relation in left for column in relation.find(name)]
    if name in scope.merged:
        left_columns = [scope.merged[name]]
    right_columns = right.find(name)
    if len(left_columns) != 1 or len(right_columns) != 1:
        where = "left" if len(left_columns) != 1 else "right"
        message = f"Column {part.name} in USING clause not found on {where} side of join"
        raise binding.error(message, part)
    left_bound, right_bound = left_columns[0], right_columns[0].bound
    binding.mark(left_bound)
    binding.mark(right_bound)
    test = compare(binding, "=", left_bound, right_bound, part)
    kind = binding.common_type([left_bound, right_bound]) or BOOL
    chosen = left_bound
    if side in ("RIGHT", "FULL"):
        operands = (
            f"{binding.coerce(left_bound, kind).sql}, {binding.coerce(right_bound, kind).sql}"
        )
        chosen = Bound(f"coalesce({operands})", kind)
    shown = next((c.name for r in left for c in r.find(name)), right_columns[0].name)
    scope.merged[name] = Bound(chosen.sql, chosen.value_type, name=shown, column=chosen.column)
    for relation in (*left, right):
        if relation.find(name):
            relation.hidden = relation.hidden | {name}
    return test
