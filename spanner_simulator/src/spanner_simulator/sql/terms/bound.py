"""The binder's result for an expression: DuckDB's text and Spanner's type.

The text comes with information for the engine before any row is read: constants, and restrictions
that a condition puts on key columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spanner_simulator.core.values import Value, ValueType


Comparison = Literal["=", "<", "<=", ">", ">="]


def quoted(name: str) -> str:
    """A name in DuckDB's quotes."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column of the scan with this number."""

    scan: int
    column: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A value known before rows are read: a literal, or a parameter by lower-case name.

    `is_list` means that each element of the (array) value counts.
    """

    value: Value = None
    parameter: str | None = None
    is_list: bool = False


@dataclass(frozen=True, slots=True)
class Restriction:
    """A property of a column where a condition is true: one of several values, or a bound.

    With `other`, the column equals that of another scan.
    """

    column: ColumnRef
    comparison: Comparison
    constants: tuple[Constant, ...] = ()
    other: ColumnRef | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """`value_type` None: NULL, ERROR(), or a parameter whose type is not known yet.

    `is_exact` means that the restrictions are equivalent to the condition.
    """

    sql: str
    value_type: ValueType | None
    name: str = ""
    constant: Constant | None = None
    column: ColumnRef | None = None
    restrictions: tuple[Restriction, ...] = ()
    is_exact: bool = False
    is_literal: bool = False
    is_aggregate: bool = False

    @property
    def untyped_parameter(self) -> str | None:
        """The name of the parameter that this is, until it has a type."""
        if self.value_type is None and self.constant is not None:
            return self.constant.parameter
        return None


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """One column of a relation in a FROM clause."""

    name: str
    bound: Bound
    is_hidden: bool = False


@dataclass(slots=True)
class Relation:
    """A relation in a FROM clause; `value` is the meaning of its alias alone (UNNEST).

    `is_whole`: its rows are those of its only scan, each once.
    """

    alias: str
    columns: list[RelationColumn]
    value: Bound | None = None
    scans: frozenset[int] = frozenset()
    hidden: frozenset[str] = field(default_factory=frozenset)
    is_whole: bool = False

    def find(self, name: str) -> list[RelationColumn]:
        """Columns of that name, in any case."""
        lowered = name.lower()
        return [column for column in self.columns if column.name.lower() == lowered]


@dataclass(slots=True)
class Scope:
    """The visible names: relations, columns merged by USING, aliases of the SELECT list.

    `links` are the column equalities of joins through which conditions may be passed on.
    """

    parent: Scope | None = None
    relations: list[Relation] = field(default_factory=list)
    merged: dict[str, Bound] = field(default_factory=dict)
    aliases: Mapping[str, Bound] = field(default_factory=dict)
    forbids_aggregates: str | None = None
    has_aggregates: bool = False
    links: list[Restriction] = field(default_factory=list)
    ctes: Mapping[str, Any] = field(default_factory=dict)
