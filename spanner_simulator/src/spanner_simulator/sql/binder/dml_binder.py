"""INSERT, UPDATE and DELETE as a query that computes what to write, and how to write it.

Binding finds everything that is wrong with the statement before a row is read. The query gives,
per row, the values to write (INSERT), key and new values (UPDATE), or the key (DELETE).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sqlglot import exp

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.sql.binder.bound_query import BoundQuery, Lookup, OutputColumn
from spanner_simulator.sql.binder.conditions import bind_condition
from spanner_simulator.sql.binder.from_binder import bind_relation
from spanner_simulator.sql.binder.tables import path_of, table_not_found
from spanner_simulator.sql.sql_types import type_name
from spanner_simulator.sql.syntax import parse_expression, unsupported
from spanner_simulator.sql.terms.bound import Bound, Scope, quoted
from spanner_simulator.sql.terms.literals import literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spanner_simulator.core.schema.schema_objects import Table
    from spanner_simulator.core.schema.statements import ColumnDefinition
    from spanner_simulator.sql.binder.binding import Binding
    from spanner_simulator.sql.syntax import Conflict, Node, Syntax


_INSERT_ARGS = frozenset(("this", "expression", "conflict", "returning", "is_function"))
_UPDATE_ARGS = frozenset(("this", "expressions", "where", "returning"))
_DELETE_ARGS = frozenset(("this", "tables", "where", "returning"))


@dataclass(frozen=True, slots=True)
class BoundDml:
    """`query` has one column per name in `columns`; `needs` are the privileges on the table."""

    kind: Literal["insert", "update", "delete"]
    table: Table
    columns: tuple[str, ...]
    query: BoundQuery
    conflict: Conflict
    needs: tuple[str, ...]


def bind_dml(binding: Binding, syntax: Syntax) -> BoundDml:
    """A DML statement. Raises `SpannerError`."""
    match syntax.tree:
        case exp.Insert() as tree:
            return _insert(binding, tree, syntax)
        case exp.Update() as tree:
            return _update(binding, tree)
        case exp.Delete() as tree:
            return _delete(binding, tree)
        case tree:
            raise unsupported(f"{tree.key.upper()} statements")


def _check_args(node: Node, known: frozenset[str]) -> None:
    if node.args.get("with_"):
        raise unsupported("WITH before DML")
    for name, value in node.args.items():
        if value and name not in known:
            raise unsupported(f"{name.strip('_').upper()} in {node.key.upper()}")


def _target(binding: Binding, node: Node) -> Table:
    if not isinstance(node, exp.Table) or not path_of(node):
        raise unsupported("DML on something that is no table")
    name = ".".join(part.name for part in path_of(node)).lower()
    key = name.removeprefix("public.") if binding.is_postgres else name
    table = binding.catalogue.tables.get(key)
    if table is not None:
        binding.dependencies.append(("tables", key, table))
        return table
    raise table_not_found(binding, node)


def _column(binding: Binding, table: Table, node: Node, verb: str) -> ColumnDefinition:
    column = table.by_name.get(node.name.lower())
    identifier = node.this if isinstance(node, exp.Column) else node
    is_other = (
        binding.is_postgres
        and identifier.args.get("quoted")
        and (column is not None and column.name != node.name)
    )
    if column is None or is_other:
        if binding.is_postgres:
            raise binding.error(f'column "{node.name}" of relation "{table.name}" does not exist')
        if verb == "UPDATE":
            raise binding.error(f"Unrecognized name: {node.name}", node)
        raise binding.error(f"Column {node.name} is not present in table {table.name}", node)
    if column.generated is not None:
        raise binding.error(f"Cannot {verb} value on non-writable column: {column.name}", node)
    return column


# -- INSERT


def _insert(binding: Binding, tree: exp.Insert, syntax: Syntax) -> BoundDml:
    _check_args(tree, _INSERT_ARGS)
    target = tree.this
    listed: list[Node] = []
    if isinstance(target, exp.Schema):
        listed = list(target.expressions)
        target = target.this
    table = _target(binding, target)
    columns = [_column(binding, table, one, "INSERT") for one in listed]
    if not listed:
        if not binding.is_postgres:
            raise binding.text.error("INSERT must specify a column list", 0)
        columns = [one for one in table.columns if one.generated is None]
    seen: set[str] = set()
    for column, node in zip(columns, listed, strict=False):
        if column.name in seen:
            raise binding.error(f"INSERT has columns with duplicate name: {column.name}", node)
        seen.add(column.name)
    conflict = _conflict(tree, syntax, table, columns)
    source = tree.expression
    if isinstance(source, exp.Values):
        query = _value_rows(binding, columns, source, is_listed=bool(listed))
    elif source is None:
        raise unsupported("INSERT DEFAULT VALUES")
    else:
        query = _selected(binding, columns, source, is_listed=bool(listed))
    names = tuple(column.name for column in columns[: len(query.columns)])
    needs = ("INSERT", "UPDATE") if conflict == "update" else ("INSERT",)
    return BoundDml("insert", table, names, query, conflict, needs)


def _conflict(
    tree: exp.Insert,
    syntax: Syntax,
    table: Table,
    columns: Sequence[ColumnDefinition],
) -> Conflict:
    clause = tree.args.get("conflict")
    if clause is None:
        return syntax.conflict
    keys = {one.name.lower() for one in clause.args.get("conflict_keys") or ()}
    if clause.args.get("constraint") or clause.args.get("where"):
        raise unsupported("ON CONFLICT ON CONSTRAINT or WHERE")
    if keys != {name.lower() for name in table.key_names}:
        raise SpannerError(Code.INVALID_ARGUMENT, "ON CONFLICT target must list all key columns")
    if "UPDATE" not in clause.args["action"].name.upper():
        return "ignore"
    assigned: set[str] = set()
    for one in clause.expressions:
        name = one.this.name.lower()
        value = one.expression
        is_excluded = isinstance(value, exp.Column) and value.table.lower() == "excluded"
        if not is_excluded or value.name.lower() != name:
            raise SpannerError(
                Code.UNIMPLEMENTED,
                f"Column '{name}' must be set to the insert value in the statement using "
                f"excluded.{name} in the ON CONFLICT DO UPDATE SET clause",
            )
        assigned.add(name)
    for column in columns:
        if column.name.lower() not in assigned:
            raise SpannerError(
                Code.UNIMPLEMENTED,
                f"Column '{column.name}' is not specified in the SET clause. ON CONFLICT DO UPDATE "
                "statements must include all columns in the insert list",
            )
    return "update"


def _is_default(node: Node) -> bool:
    return (
        isinstance(node, exp.Var | exp.Column)
        and node.name.upper() == "DEFAULT"
        and not node.args.get("table")
        and not getattr(node.this, "quoted", False)
    )


def _default(binding: Binding, column: ColumnDefinition) -> Bound:
    """What a column gets without a value: its default expression, or NULL."""
    if column.default is None:
        return literal(column.value_type, None)
    syntax = parse_expression(str(column.default), binding.dialect)
    outer, binding.text = binding.text, syntax.text
    try:
        bound = binding.expression(Scope(), syntax.tree.expressions[0])
        return binding.coerce(bound, column.value_type)
    finally:
        binding.text = outer


def _value_rows(
    binding: Binding,
    columns: Sequence[ColumnDefinition],
    source: exp.Values,
    *,
    is_listed: bool,
) -> BoundQuery:
    rows = [list(row.expressions) for row in source.expressions]
    width = len(columns) if is_listed else len(rows[0])
    bounds: list[list[Bound]] = []
    scope = Scope(forbids_aggregates="VALUES clause")
    binding.allows_pending = True
    for row, written in zip(rows, source.expressions, strict=True):
        _check_width(binding, width, len(row), written, len(columns))
        bounds.append([_given(binding, scope, *one) for one in zip(columns, row, strict=False)])
    binding.allows_pending = False
    names = [f"c{index}" for index in range(width)]
    listed = ", ".join(names)
    texts = ", ".join(f"({', '.join(value.sql for value in row)})" for row in bounds)
    sql = f"SELECT {listed} FROM (VALUES {texts}) AS {binding.fresh('q')}({listed})"  # noqa: S608  # own text
    found = [
        OutputColumn(column.name, name, Bound(name, column.value_type))
        for column, name in zip(columns, names, strict=False)
    ]
    return BoundQuery(sql, found, lookup=Lookup.of_values(bounds))


def _check_width(binding: Binding, width: int, given: int, node: Node, most: int) -> None:
    if given != width or given > most:
        message = f"Inserted row has wrong column count; Has {given}, expected {width}"
        raise binding.error(message, node)


def _given(binding: Binding, scope: Scope, column: ColumnDefinition, node: Node) -> Bound:
    """What is to be written into a column: an expression, or DEFAULT."""
    if _is_default(node):
        return _default(binding, column)
    return _assigned(binding, binding.expression(scope, node), column, node)


def _assigned(binding: Binding, bound: Bound, column: ColumnDefinition, node: Node) -> Bound:
    """A value as its column's type. INVALID_ARGUMENT when it does not convert."""
    if binding.accepts(bound, column.value_type):
        return binding.coerce(bound, column.value_type)
    raise binding.error(
        f"Value of type {binding.type_name(bound)} cannot be assigned to {column.name}, which has "
        f"type {type_name(column.value_type, binding.dialect)}",
        node,
    )


def _selected(
    binding: Binding,
    columns: Sequence[ColumnDefinition],
    source: Node,
    *,
    is_listed: bool,
) -> BoundQuery:
    binding.allows_pending = True
    inner = binding.query(source, parent=None, ctes={})
    binding.allows_pending = False
    given = len(inner.columns)
    _check_width(binding, len(columns) if is_listed else given, given, source, len(columns))
    name = binding.fresh("q")
    values = [
        _assigned(
            binding,
            Bound(f"{name}.{quoted(one.key)}", None if one.is_null else one.value_type),
            column,
            source,
        )
        for column, one in zip(columns, inner.columns, strict=False)
    ]
    shown = ", ".join(f"{value.sql} AS c{index}" for index, value in enumerate(values))
    sql = f"SELECT {shown} FROM ({inner.sql}) AS {name}"  # noqa: S608  # own text
    found = [
        OutputColumn(column.name, f"c{index}", Bound(f"c{index}", column.value_type))
        for index, column in enumerate(columns[:given])
    ]
    return BoundQuery(sql, found)


# -- UPDATE and DELETE


def _rows_of(
    binding: Binding, table_node: Node, where: Node | None
) -> tuple[Scope, str, str, int | None]:
    scope = Scope()
    reads = set(binding.reads)
    text, relation = bind_relation(binding, scope, table_node, is_first=True)
    binding.reads = reads  # finding the rows to write needs no SELECT of its own
    scope.relations.append(relation)
    condition = ""
    is_exact = True
    if where is not None:
        scope.forbids_aggregates = "WHERE clause"
        bound = bind_condition(binding, scope, where.this, "WHERE clause")
        binding.restrict(relation.scans, bound.restrictions)
        condition = f" WHERE {bound.sql}"
        is_exact = bound.is_exact
    (number,) = relation.scans
    return scope, text, condition, number if is_exact else None


def _key_columns(binding: Binding, scope: Scope, table: Table) -> list[OutputColumn]:
    found: list[OutputColumn] = []
    for index, name in enumerate(table.key_names):
        bound = scope.relations[0].find(name)[0].bound
        binding.mark(bound)
        found.append(OutputColumn(name, f"k{index}", bound))
    return found


def _update(binding: Binding, tree: exp.Update) -> BoundDml:
    _check_args(tree, _UPDATE_ARGS)
    table = _target(binding, tree.this)
    where = tree.args.get("where")
    if where is None and not binding.is_postgres:
        raise binding.text.error("UPDATE must have a WHERE clause", 0)
    scope, text, condition, scan = _rows_of(binding, tree.this, where)
    scope.forbids_aggregates = "UPDATE SET clause"
    keys = _key_columns(binding, scope, table)
    columns: list[OutputColumn] = []
    for item in tree.expressions:
        if not isinstance(item, exp.EQ) or not isinstance(item.this, exp.Column):
            raise unsupported("this form of SET")
        columns.append(_assignment(binding, scope, table, item, columns))
    shown = ", ".join(f"{one.bound.sql} AS {one.key}" for one in (*keys, *columns))
    sql = f"SELECT {shown} FROM {text}{condition}"  # noqa: S608  # own text
    query = _found(sql, [*keys, *columns], scan)
    names = tuple(one.name for one in query.columns)
    return BoundDml("update", table, names, query, "error", ("UPDATE",))


def _found(sql: str, columns: list[OutputColumn], scan: int | None) -> BoundQuery:
    """The query over rows to write; `scan` when its conditions are exact."""
    bounds = [one.bound for one in columns]
    return BoundQuery(sql, columns, lookup=None if scan is None else Lookup.of_row(scan, bounds))


def _assignment(
    binding: Binding,
    scope: Scope,
    table: Table,
    item: exp.EQ,
    before: Sequence[OutputColumn],
) -> OutputColumn:
    column = _column(binding, table, item.this, "UPDATE")
    if column.name in table.key_names:
        raise SpannerError(Code.INVALID_ARGUMENT, "Cannot modify a primary key column with UPDATE")
    if any(one.name == column.name for one in before):
        raise binding.error(f"Update item {column.name} assigned more than once", item)
    value = item.expression
    binding.allows_pending = isinstance(value, exp.Anonymous | exp.Dot)
    bound = _given(binding, scope, column, value)
    binding.allows_pending = False
    return OutputColumn(column.name, f"v{len(before)}", bound)


def _delete(binding: Binding, tree: exp.Delete) -> BoundDml:
    _check_args(tree, _DELETE_ARGS)
    target = tree.this or next(iter(tree.args.get("tables") or ()), None)
    if target is None:
        raise unsupported("DELETE without a table")
    table = _target(binding, target)
    where = tree.args.get("where")
    if where is None and not binding.is_postgres:
        raise binding.text.error("DELETE must have a WHERE clause", 0)
    scope, text, condition, scan = _rows_of(binding, target, where)
    keys = _key_columns(binding, scope, table)
    shown = ", ".join(f"{one.bound.sql} AS {one.key}" for one in keys)
    query = _found(f"SELECT {shown} FROM {text}{condition}", keys, scan)  # noqa: S608  # own text
    return BoundDml("delete", table, table.key_names, query, "error", ("DELETE",))
