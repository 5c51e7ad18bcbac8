"""The leaves of an expression: literals, NULL and parameters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from spanner_simulator.sql.sql_types import (
    BOOL,
    BYTES,
    FLOAT64,
    INT64,
    PG_NUMERIC,
    STRING,
)
from spanner_simulator.sql.syntax import literal_of
from spanner_simulator.sql.terms.bound import (
    Bound,
    Constant,
    Scope,
)
from spanner_simulator.sql.terms.coercion import read_literal
from spanner_simulator.sql.terms.literals import literal

if TYPE_CHECKING:
    from spanner_simulator.sql.binder.binding import Binding
    from spanner_simulator.sql.syntax import Node


_INT64_MAX = 2**63 - 1


def bind_literal(binding: Binding, _scope: Scope, node: Node) -> Bound:
    """A number, a string or bytes."""
    text = literal_of(binding.text, node)
    if isinstance(text, str):
        return literal(STRING, text)
    if isinstance(text, bytes):
        return literal(BYTES, text)
    digits = node.name
    if re.fullmatch(r"[0-9]+", digits):
        number = int(digits)
        if number <= _INT64_MAX:
            return literal(INT64, number)
        if binding.is_postgres:
            return _pg_numeric(digits)
        raise binding.error(f"Invalid integer literal: {digits}", node)
    if binding.is_postgres:
        return _pg_numeric(digits)
    return literal(FLOAT64, float(digits))


def _pg_numeric(digits: str) -> Bound:
    read = read_literal(digits, PG_NUMERIC, "POSTGRESQL")
    return cast("Bound", read)


def bind_hexadecimal(binding: Binding, _scope: Scope, node: Node) -> Bound:
    """0x1F."""
    if not node.args.get("is_integer"):
        raise binding.error("Syntax error: Unexpected hexadecimal string", node)
    number = int(node.name, 16)
    return literal(INT64, number - 2**64 if number > _INT64_MAX else number)


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
