"""Whether a query can be cut into shares that are computed apart from each other.

The service asks that a distributed union be at the root of its plan: rows of one table, filtered
and projected one by one. Whatever looks at several rows at once is refused with its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.sql.function_tables.google_functions import GOOGLE_FUNCTIONS
from spanner_simulator.sql.function_tables.postgres_functions import POSTGRES_FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spanner_simulator.sql.function_tables.signatures import Signature
    from spanner_simulator.sql.syntax import Syntax


_CLAUSES: Final = {
    "with_": "WITH",
    "distinct": "DISTINCT",
    "joins": "a join",
    "laterals": "a join",
    "group": "GROUP BY",
    "having": "HAVING",
    "qualify": "QUALIFY",
    "windows": "WINDOW",
    "order": "ORDER BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
}


def check_partitionable(syntax: Syntax) -> None:
    """INVALID_ARGUMENT for a query that is more than a scan of one table."""
    functions = POSTGRES_FUNCTIONS if syntax.dialect == "POSTGRESQL" else GOOGLE_FUNCTIONS
    reason = _obstacle(syntax.tree, functions)
    if reason is not None:
        raise SpannerError(
            Code.INVALID_ARGUMENT,
            "Query is not root partitionable since it does not have a DistributedUnion at the "
            f"root: it has {reason}.",
        )


def _obstacle(tree: exp.Expr, functions: Mapping[str, tuple[Signature, ...]]) -> str | None:
    if not isinstance(tree, exp.Select):
        return "no single SELECT"
    for clause, words in _CLAUSES.items():
        if tree.args.get(clause):
            return words
    source = tree.args.get("from_")
    if source is not None and not isinstance(source.this, exp.Table):
        return "no table in FROM"
    if any(inner is not tree for inner in tree.find_all(exp.Query)):
        return "a subquery"
    if tree.find(exp.Window) is not None:
        return "a window function"
    for call in tree.find_all(exp.Anonymous, exp.AggFunc):
        signatures = functions.get(call.name.upper(), ())
        if isinstance(call, exp.AggFunc) or any(one.is_aggregate for one in signatures):
            return "an aggregate function"
    return None
