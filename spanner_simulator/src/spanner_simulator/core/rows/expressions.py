"""The port through which defaults, generated columns and checks are computed.

They are SQL, which is a layer above the core; a database gets its evaluator when it is created.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from spanner_simulator.core.schema.schema_objects import Table
from spanner_simulator.core.schema.statements import ColumnDefinition, Identity
from spanner_simulator.core.values import Dialect, Row, Value, ValueType
from spanner_simulator.errors import failed_precondition, unsupported

# How many values in a row may be skipped.
_ATTEMPTS_MAX: Final = 2_000
_COUNT_MAX: Final = 2**63 - 1


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
        """The value, of the type `result`; `row` has the known columns.

        The commit timestamp is `mutations.PENDING`.  Raises `SpannerError`.
        """
        ...


class IdentityCounts:
    """The next count of each identity column; `drawn` since the journal last got them."""

    def __init__(self) -> None:
        self.next: dict[str, int] = {}
        self.drawn: set[str] = set()

    def draw(self, table: Table, column: ColumnDefinition) -> int:
        """A value that no other row has received."""
        place, identity = _place(table, column), column.identity or Identity()
        low, high = identity.skip or (0, 0)
        for _ in range(_ATTEMPTS_MAX):
            count = self.next.get(place, identity.start or 1)
            if count >= _COUNT_MAX:
                break
            self.next[place] = count + 1
            self.drawn.add(place)
            # The sign bit stays in its place.
            value = int(f"{count:063b}"[::-1], 2)
            if not low <= value <= high:
                return value
        raise failed_precondition(f"Sequence of {table.name}.{column.name} is exhausted")

    def take_drawn(self) -> dict[str, int]:
        """The next counts of the columns that were used since the last call."""
        counts = {place: self.next[place] for place in sorted(self.drawn & self.next.keys())}
        self.drawn.clear()
        return counts

    def follow(self, tables: Iterable[Table]) -> None:
        """Drop removed columns, because a new column of that name would start again."""
        places = {_place(table, column) for table in tables for column in table.columns}
        for place in self.next.keys() - places:
            del self.next[place]


def _place(table: Table, column: ColumnDefinition) -> str:
    restarts = 0 if column.identity is None else column.identity.restarts
    return f"{table.name}\0{column.name}\0{restarts}".lower()


class NoExpressions:
    """The evaluator of a database that was created without one: it rejects everything."""

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
        """Reject the expression."""
        raise unsupported(f"expressions without an SQL engine ({expression} of table {table.name})")
