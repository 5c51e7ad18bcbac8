"""Whether a query can be cut into shares that are computed apart from each other.

The service asks that a distributed union be at the root of its plan: rows of one table, filtered
and projected one by one. Whatever looks at several rows at once is refused with its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.sql.function_tables.functions import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spanner_simulator.sql.function_tables.signatures import Signature
    from spanner_simulator.sql.syntax import Syntax


_CLAUSES: Final = {
    "with_": "WITH",
    "distinct": "DISTINCT",
    "joins": "a join",
    "group": "GROUP BY",
    "having": "HAVING",
    "order": "ORDER BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
}


def check_partitionable(syntax: Syntax) -> None:
    """INVALID_ARGUMENT for a query that is more than a scan of one table."""
    reason = _obstacle(syntax.tree, FUNCTIONS[syntax.dialect])
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
    for call in tree.find_all(exp.Anonymous):
        if any(one.is_aggregate for one in functions.get(call.name.upper(), ())):
            return "an aggregate function"
    return None
