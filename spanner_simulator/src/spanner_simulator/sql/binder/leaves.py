"""The leaves of an expression: literals, NULL and parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from spanner_simulator.sql.sql_types import BOOL, BYTES, FLOAT64, INT64, PG_NUMERIC, STRING
from spanner_simulator.sql.syntax import literal_of
from spanner_simulator.sql.terms.bound import Bound, Constant, Scope
from spanner_simulator.sql.terms.coercion import read_literal
from spanner_simulator.sql.terms.literals import literal

if TYPE_CHECKING:
    from spanner_simulator.sql.binder.binding import Binding
    from spanner_simulator.sql.syntax import Node


def bind_literal(binding: Binding, _scope: Scope, node: Node) -> Bound:
    """A number, a string or bytes."""
    text = literal_of(binding.text, node)
    if isinstance(text, str):
        return literal(STRING, text)
    if isinstance(text, bytes):
        return literal(BYTES, text)
    digits = node.name
    if digits.isdigit() and int(digits) < 2**63:
        return literal(INT64, int(digits))
    if binding.is_postgres:
        return cast("Bound", read_literal(digits, PG_NUMERIC, "POSTGRESQL"))
    if digits.isdigit():
        raise binding.error(f"Invalid integer literal: {digits}", node)
    return literal(FLOAT64, float(digits))


def bind_boolean(_binding: Binding, _scope: Scope, node: Node) -> Bound:
    """TRUE and FALSE."""
    return literal(BOOL, bool(node.this))


def bind_null(_binding: Binding, _scope: Scope, _node: Node) -> Bound:
    """NULL, which takes any type."""
    return Bound("NULL", None, constant=Constant(), is_literal=True)


def bind_parameter(binding: Binding, _scope: Scope, node: Node) -> Bound:
    """`@name` and `$1`."""
    name = node.this.name
    return binding.parameter(f"p{name}" if binding.is_postgres else name)
