"""ORDER BY: NULL comes first in GoogleSQL and last in PostgreSQL; JSON and arrays have no order.

NaN is the least number in GoogleSQL, and the greatest in PostgreSQL as in DuckDB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spanner_simulator.sql.sql_types import is_floating
from spanner_simulator.sql.syntax import unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spanner_simulator.sql.binder.binding import Binding
    from spanner_simulator.sql.syntax import Node
    from spanner_simulator.sql.terms.bound import Bound, Scope


_UNORDERED = frozenset(("ARRAY", "STRUCT", "JSON", "PROTO"))


def order_sql(binding: Binding, scope: Scope, items: Sequence[Node]) -> str:
    """The keys of an ORDER BY inside an aggregate."""
    return ", ".join(
        f"{orderable(binding, binding.expression(scope, item.this), item)} "
        f"{direction_sql(binding, item)}"
        for item in items
    )


def orderable(binding: Binding, bound: Bound, node: Node) -> str:
    """What to order by for an expression. INVALID_ARGUMENT for a type without an order."""
    kind = bound.value_type
    if kind is not None and kind.code in _UNORDERED:
        name = binding.type_name(bound)
        raise binding.error(f"ORDER BY does not support expressions of type {name}", node)
    if kind is not None and kind.annotation == "PG_NUMERIC":
        return f"pg_numeric_order({bound.sql})"
    if kind is not None and is_floating(kind) and not binding.is_postgres:
        return f"float_order({bound.sql})"
    return bound.sql


def direction_sql(binding: Binding, item: Node) -> str:
    """ASC or DESC, with the dialect's place for NULL unless PostgreSQL names one."""
    is_descending = bool(item.args.get("desc"))
    nulls_first = item.args.get("nulls_first")
    first = is_descending if binding.is_postgres else not is_descending
    if nulls_first is not None and bool(nulls_first) != first:
        if not binding.is_postgres:
            raise unsupported("NULLS FIRST and NULLS LAST")
        first = not first
    return f"{'DESC' if is_descending else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"
