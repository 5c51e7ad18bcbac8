"""INSERT, UPDATE and DELETE as a query that computes the values to write, and how to write them.

Binding finds all errors in the statement before a row is read.  The query returns, per row, the
values to write (INSERT), key and new values (UPDATE), or the key (DELETE).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, cast

from sqlglot import exp

from spanner_simulator.errors import invalid_argument, unsupported
from spanner_simulator.sql.binder.bound_query import BoundQuery, Lookup, OutputColumn
from spanner_simulator.sql.binder.conditions import bind_condition
from spanner_simulator.sql.binder.from_binder import bind_relation
from spanner_simulator.sql.binder.tables import path_of, table_not_found
from spanner_simulator.sql.sql_types import type_name
from spanner_simulator.sql.syntax import parse_expression
from spanner_simulator.sql.terms.bound import Bound, Scope, quoted
from spanner_simulator.sql.terms.literals import literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from spanner_simulator.core.schema.schema_objects import Table
    from spanner_simulator.core.schema.statements import ColumnDefinition
    from spanner_simulator.sql.binder.binding import Binding
    from spanner_simulator.sql.syntax import Conflict, Node, Syntax


_ARGS = frozenset(
    (
        "this", "expression", "expressions", "tables", "where", "conflict", "returning",
        "is_function",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BoundDml:
    """`query` has one column per name in `columns`; `needs` are the privileges on the table.

    `drawn` has the rows in which an identity column gets its next value, whatever the query
    returns; if there is only one row in the list, it applies to all.
    """

    kind: Literal["insert", "update", "delete"]
    table: Table
    columns: tuple[str, ...]
    query: BoundQuery
    conflict: Conflict
    needs: tuple[str, ...]
    drawn: Mapping[str, Sequence[bool]] = field(default_factory=dict)


def bind_dml(binding: Binding, syntax: Syntax) -> BoundDml:
    """A DML statement. Raises `SpannerError`."""
    for name, value in syntax.tree.args.items():
        if value and name not in _ARGS:
            raise unsupported(f"{name.strip('_').upper()} in {syntax.tree.key.upper()}")
    match syntax.tree:
        case exp.Insert() as tree:
            return _insert(binding, tree, syntax)
        case exp.Update() as tree:
            return _update(binding, tree)
        case exp.Delete() as tree:
            return _delete(binding, tree)
        case tree:
            raise unsupported(f"{tree.key.upper()} statements")


def _target(binding: Binding, node: Node | None) -> Table:
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
    target = tree.this
    listed: list[Node] = []
    if isinstance(target, exp.Schema):
        listed = list(target.expressions)
        target = target.this
    table = _target(binding, target)
    columns = [_column(binding, table, identifier, "INSERT") for identifier in listed]
    if not listed:
        if not binding.is_postgres:
            raise binding.text.error("INSERT must specify a column list", 0)
        columns = [
            column for column in table.columns if column.generated is None and not column.is_hidden
        ]
    seen: set[str] = set()
    for column, node in zip(columns, listed, strict=False):
        if column.name in seen:
            raise binding.error(f"INSERT has columns with duplicate name: {column.name}", node)
        seen.add(column.name)
    conflict = _conflict(binding, tree, syntax, table, columns)
    source = tree.expression
    width = len(columns) if listed else None
    drawn: dict[str, list[bool]] = {}
    if isinstance(source, exp.Values):
        query = _value_rows(binding, columns, source, width)
        drawn = _drawn(columns, *(row.expressions for row in source.expressions))
    else:
        query = _selected(binding, columns, source, width)
    names = tuple(column.name for column in columns[: len(query.columns)])
    needs = ("INSERT", "UPDATE") if conflict == "update" else ("INSERT",)
    return BoundDml("insert", table, names, query, conflict, needs, drawn)


def _conflict(
    binding: Binding,
    tree: exp.Insert,
    syntax: Syntax,
    table: Table,
    columns: Sequence[ColumnDefinition],
) -> Conflict:
    clause = tree.args.get("conflict")
    if clause is None:
        return syntax.conflict
    if syntax.conflict != "error":
        raise invalid_argument("INSERT OR and ON CONFLICT cannot be combined")
    keys = {key.name.lower() for key in clause.args.get("conflict_keys") or ()}
    if clause.args.get("constraint") or clause.args.get("where"):
        raise unsupported("ON CONFLICT ON CONSTRAINT or WHERE")
    is_update = "UPDATE" in clause.args["action"].name.upper()
    if not (keys or is_update or binding.is_postgres):
        if any(
            index.is_unique and index.table == table.name
            for index in binding.catalogue.indexes.values()
        ):
            raise unsupported("ON CONFLICT DO NOTHING of a table with a unique index")
    elif keys != {name.lower() for name in table.key_names}:
        raise invalid_argument("ON CONFLICT target must list all key columns")
    if not is_update:
        return "ignore"
    assigned = set() if binding.is_postgres else keys
    for assignment in clause.expressions:
        value = assignment.expression
        name = assignment.this.name.lower()
        if not isinstance(value, exp.Column) or value.sql().lower() != f"excluded.{name}":
            raise unsupported(f"ON CONFLICT DO UPDATE SET {name} to anything but excluded.{name}")
        assigned.add(name)
    missing = [column.name for column in columns if column.name.lower() not in assigned]
    if missing:
        raise unsupported(f"ON CONFLICT DO UPDATE SET without {', '.join(missing)}")
    return "update"


def _is_default(node: Node) -> bool:
    return (
        isinstance(node, exp.Var | exp.Column)
        and node.name.upper() == "DEFAULT"
        and not node.args.get("table")
        and not getattr(node.this, "quoted", False)
    )


def _drawn(columns: Iterable[ColumnDefinition], *rows: Sequence[Node]) -> dict[str, list[bool]]:
    """By the names of identity columns, the rows with DEFAULT for them."""
    return {
        column.name: [_is_default(node) for node in nodes]
        for column, *nodes in zip(columns, *rows, strict=False)
        if column.identity is not None
    }


def _value_rows(
    binding: Binding, columns: Sequence[ColumnDefinition], source: exp.Values, width: int | None
) -> BoundQuery:
    rows = [list(row.expressions) for row in source.expressions]
    width = width or len(rows[0])
    bounds: list[list[Bound]] = []
    scope = Scope(forbids_aggregates="VALUES clause")
    binding.allows_pending = True
    for row, written in zip(rows, source.expressions, strict=True):
        _check_width(binding, width, len(row), written, len(columns))
        bounds.append([_given(binding, scope, *pair) for pair in zip(columns, row, strict=False)])
    binding.allows_pending = False
    names = [f"c{index}" for index in range(width)]
    listed = ", ".join(names)
    texts = ", ".join(f"({', '.join(value.sql for value in row)})" for row in bounds)
    sql = f"SELECT {listed} FROM (VALUES {texts}) AS {binding.fresh('q')}({listed})"  # noqa: S608  # own text
    output = [
        OutputColumn(column.name, name, Bound(name, column.value_type))
        for column, name in zip(columns, names, strict=False)
    ]
    return BoundQuery(sql, output, lookup=Lookup.of_values(bounds))


def _check_width(binding: Binding, width: int, count: int, node: Node, most: int) -> None:
    if count != width or count > most:
        message = f"Inserted row has wrong column count; Has {count}, expected {width}"
        raise binding.error(message, node)


def _given(binding: Binding, scope: Scope, column: ColumnDefinition, node: Node) -> Bound:
    """The value for a column: an expression, or DEFAULT, which may be NULL."""
    if not _is_default(node):
        return _assigned(binding, binding.expression(scope, node), column, node)
    if column.default is None:
        return literal(column.value_type, None)
    syntax = parse_expression(str(column.default), binding.dialect)
    outer, binding.text = (binding.text, binding.allows_pending), syntax.text
    binding.allows_pending = True
    try:
        bound = binding.expression(Scope(), syntax.tree.expressions[0])
        return binding.coerce(bound, column.value_type)
    finally:
        binding.text, binding.allows_pending = outer


def _assigned(binding: Binding, bound: Bound, column: ColumnDefinition, node: Node) -> Bound:
    """A value as its column's type; INVALID_ARGUMENT if it does not convert."""
    if binding.accepts(bound, column.value_type):
        return binding.coerce(bound, column.value_type)
    raise binding.error(
        f"Value of type {binding.type_name(bound)} cannot be assigned to {column.name}, which has "
        f"type {type_name(column.value_type, binding.dialect)}",
        node,
    )


def _selected(
    binding: Binding, columns: Sequence[ColumnDefinition], source: Node, width: int | None
) -> BoundQuery:
    binding.allows_pending = True
    inner = binding.query(source, parent=None, ctes={})
    binding.allows_pending = False
    count = len(inner.columns)
    _check_width(binding, width or count, count, source, len(columns))
    name = binding.fresh("q")
    values = [
        _assigned(
            binding,
            Bound(
                f"{name}.{quoted(inner_column.key)}",
                None if inner_column.is_null else inner_column.value_type,
            ),
            column,
            source,
        )
        for column, inner_column in zip(columns, inner.columns, strict=False)
    ]
    shown = ", ".join(f"{value.sql} AS c{index}" for index, value in enumerate(values))
    sql = f"SELECT {shown} FROM ({inner.sql}) AS {name}"  # noqa: S608  # own text
    output = [
        OutputColumn(column.name, f"c{index}", Bound(f"c{index}", column.value_type))
        for index, column in enumerate(columns[:count])
    ]
    return BoundQuery(sql, output)


# -- UPDATE and DELETE


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows to write; only `scan` if its conditions are exact."""

    table: Table
    scope: Scope
    keys: list[OutputColumn]
    text: str
    scan: int | None

    def query(self, columns: Sequence[OutputColumn]) -> BoundQuery:
        """Their keys and these columns."""
        output = [*self.keys, *columns]
        shown = ", ".join(f"{column.bound.sql} AS {column.key}" for column in output)
        bounds = [column.bound for column in output]
        lookup = None if self.scan is None else Lookup.of_row(self.scan, bounds)
        return BoundQuery(f"SELECT {shown} FROM {self.text}", output, lookup=lookup)  # noqa: S608  # own text


def _rows_of(binding: Binding, tree: Node, target: Node | None) -> _Rows:
    verb = tree.key.upper()
    table = _target(binding, target)
    scope = Scope()
    reads = set(binding.reads)
    text, relation = bind_relation(binding, scope, cast("Node", target), is_first=True)
    binding.reads = reads  # finding the rows to write needs no separate SELECT
    scope.relations.append(relation)
    where = tree.args.get("where")
    if where is None and not binding.is_postgres:
        raise binding.text.error(f"{verb} must have a WHERE clause", 0)
    is_exact = True
    if where is not None:
        scope.forbids_aggregates = "WHERE clause"
        bound = bind_condition(binding, scope, where.this, "WHERE clause")
        binding.restrict(relation.scans, bound.restrictions)
        text += f" WHERE {bound.sql}"
        is_exact = bound.is_exact
    keys: list[OutputColumn] = []
    for index, name in enumerate(table.key_names):
        key = relation.find(name)[0].bound
        binding.mark(key)
        keys.append(OutputColumn(name, f"k{index}", key))
    (number,) = relation.scans
    return _Rows(table, scope, keys, text, number if is_exact else None)


def _update(binding: Binding, tree: exp.Update) -> BoundDml:
    rows = _rows_of(binding, tree, tree.this)
    rows.scope.forbids_aggregates = "UPDATE SET clause"
    columns: list[OutputColumn] = []
    for item in tree.expressions:
        if not isinstance(item, exp.EQ) or not isinstance(item.this, exp.Column):
            raise unsupported("this form of SET")
        columns.append(_assignment(binding, rows.scope, rows.table, item, columns))
    query = rows.query(columns)
    names = tuple(column.name for column in query.columns)
    assigned = [rows.table.column(column.name) for column in columns]
    drawn = _drawn(assigned, [item.expression for item in tree.expressions])
    return BoundDml("update", rows.table, names, query, "error", ("UPDATE",), drawn)


def _assignment(
    binding: Binding,
    scope: Scope,
    table: Table,
    item: exp.EQ,
    before: Sequence[OutputColumn],
) -> OutputColumn:
    column = _column(binding, table, item.this, "UPDATE")
    if column.name in table.key_names:
        raise invalid_argument("Cannot modify a primary key column with UPDATE")
    if any(earlier.name == column.name for earlier in before):
        raise binding.error(f"Update item {column.name} assigned more than once", item)
    value = item.expression
    binding.allows_pending = isinstance(value, exp.Anonymous | exp.Dot)
    bound = _given(binding, scope, column, value)
    binding.allows_pending = False
    return OutputColumn(column.name, f"v{len(before)}", bound)


def _delete(binding: Binding, tree: exp.Delete) -> BoundDml:
    rows = _rows_of(binding, tree, tree.this or next(iter(tree.args.get("tables") or ()), None))
    keys = rows.table.key_names
    return BoundDml("delete", rows.table, keys, rows.query([]), "error", ("DELETE",))
