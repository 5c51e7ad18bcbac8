"""Defaults, generated columns and checks: the core's port for expressions, computed by DuckDB.

Expressions are bound once per table; constants are never passed to DuckDB.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from spanner_simulator.core.rows.mutations import PENDING
from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.errors import invalid_argument
from spanner_simulator.sql.binder.binding import NOW, NOW_SQL, Binding
from spanner_simulator.sql.binder.scans import Scan
from spanner_simulator.sql.binder.statement import new_binding
from spanner_simulator.sql.binder.tables import relation_of_scan
from spanner_simulator.sql.open_duck import open_duck
from spanner_simulator.sql.plans import names_in, scan_sql
from spanner_simulator.sql.sql_types import from_duck
from spanner_simulator.sql.syntax import bounded_depth, parse_expression
from spanner_simulator.sql.terms.bound import Bound, Scope

if TYPE_CHECKING:
    from spanner_simulator.core.schema.schema_objects import Table
    from spanner_simulator.core.values import Dialect, Row, Value, ValueType


@dataclass(frozen=True, slots=True)
class _BoundExpression:
    """`sql` None: always `constant`, or with `is_now` the time of the statement."""

    sql: str | None
    scan: Scan
    constant: Value = None
    is_now: bool = False
    needs_now: bool = False


class DuckExpressions:
    """Evaluates expressions over one row; used by one thread."""

    def evaluate(
        self,
        expression: str,
        *,
        table: Table,
        row: Row,
        result: ValueType,
        dialect: Dialect,
        now_us: int,
    ) -> Value:
        """The value as `result` has it; PENDING for the commit timestamp. Raises `SpannerError`."""
        bound = _bind(expression, table, result, dialect)
        if bound.is_now:
            return now_us * 1000
        if bound.sql is None:
            return bound.constant
        parameters = {NOW: now_us * 1000} if bound.needs_now else {}
        types = {name: bound.scan.types[name] for name in bound.scan.used}
        value = open_duck().run(bound.sql, parameters, {"raw1": (types, [row])})[0][0]
        convert = from_duck(result)
        return value if convert is None or value is None else convert(value)


def bind_over_row(expression: str, table: Table, dialect: Dialect) -> tuple[Binding, Bound, Scan]:
    """An expression over one row of a table, with the scan that gives the row."""
    syntax = parse_expression(expression, dialect)
    trees = syntax.tree.expressions
    if len(trees) != 1 or syntax.tree.args.get("from_"):
        raise invalid_argument(f"Invalid expression: {expression}")
    catalogue = Catalogue(dialect)
    for column in table.columns:
        kind = column.value_type.element or column.value_type
        if kind.proto_name is not None:
            catalogue.proto_types[kind.proto_name] = kind
    binding = new_binding(syntax.text, catalogue, {}, allows_pending=True)
    scan = Scan(1, table.name, table.type_of, table)
    binding.scans.append(scan)
    relation = relation_of_scan(scan, table.name.split(".")[-1], "r")
    scope = Scope(relations=[relation], forbids_aggregates="an expression of a table")
    with bounded_depth():
        return binding, binding.expression(scope, trees[0]), scan


@lru_cache(maxsize=4096)
def _bind(expression: str, table: Table, result: ValueType, dialect: Dialect) -> _BoundExpression:
    binding, bound, scan = bind_over_row(expression, table, dialect)
    if not binding.accepts(bound, result):
        raise invalid_argument(
            f"Expression {expression} of table {table.name} has type {binding.type_name(bound)}, "
            f"which does not convert to {result.ddl(dialect)}",
        )
    typed = binding.coerce(bound, result)
    if typed.sql == f"CAST('{PENDING}' AS HUGEINT)":
        return _BoundExpression(None, scan, PENDING)
    if typed.sql == NOW_SQL:
        return _BoundExpression(None, scan, is_now=True)
    if typed.constant is not None and typed.constant.parameter is None and typed.is_literal:
        return _BoundExpression(None, scan, typed.constant.value)
    sql = f"WITH {scan_sql(scan)} SELECT {typed.sql} FROM scan1 AS r"  # noqa: S608  # own text
    return _BoundExpression(sql, scan, needs_now=NOW in names_in(sql))
