"""The state of binding one statement: its scans, its parameters, and conversions between types.

A binding is made for a statement, the declared types of its parameters and one state of the
catalogue; `dependencies` show when it is no longer valid.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

from spanner_simulator.errors import Code, SpannerError, invalid_argument, not_found
from spanner_simulator.sql.sql_types import (
    BOOL,
    FLOAT64,
    INT64,
    STRING,
    array_of,
    carrier,
    is_same,
    type_name,
    unsized,
)
from spanner_simulator.sql.syntax import position
from spanner_simulator.sql.terms.bound import Bound, Constant
from spanner_simulator.sql.terms.coercion import (
    cast_sql,
    common_type,
    implicit_cost,
    is_blank_array,
    read_literal,
)
from spanner_simulator.sql.terms.literals import enum_of_int, literal, value_sql

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spanner_simulator.core.schema.catalogue import Catalogue
    from spanner_simulator.core.values import Dialect, Plain, ValueType
    from spanner_simulator.sql.binder.bound_query import BoundQuery
    from spanner_simulator.sql.binder.scans import Scan
    from spanner_simulator.sql.parameter import Parameter
    from spanner_simulator.sql.statement_text import StatementText
    from spanner_simulator.sql.syntax import Node
    from spanner_simulator.sql.terms.bound import Restriction, Scope


NOW = "now_ns"
NOW_SQL = f"CAST(${NOW} AS HUGEINT)"


def default_type(plain: Plain, *, dialect: Dialect) -> ValueType:
    """The type of a parameter without context."""
    match plain:
        case bool():
            return BOOL
        case float() | int():
            return FLOAT64
        case str():
            return STRING
        case list():
            first = next((item for item in plain if item is not None), None)
            return array_of(default_type(first, dialect=dialect))
        case _:
            return STRING if dialect == "POSTGRESQL" else INT64


def parameter_sql(name: str, value_type: ValueType | None) -> str:
    """A parameter in its carrier."""
    if value_type is None:
        return f"$p_{name}"
    return f"CAST($p_{name} AS {carrier(value_type)})"


class _BindQuery(Protocol):
    def __call__(
        self, binding: Binding, node: Node, *, parent: Scope | None, ctes: Mapping[str, Any]
    ) -> BoundQuery: ...


@dataclass(slots=True)
class Binding:
    """The state of one statement; `types` are the parameters' types, declared or inferred."""

    text: StatementText
    dialect: Dialect
    catalogue: Catalogue
    parameters: Mapping[str, Parameter]
    # Binders of the inside of other constructs, so that each binder knows only its own.
    bind_expression: Callable[[Binding, Scope, Node], Bound]
    bind_query: _BindQuery
    types: dict[str, ValueType] = field(default_factory=dict)
    used_parameters: set[str] = field(default_factory=set)
    scans: list[Scan] = field(default_factory=list)
    dependencies: list[tuple[str, str, object]] = field(default_factory=list)
    reads: set[str] = field(default_factory=set)
    names: int = 0
    allows_pending: bool = False

    @property
    def is_postgres(self) -> bool:
        """Whether the statement is PostgreSQL."""
        return self.dialect == "POSTGRESQL"

    def fresh(self, prefix: str) -> str:
        """A name that is unique in the generated text."""
        self.names += 1
        return f"{prefix}{self.names}"

    def mark(self, bound: Bound) -> None:
        """Record that the statement uses the column of an expression."""
        if bound.column is not None:
            self.scans[bound.column.scan - 1].used[bound.column.column] = None

    def restrict(self, scans: frozenset[int], restrictions: Sequence[Restriction]) -> None:
        """Record restrictions on rows of these scans, and on columns equal to restricted ones."""
        certain = [restriction for restriction in restrictions if restriction.other is None]
        certain += [
            replace(restriction, column=link.column)
            for link in restrictions
            for restriction in certain
            if restriction.column == link.other
        ]
        for restriction in certain:
            if restriction.column.scan in scans:
                scan_restrictions = self.scans[restriction.column.scan - 1].restrictions
                if restriction not in scan_restrictions:
                    scan_restrictions.append(restriction)

    def expression(self, scope: Scope, node: Node) -> Bound:
        """DuckDB's text and Spanner's type of an expression. Raises `SpannerError`."""
        return self.bind_expression(self, scope, node)

    def query(self, node: Node, *, parent: Scope | None, ctes: Mapping[str, Any]) -> BoundQuery:
        """A query expression, which sees the names of `parent`.  Raises `SpannerError`."""
        return self.bind_query(self, node, parent=parent, ctes=ctes)

    def error(self, message: str, node: Node | None = None) -> SpannerError:
        """INVALID_ARGUMENT, with the node's place in GoogleSQL."""
        if self.is_postgres:
            return invalid_argument(f"[ERROR] {message}")
        return self.text.error(message, None if node is None else position(node))

    def type_name(self, bound: Bound) -> str:
        """An expression's type for a message."""
        if bound.value_type is None:
            return "unknown" if self.is_postgres else "NULL"
        return type_name(bound.value_type, self.dialect)

    # -- parameters

    def parameter(self, name: str) -> Bound:
        """A parameter; INVALID_ARGUMENT if it is not bound."""
        lowered = name.lower()
        if lowered not in self.parameters:
            raise invalid_argument(f"No parameter found for binding: {name}")
        self.used_parameters.add(lowered)
        declared = self._known(self.parameters[lowered].value_type)
        value_type = self.types.get(lowered) or declared
        if value_type is not None:
            self.types[lowered] = value_type
        return Bound(
            parameter_sql(lowered, value_type),
            value_type,
            constant=Constant(parameter=lowered),
            is_literal=True,
        )

    def _known(self, declared: ValueType | None) -> ValueType | None:
        """A declared type, if named from the proto bundle; NOT_FOUND if the bundle lacks it."""
        if declared is None:
            return None
        if declared.element is not None:
            return replace(declared, element=self._known(declared.element))
        if declared.code not in ("PROTO", "ENUM"):
            return declared
        proto_type = self.named_type(declared.proto_name or "")
        if proto_type is None or proto_type.code != declared.code:
            kind = "Type" if declared.code == "PROTO" else "Enum type"
            raise not_found(f"{kind} not found: `{declared.proto_name or ''}`")
        return proto_type

    def named_type(self, name: str) -> ValueType | None:
        """A message or an enum of the proto bundle."""
        proto_type = self.catalogue.proto_types.get(name)
        self.dependencies.append(("proto_types", name, proto_type))
        return proto_type

    # -- conversions

    def accepts(self, bound: Bound, target: ValueType) -> bool:
        """Whether an expression converts to a type without CAST."""
        return implicit_cost(bound, target, self.dialect) is not None

    def coerce(self, bound: Bound, target: ValueType) -> Bound:
        """An expression as another type; the caller knows that the conversion exists."""
        name = bound.untyped_parameter
        if name is not None:
            kind = self.types.setdefault(name, unsized(target))
            typed = replace(bound, sql=parameter_sql(name, kind), value_type=kind)
            return typed if is_same(kind, target) else self.coerce(typed, target)
        source = bound.value_type
        if source is None:
            return replace(bound, sql=value_sql(target, None), value_type=target)
        if is_same(source, target):
            return bound
        value: Any = None if bound.constant is None else bound.constant.value
        if bound.is_literal and target.element is not None and is_blank_array(bound):
            return literal(target, value)
        if bound.is_literal and isinstance(value, str) and source.code == "STRING":
            read = self.read(value, target)
            if read is not None:
                return read
        if bound.is_literal and isinstance(value, int | float) and not isinstance(value, bool):
            if target.code == "NUMERIC":
                return literal(target, Decimal(repr(value)))
            if target.code == "FLOAT64":
                return literal(target, float(value))
            if target.code == "ENUM":
                return literal(target, enum_of_int(int(value), target.proto_name or ""))
        return Bound(cast_sql(bound.sql, source, target, self.dialect), target)

    def read(self, text: str, target: ValueType) -> Bound | None:
        """A string literal as another type; INVALID_ARGUMENT if it is not a value of that type."""
        try:
            return read_literal(text, target, self.dialect)
        except SpannerError as error:
            if self.is_postgres or error.code is not Code.OUT_OF_RANGE:
                raise
            name = type_name(target, self.dialect)
            raise self.error(f'Could not cast literal "{text}" to type {name}') from None

    def common_type(self, bounds: Sequence[Bound]) -> ValueType | None:
        """The type to which all convert; None if there is none, or none has a type."""
        return common_type(bounds, self.dialect)

    def settled(self, bound: Bound) -> Bound:
        """An expression that always has a type: for NULL the dialect's default."""
        if bound.value_type is not None:
            return bound
        name = bound.untyped_parameter
        plain = None if name is None else self.parameters[name].plain
        return self.coerce(bound, default_type(plain, dialect=self.dialect))

    def coerced_all(
        self, bounds: Sequence[Bound], node: Node, subject: str
    ) -> tuple[list[Bound], ValueType]:
        """All as their common type; INVALID_ARGUMENT if there is none."""
        kind = self.common_type(bounds)
        if kind is None and any(bound.value_type is not None for bound in bounds):
            names = ", ".join(dict.fromkeys(self.type_name(bound) for bound in bounds))
            raise self.error(f"{subject} of types {{{names}}} do not have a common supertype", node)
        kind = kind or self.settled(bounds[0]).value_type or INT64
        return [self.coerce(bound, kind) for bound in bounds], kind
