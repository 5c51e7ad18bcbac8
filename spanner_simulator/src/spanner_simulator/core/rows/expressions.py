"""The port through which defaults, generated columns and checks are computed.

They are SQL, which lies above the core; a database gets its evaluator when it is created.
"""

from __future__ import annotations

from typing import Protocol

from spanner_simulator.core.schema.schema_objects import Table
from spanner_simulator.core.values import Dialect, Row, Value, ValueType
from spanner_simulator.errors import Code, SpannerError


class Expressions(Protocol):
    """Evaluates scalar SQL expressions over one row."""

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
        """The value as `result` has it; `row` has the columns that are known.

        The commit timestamp is `mutations.PENDING`. Raises `SpannerError`.
        """
        ...


class NoExpressions:
    """The evaluator of a database that was created without one: it refuses."""

    def evaluate(
        self,
        expression: str,
        *,
        table: Table,
        row: Row,  # noqa: ARG002  # the port's signature
        result: ValueType,  # noqa: ARG002  # as above
        dialect: Dialect,  # noqa: ARG002  # as above
        now_us: int,  # noqa: ARG002  # as above
    ) -> Value:
        """Refuse."""
        raise SpannerError(
            Code.UNIMPLEMENTED,
            f"The simulator does not support: expressions without an SQL engine ({expression} of "
            f"table {table.name})",
        )
