"""What schema statements ask of the SQL in them: the core's port for analysis, by the binder.

Nothing is run: an expression or a query is bound to the schema, and its types are looked at.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NoReturn

from spanner_simulator.errors import SpannerError
from spanner_simulator.sql.expressions import bind_over_row
from spanner_simulator.sql.proto_descriptors import read_descriptors

if TYPE_CHECKING:
    from spanner_simulator.core.schema.analysis import ProtoFiles
    from spanner_simulator.core.schema.catalogue import Catalogue
    from spanner_simulator.core.schema.schema_objects import Table
    from spanner_simulator.core.values import ValueType


_PLACE: Final = re.compile(r" \[at 1:(\d+)\]")
# The binder sees an expression as a query.
_QUERY: Final = "SELECT "


class SqlAnalysis:
    """Knows the SQL of both dialects as far as queries do. Raises `SpannerError`."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def mismatch(self, expression: str, *, table: Table, result: ValueType) -> str | None:
        """None when an expression over a row of the table converts to `result`, else its type."""
        try:
            binding, bound, _ = bind_over_row(expression, table, self._catalogue.dialect)
            if not binding.accepts(bound, result):
                return binding.type_name(bound)
            # A literal may look right by its type and be no value of the other one.
            binding.coerce(bound, result)
        except SpannerError as error:
            _refuse(error, expression)
        return None

    def proto_files(self, descriptors: bytes) -> ProtoFiles:
        """What a serialised google.protobuf.FileDescriptorSet has."""
        return read_descriptors(descriptors)


def _refuse(error: SpannerError, expression: str) -> NoReturn:
    """The same with the place in the expression, not in the query around it."""
    found = _PLACE.search(error.message)
    if found is None:
        raise error
    column = int(found[1]) - len(_QUERY)
    raise SpannerError(
        error.code,
        f"{error.message[: found.start()]} [at 1:{column}]\n{expression}\n{' ' * (column - 1)}^",
    ) from error
