"""The start of binding one statement: the state with all binders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spanner_simulator.sql.binder import expression_binder, query_binder
from spanner_simulator.sql.binder.binding import Binding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spanner_simulator.core.schema.catalogue import Catalogue
    from spanner_simulator.sql.parameter import Parameter
    from spanner_simulator.sql.statement_text import StatementText


def new_binding(
    text: StatementText,
    catalogue: Catalogue,
    parameters: Mapping[str, Parameter],
    *,
    allows_pending: bool = False,
) -> Binding:
    """The state in which to bind a statement.

    `allows_pending`: PENDING_COMMIT_TIMESTAMP() is allowed anywhere in it.
    """
    return Binding(
        text,
        catalogue.dialect,
        catalogue,
        parameters,
        expression_binder.bind,
        query_binder.bind_query,
        allows_pending=allows_pending,
    )
