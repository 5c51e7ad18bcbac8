"""Queries: SELECT with all its clauses, set operations, and queries inside expressions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from tidegate.spanner_simulator.core.values import ValueType
from tidegate.spanner_simulator.errors import Code, SpannerError, invariant
from tidegate.spanner_simulator.sql import conditions, expression_binder, from_binder
from tidegate.spanner_simulator.sql.bound import (
    Bound,
    Relation,
    RelationColumn,
    Scope,
    quoted,
)
from tidegate.spanner_simulator.sql.coercion import cast_sql
from tidegate.spanner_simulator.sql.ordering import direction_sql, orderable
from tidegate.spanner_simulator.sql.output_names import output_name
from tidegate.spanner_simulator.sql.sql_types import (
    BOOL,
    INT64,
    array_of,
    carrier,
    field_key,
    is_same,
    supertype,
)
from tidegate.spanner_simulator.sql.syntax import position, unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidegate.spanner_simulator.sql.binding import Binding
    from tidegate.spanner_simulator.sql.bound import Restriction
    from tidegate.spanner_simulator.sql.syntax import Node

__all__ = [
    "BoundQuery",
    "Lookup",
    "OutputColumn",
    "bind_array_query",
    "bind_exists",
    "bind_in_query",
    "bind_query",
    "bind_scalar_query",
    "expand_items",
    "restrict",
]

_CLAUSES: Final = frozenset(
    (
        "expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset",
        "distinct", "with_", "kind", "locks", "operation_modifiers", "this", "expression",
        "by_name", "side", "on",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A result column: Spanner's name, DuckDB's name, type; `bound` where it came from."""

    name: str
    key: str
    bound: Bound

    @property
    def value_type(self) -> ValueType:
        """Its type; by now it has one."""
        return self.bound.value_type or INT64


@dataclass(frozen=True, slots=True)
class Lookup:
    """A query that only picks columns of one table's rows: DuckDB has nothing to compute."""

    scan: int
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """`is_transparent`: a condition on an output column is one on the rows beneath."""

    sql: str
    columns: list[OutputColumn]
    scans: frozenset[int] = frozenset()
    is_transparent: bool = False
    lookup: Lookup | None = None


def bind_query(
    binding: Binding, node: Node, *, parent: Scope | None, ctes: Mapping[str, Any]
) -> BoundQuery:
    """A query expression. Raises `SpannerError`."""
    node = node.unnest() if isinstance(node, exp.Subquery) and not _has_tail(node) else node
    ctes = _with_ctes(binding, node, ctes)
    if isinstance(node, exp.Subquery):
        return _wrapped(binding, node, parent=parent, ctes=ctes)
    if isinstance(node, exp.SetOperation):
        return _set_operation(binding, node, parent=parent, ctes=ctes)
    if isinstance(node, exp.Select):
        return _select(binding, node, parent=parent, ctes=ctes)
    raise unsupported(f"{node.key.upper()} as a query")


def _has_tail(node: Node) -> bool:
    return any(node.args.get(key) for key in ("order", "limit", "offset", "with_"))


def _with_ctes(binding: Binding, node: Node, ctes: Mapping[str, Any]) -> Mapping[str, Any]:
    clause = node.args.get("with_")
    if clause is None:
        return ctes
    if clause.args.get("recursive"):
        if binding.is_postgres:
            raise unsupported("WITH RECURSIVE")
        raise binding.error("RECURSIVE is not supported in the WITH clause", clause)
    found = dict(ctes)
    for one in clause.expressions:
        if one.args["alias"].columns:
            raise unsupported("column names of a WITH query")
        found[one.alias.lower()] = (one.this, dict(found))
    return found


def _wrapped(
    binding: Binding, node: Node, *, parent: Scope | None, ctes: Mapping[str, Any]
) -> BoundQuery:
    inner = bind_query(binding, node.this, parent=parent, ctes=ctes)
    tail = _tail(binding, node, inner, [])
    return BoundQuery(f"SELECT * FROM ({inner.sql}) AS {binding.fresh('q')}{tail}", inner.columns)


# -- SELECT


def _check_clauses(binding: Binding, node: Node) -> None:
    for name, value in node.args.items():
        if name in _CLAUSES or not value:
            continue
        if name == "qualify" and not binding.is_postgres:
            raise binding.error("QUALIFY is not supported", value)
        raise unsupported(f"{name.strip('_').upper()} in a query")


def _select(
    binding: Binding, node: Node, *, parent: Scope | None, ctes: Mapping[str, Any]
) -> BoundQuery:
    _check_clauses(binding, node)
    scope = Scope(parent, ctes=ctes)
    from_sql = from_binder.bind_from(binding, scope, node)
    where = _where(binding, scope, node)
    if not node.expressions:
        if binding.is_postgres:
            raise SpannerError(
                Code.INVALID_ARGUMENT, "Statement must produce at least one output column"
            )
        raise binding.text.error(
            "Syntax error: SELECT list must not be empty", (position(node) or 0)
        )
    scope.forbids_aggregates = None if node.args.get("from_") else "SELECT without FROM clause"
    if binding.is_postgres:
        scope.forbids_aggregates = None
    items = expand_items(binding, scope, node.expressions)
    columns = _output(binding, items, node)
    group = _group(binding, scope, node, columns)
    having = _having(binding, scope, node, columns)
    is_grouped = group is not None or scope.has_aggregates
    if is_grouped:
        _check_grouped(binding, node, columns, group or [])
    distinct = _distinct(binding, node, columns)
    order = _order(binding, scope, node, columns, is_distinct=bool(distinct))
    tail = _tail(binding, node, None, columns)
    shown = ", ".join(f"{column.bound.sql} AS {quoted(column.key)}" for column in columns)
    sql = f"SELECT {distinct}{shown}"
    sql += f" FROM {from_sql}" if from_sql else ""
    sql += f" WHERE {where.sql}" if where is not None else ""
    sql += f" GROUP BY {', '.join(group)}" if group else ""
    sql += f" HAVING {having.sql}" if having is not None else ""
    sql += order + tail
    is_plain = not (is_grouped or having or tail)
    scans = frozenset(one for relation in scope.relations for one in relation.scans)
    lookup = _lookup(scope, columns, where) if is_plain and not (distinct or order) else None
    return BoundQuery(sql, columns, scans, is_transparent=is_plain, lookup=lookup)


def _where(binding: Binding, scope: Scope, node: Node) -> Bound | None:
    clause = node.args.get("where")
    if clause is None:
        return None
    if node.args.get("from_") is None and not binding.is_postgres:
        raise binding.error("Query without FROM clause cannot have a WHERE clause", clause)
    scope.forbids_aggregates = "WHERE" if binding.is_postgres else "WHERE clause"
    bound = expression_binder.bind_condition(
        binding, scope, clause.this, "WHERE" if binding.is_postgres else "WHERE clause"
    )
    for relation in scope.relations:
        restrict(binding, relation.scans, bound.restrictions)
    return bound


def restrict(
    binding: Binding, scans: frozenset[int], restrictions: Sequence[Restriction]
) -> None:
    """Note what holds for rows of these scans; what equals a restricted column is restricted too."""
    known = [one for one in restrictions if one.other is None]
    for link in restrictions:
        if link.other is None:
            continue
        for one in [one for one in restrictions if one.other is None]:
            if one.column == link.other:
                known.append(replace(one, column=link.column))
    for one in known:
        if one.column.scan in scans:
            mine = binding.scans[one.column.scan - 1].restrictions
            if one not in mine:
                mine.append(one)


def _lookup(
    scope: Scope, columns: Sequence[OutputColumn], where: Bound | None
) -> Lookup | None:
    if len(scope.relations) != 1 or len(scope.relations[0].scans) != 1:
        return None
    (scan,) = scope.relations[0].scans
    if where is not None and not where.is_exact:
        return None
    names = [
        column.bound.column.column
        for column in columns
        if column.bound.column is not None and column.bound.column.scan == scan
    ]
    return Lookup(scan, tuple(names)) if len(names) == len(columns) else None


def expand_items(
    binding: Binding, scope: Scope, nodes: Sequence[Node]
) -> list[tuple[str, Bound, Node]]:
    """The SELECT list with its stars spelled out."""
    items: list[tuple[str, Bound, Node]] = []
    for node in nodes:
        inner = node.this if isinstance(node, exp.Alias) else node
        star = inner.this if isinstance(inner, exp.Column) else inner
        if isinstance(star, exp.Star):
            items.extend(_expand_star(binding, scope, inner, star))
            continue
        bound = expression_binder.bind(binding, scope, inner)
        items.append((output_name(binding, node), bound, inner))
    return items


def _expand_star(
    binding: Binding, scope: Scope, node: Node, star: Node
) -> list[tuple[str, Bound, Node]]:
    excepted = {one.name.lower() for one in star.args.get("except_") or ()}
    replaced = {
        one.alias.lower(): expression_binder.bind(binding, scope, one.this)
        for one in star.args.get("replace") or ()
    }
    found: list[RelationColumn] = []
    if isinstance(node, exp.Column):
        table = node.args["table"].name.lower()
        relations = [one for one in scope.relations if one.alias.lower() == table]
        if not relations:
            raise binding.error(
                f'missing FROM-clause entry for table "{table}"'
                if binding.is_postgres
                else f"Unrecognized name: {node.args['table'].name}",
                node,
            )
        found = list(relations[0].columns)
    else:
        if not scope.relations:
            raise binding.error("SELECT * must have a FROM clause", star)
        found += [RelationColumn(one.name, one) for one in scope.merged.values()]
        for relation in scope.relations:
            found += [one for one in relation.columns if one.name.lower() not in relation.hidden]
    items: list[tuple[str, Bound, Node]] = []
    for column in found:
        lowered = column.name.lower()
        if lowered in excepted:
            continue
        bound = replaced.get(lowered, column.bound)
        binding.mark(bound)
        items.append((column.name, bound, node))
    if not items:
        raise binding.error("SELECT * expands to zero columns", star)
    return items


def _output(
    binding: Binding, items: Sequence[tuple[str, Bound, Node]], node: Node
) -> list[OutputColumn]:
    """Output columns with names that DuckDB can tell apart."""
    kind = node.args.get("kind")
    settled = [(name, binding.settled(bound)) for name, bound, _ in items]
    if kind == "STRUCT":
        fields = tuple((name, bound.value_type or INT64) for name, bound in settled)
        packed = ", ".join(
            f"{field_key(index)} := {bound.sql}" for index, (_, bound) in enumerate(settled)
        )
        whole = Bound(f"struct_pack({packed})", ValueType("STRUCT", fields=fields),
                      is_aggregate=any(bound.is_aggregate for _, bound in settled))  # fmt: skip
        return [OutputColumn("", "c1", whole)]
    if kind is not None and (kind != "VALUE" or len(settled) != 1):
        raise unsupported(f"SELECT AS {kind}")
    taken: set[str] = set()
    columns: list[OutputColumn] = []
    for index, (name, bound) in enumerate(settled, start=1):
        key = name if name and name.lower() not in taken else f"{name}#{index}"
        taken.add(key.lower())
        columns.append(OutputColumn("" if kind == "VALUE" else name, key, bound))
    return columns


def _aliases(columns: Sequence[OutputColumn]) -> dict[str, Bound]:
    return {column.name.lower(): column.bound for column in columns if column.name}


def _group(
    binding: Binding, scope: Scope, node: Node, columns: Sequence[OutputColumn]
) -> list[str] | None:
    clause = node.args.get("group")
    if clause is None:
        return None
    for name, value in clause.args.items():
        if name != "expressions" and value:
            if name == "all" and not binding.is_postgres:
                raise binding.error("GROUP BY ALL is not supported", clause)
            raise unsupported(f"GROUP BY {name.upper()}")
    outer = scope.forbids_aggregates
    scope.forbids_aggregates = "GROUP BY" if binding.is_postgres else "GROUP BY clause"
    keys: list[str] = []
    for one in clause.expressions:
        bound = _by_ordinal(binding, one, columns, "GROUP BY")
        if bound is None:
            bound = _by_alias(scope, one, columns)
        if bound is None:
            bound = expression_binder.bind(binding, scope, one)
        kind = bound.value_type
        if kind is not None and kind.code in ("JSON", "ARRAY", "STRUCT", "PROTO"):
            raise binding.error(
                f"Grouping by expressions of type {kind.code} is not allowed", one
            )
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
        if binding.is_postgres:
            raise binding.error(f"{clause} position {number} is not in select list")
        raise binding.error(
            f"{clause} is out of SELECT column number range: {number}", node
        )
    return columns[number - 1].bound


def _by_alias(scope: Scope, node: Node, columns: Sequence[OutputColumn]) -> Bound | None:
    """A SELECT alias, unless a column of the FROM clause has that name."""
    if not isinstance(node, exp.Column) or node.args.get("table") is not None:
        return None
    name = node.name.lower()
    if any(relation.find(name) for relation in scope.relations):
        return None
    return _aliases(columns).get(name)


def _having(
    binding: Binding, scope: Scope, node: Node, columns: Sequence[OutputColumn]
) -> Bound | None:
    clause = node.args.get("having")
    if clause is None:
        return None
    inner = Scope(scope.parent, scope.relations, scope.merged, _aliases(columns), ctes=scope.ctes)
    bound = expression_binder.bind_condition(binding, inner, clause.this, "HAVING clause")
    scope.has_aggregates |= inner.has_aggregates
    return bound


def _check_grouped(
    binding: Binding, node: Node, columns: Sequence[OutputColumn], group: Sequence[str]
) -> None:
    for column, written in zip(columns, node.expressions, strict=False):
        bound = column.bound
        if bound.column is None or bound.sql in group:
            continue
        name = bound.column.column
        if binding.is_postgres:
            table = binding.scans[bound.column.scan - 1].name
            raise binding.error(
                f'column "{table}.{name}" must appear in the GROUP BY clause or be used in an '
                "aggregate function"
            )
        raise binding.error(
            f"SELECT list expression references column {name} which is neither grouped nor "
            "aggregated",
            written,
        )


def _distinct(binding: Binding, node: Node, columns: Sequence[OutputColumn]) -> str:
    clause = node.args.get("distinct")
    if clause is None:
        return ""
    if clause.args.get("on"):
        raise unsupported("DISTINCT ON")
    for column in columns:
        if column.value_type.code in ("JSON", "ARRAY", "STRUCT", "PROTO"):
            raise binding.error(
                f"Column {column.name} of type {column.value_type.code} cannot be used in SELECT "
                "DISTINCT",
                node.expressions[0],
            )
    return "DISTINCT "


def _order(
    binding: Binding,
    scope: Scope,
    node: Node,
    columns: Sequence[OutputColumn],
    *,
    is_distinct: bool,
) -> str:
    clause = node.args.get("order")
    if clause is None:
        return ""
    inner = Scope(scope.parent, scope.relations, scope.merged, _aliases(columns), ctes=scope.ctes)
    keys: list[str] = []
    for item in clause.expressions:
        bound = _by_ordinal(binding, item.this, columns, "ORDER BY")
        if bound is None:
            bound = expression_binder.bind(binding, inner, item.this)
        place = [index for index, one in enumerate(columns, 1) if one.bound.sql == bound.sql]
        if is_distinct and not place:
            raise binding.error(
                "ORDER BY expression references a column that is not in the SELECT DISTINCT list",
                item,
            )
        text = orderable(binding, bound, item)
        if place and text == bound.sql:
            text = str(place[0])
        elif bound.constant is not None:
            continue  # nothing to order by, and DuckDB would take a number for a position
        keys.append(f"{text} {direction_sql(binding, item)}")
    scope.has_aggregates |= inner.has_aggregates
    return f" ORDER BY {', '.join(keys)}" if keys else ""


def _tail(
    binding: Binding,
    node: Node,
    ordered: BoundQuery | None,
    _columns: Sequence[OutputColumn],
) -> str:
    """ORDER BY over an inner query's columns, LIMIT and OFFSET."""
    text = ""
    if ordered is not None and node.args.get("order") is not None:
        scope = Scope(relations=[relation_of(ordered, "", "")])
        text = _order(binding, scope, node, _plain(ordered.columns), is_distinct=False)
    for name, word in (("limit", "LIMIT"), ("offset", "OFFSET")):
        clause = node.args.get(name)
        if clause is not None:
            if not isinstance(clause, exp.Limit | exp.Offset):
                raise unsupported("FETCH")
            text += f" {word} {_count(binding, clause.expression, word)}"
    return text


def _count(binding: Binding, node: Node, word: str) -> str:
    if isinstance(node, exp.Parameter) or (
        isinstance(node, exp.Cast) and isinstance(node.this, exp.Parameter)
    ):
        bound = expression_binder.bind(binding, Scope(), node)
        if not binding.accepts(bound, INT64):
            raise binding.error(f"{word} expects an integer literal or parameter", node)
        bound = binding.coerce(bound, INT64)
        return f"non_negative({bound.sql}, '{word}')"
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
        return str(node.name)
    if isinstance(node, exp.Null) and binding.is_postgres:
        return "NULL"
    if isinstance(node, exp.Neg):
        if binding.is_postgres:
            raise unsupported(f"negative {word}")
        raise binding.error(f"{word} expects a non-negative integer literal or parameter", node)
    raise binding.error(f"{word} expects an integer literal or parameter", node)


# -- set operations


def _plain(columns: Sequence[OutputColumn]) -> list[OutputColumn]:
    return [
        replace(one, bound=Bound(quoted(one.key), one.value_type, name=one.name))
        for one in columns
    ]


def _set_operation(
    binding: Binding, node: Node, *, parent: Scope | None, ctes: Mapping[str, Any]
) -> BoundQuery:
    for name, value in node.args.items():
        if name not in _CLAUSES and value:
            raise unsupported(f"{name.strip('_').upper()} in a set operation")
    word = node.key.upper()
    is_distinct = bool(node.args.get("distinct"))
    shown = f"{word} {'DISTINCT' if is_distinct else 'ALL'}"
    if node.args.get("by_name") or node.args.get("side"):
        raise unsupported(f"{word} by name")
    left = bind_query(binding, node.this, parent=parent, ctes=ctes)
    right = bind_query(binding, node.expression, parent=parent, ctes=ctes)
    if len(left.columns) != len(right.columns):
        if binding.is_postgres:
            raise binding.error(f"each {word} query must have the same number of columns")
        raise binding.error(
            f"Queries in {shown} have mismatched column count; query 1 has "
            f"{_count_text(left)}, query 2 has {_count_text(right)}",
            node.expression,
        )
    kinds = [
        _common_column(binding, one, other, index, shown, node.expression)
        for index, (one, other) in enumerate(zip(left.columns, right.columns, strict=True), 1)
    ]
    columns = [
        replace(one, bound=Bound(quoted(one.key), kind, name=one.name))
        for one, kind in zip(left.columns, kinds, strict=True)
    ]
    sql = (
        f"({_converted(binding, left, columns)}) {shown.removesuffix(' DISTINCT')} "
        f"({_converted(binding, right, columns)})"
    )
    whole = BoundQuery(sql, columns)
    if _has_tail(node):
        tail = _tail(binding, node, whole, columns)
        return BoundQuery(f"SELECT * FROM ({sql}) AS {binding.fresh('q')}{tail}", columns)
    return whole


def _count_text(query: BoundQuery) -> str:
    count = len(query.columns)
    return f"{count} column{'s' if count != 1 else ''}"


def _common_column(
    binding: Binding, one: OutputColumn, other: OutputColumn, index: int, shown: str, node: Node
) -> ValueType:
    kind = binding.common_type([one.bound, other.bound])
    if kind is None and _is_untyped(one.bound):
        kind = other.value_type
    elif kind is None and _is_untyped(other.bound):
        kind = one.value_type
    if kind is None:
        names = f"{binding.type_name(one.bound)}, {binding.type_name(other.bound)}"
        raise binding.error(
            f"Column {index} in {shown} has incompatible types: {names}", node
        )
    return kind


def _is_untyped(bound: Bound) -> bool:
    return bound.is_literal and bound.sql.startswith("CAST(NULL AS")


def _converted(binding: Binding, query: BoundQuery, columns: Sequence[OutputColumn]) -> str:
    name = binding.fresh("q")
    shown: list[str] = []
    for mine, target in zip(query.columns, columns, strict=True):
        sql = f"{name}.{quoted(mine.key)}"
        if _is_untyped(mine.bound):
            sql = f"CAST({sql} AS {carrier(target.value_type)})"
        elif not is_same(mine.value_type, target.value_type):
            invariant(
                supertype(mine.value_type, target.value_type) is not None
                or mine.bound.is_literal,
                "columns of a set operation convert",
            )
            sql = cast_sql(sql, mine.value_type, target.value_type, binding.dialect)
        shown.append(f"{sql} AS {quoted(target.key)}")
    return f"SELECT {', '.join(shown)} FROM ({query.sql}) AS {name}"


def relation_of(query: BoundQuery, alias: str, name: str) -> Relation:
    """A query in a FROM clause, as a relation of its output columns."""
    prefix = f"{name}." if name else ""
    columns = [
        RelationColumn(
            one.name,
            Bound(
                f"{prefix}{quoted(one.key)}",
                one.value_type,
                column=one.bound.column if query.is_transparent else None,
            ),
        )
        for one in query.columns
    ]
    return Relation(alias, columns, scans=query.scans if query.is_transparent else frozenset())


# -- queries inside expressions


def _single_column(binding: Binding, query: BoundQuery, what: str, node: Node) -> OutputColumn:
    if len(query.columns) != 1:
        if binding.is_postgres:
            raise binding.error("subquery must return only one column")
        raise binding.error(
            f"{what} cannot have more than one column unless using SELECT AS STRUCT to build "
            "STRUCT values",
            node,
        )
    return query.columns[0]


def bind_scalar_query(binding: Binding, scope: Scope, query: Node, node: Node) -> Bound:
    """A query that gives one value."""
    bound = bind_query(binding, query, parent=scope, ctes=scope.ctes)
    column = _single_column(binding, bound, "Scalar subquery", node)
    return Bound(f"({bound.sql})", column.value_type)


def bind_array_query(binding: Binding, scope: Scope, query: Node) -> Bound:
    """ARRAY(query)."""
    bound = bind_query(binding, query, parent=scope, ctes=scope.ctes)
    column = _single_column(binding, bound, "ARRAY subquery", query)
    if column.value_type.element is not None:
        raise binding.error("Cannot use array subquery with column of type ARRAY", query)
    return Bound(f"ARRAY({bound.sql})", array_of(column.value_type))


def bind_exists(binding: Binding, scope: Scope, query: Node) -> Bound:
    """EXISTS(query)."""
    bound = bind_query(binding, query, parent=scope, ctes=scope.ctes)
    return Bound(f"EXISTS ({bound.sql})", BOOL)


def bind_in_query(
    binding: Binding, scope: Scope, value: Node, query: Node, node: Node
) -> Bound:
    """`value IN (query)`."""
    one = expression_binder.bind(binding, scope, value)
    bound = bind_query(binding, query, parent=scope, ctes=scope.ctes)
    column = _single_column(binding, bound, "Subquery of type IN", node)
    # What a comparison of the two would look like, with the types brought together.
    name = binding.fresh("q")
    other = Bound(f"{name}.{quoted(column.key)}", column.value_type)
    test = conditions.compare(binding, "=", one, other, node)
    kind = binding.common_type([one, other]) or column.value_type
    first, second = binding.coerce(one, kind).sql, binding.coerce(other, kind).sql
    if test.sql.startswith("(pg_numeric_order"):
        first, second = f"pg_numeric_order({first})", f"pg_numeric_order({second})"
    return Bound(
        f"({first} IN (SELECT {second} FROM ({bound.sql}) AS {name}))",
        BOOL,
        is_aggregate=one.is_aggregate,
    )
