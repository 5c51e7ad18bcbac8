"""A bound query: DuckDB's text, and the output columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from spanner_simulator.sql.sql_types import INT64
from spanner_simulator.sql.terms.bound import Bound, Relation, RelationColumn, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spanner_simulator.core.values import ValueType
    from spanner_simulator.sql.syntax import Node
    from spanner_simulator.sql.terms.bound import Constant


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A result column: Spanner's name, DuckDB's name, type; `bound` is its expression."""

    name: str
    key: str
    bound: Bound

    @property
    def value_type(self) -> ValueType:
        """Its type; set by now."""
        return self.bound.value_type or INT64

    @property
    def is_null(self) -> bool:
        """Whether it is a literal NULL, which converts to any type."""
        return self.bound.is_literal and self.bound.sql.startswith("CAST(NULL AS")


@dataclass(frozen=True, slots=True)
class Lookup:
    """A query without computation, which DuckDB need not run.

    With a scan, each output row is taken from one of its rows by the only row of `cells`: a
    column's name, or a constant.  Without a scan, `cells` are the rows.
    """

    scan: int | None
    cells: tuple[tuple[str | Constant, ...], ...]

    @classmethod
    def of_row(cls, scan: int, bounds: Sequence[Bound]) -> Lookup | None:
        """The look-up of these expressions in a scan's rows; None if one must be computed."""
        cells = [_cell(bound, scan) for bound in bounds]
        constants = [cell for cell in cells if cell is not None]
        return cls(scan, (tuple(constants),)) if len(constants) == len(cells) else None

    @classmethod
    def of_values(cls, rows: Sequence[Sequence[Bound]]) -> Lookup | None:
        """The same for rows of constants."""
        constants = [[cell.constant for cell in row if cell.constant is not None] for row in rows]
        if any(len(values) != len(row) for values, row in zip(constants, rows, strict=True)):
            return None
        return cls(None, tuple(tuple(values) for values in constants))


def _cell(bound: Bound, scan: int) -> str | Constant | None:
    if bound.column is not None:
        return bound.column.column if bound.column.scan == scan else None
    return bound.constant


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """`is_transparent`: a condition on an output column applies to the rows beneath."""

    sql: str
    columns: list[OutputColumn]
    scans: frozenset[int] = frozenset()
    is_transparent: bool = False
    lookup: Lookup | None = None


def relation_of(query: BoundQuery, alias: str, name: str) -> Relation:
    """A query in a FROM clause, as a relation of its output columns."""
    prefix = f"{name}." if name else ""
    columns = [
        RelationColumn(
            column.name,
            Bound(
                f"{prefix}{quoted(column.key)}",
                column.value_type,
                column=column.bound.column if query.is_transparent else None,
            ),
        )
        for column in query.columns
    ]
    scans = query.scans if query.is_transparent else frozenset()
    return Relation(alias, columns, scans=scans, is_whole=query.lookup is not None)


def plain_columns(columns: Sequence[OutputColumn]) -> list[OutputColumn]:
    """The columns of a query as visible from outside."""
    return [
        replace(column, bound=Bound(quoted(column.key), column.value_type, name=column.name))
        for column in columns
    ]


def unwrapped(node: Node) -> Node:
    """A query without redundant parentheses."""
    while isinstance(node, exp.Paren) or (isinstance(node, exp.Subquery) and not has_tail(node)):
        node = node.this
    return node


def has_tail(node: Node) -> bool:
    """Whether ORDER BY, LIMIT, OFFSET or WITH belong to this node."""
    return any(node.args.get(key) for key in ("order", "limit", "offset", "with_"))
