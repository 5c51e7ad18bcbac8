"""Where the binding of one statement begins: the state with all binders behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spanner_simulator.sql.binder import expression_binder, query_binder
from spanner_simulator.sql.binder.binding import Binding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spanner_simulator.core.schema.catalogue import Catalogue
    from spanner_simulator.core.values import Dialect
    from spanner_simulator.sql.binder.bound_query import BoundQuery
    from spanner_simulator.sql.parameter import Parameter
    from spanner_simulator.sql.statement_text import StatementText
    from spanner_simulator.sql.syntax import Node
    from spanner_simulator.sql.terms.bound import Bound, Scope


class _Binders:
    """The binders of this package."""

    def expression(self, binding: Binding, scope: Scope, node: Node) -> Bound:
        return expression_binder.bind(binding, scope, node)

    def query(
        self, binding: Binding, node: Node, *, parent: Scope | None, ctes: Mapping[str, Any]
    ) -> BoundQuery:
        return query_binder.bind_query(binding, node, parent=parent, ctes=ctes)


_BINDERS = _Binders()


def new_binding(
    text: StatementText,
    dialect: Dialect,
    catalogue: Catalogue,
    parameters: Mapping[str, Parameter],
    *,
    allows_pending: bool = False,
) -> Binding:
    """The state in which to bind a statement.

    `allows_pending`: PENDING_COMMIT_TIMESTAMP() may stand anywhere in it.
    """
    return Binding(text, dialect, catalogue, parameters, _BINDERS, allows_pending=allows_pending)
