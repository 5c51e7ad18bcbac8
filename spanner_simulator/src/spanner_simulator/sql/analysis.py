"""The analysis of SQL in schema statements: the core's port, implemented by the binder.

Nothing is run: an expression or a query is bound to the schema, and its types are checked.
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
    """Analyses the SQL of both dialects, as far as queries support it.  Raises `SpannerError`."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def mismatch(self, expression: str, *, table: Table, result: ValueType) -> str | None:
        """None if an expression over a row of the table converts to `result`, else its type."""
        try:
            binding, bound, _ = bind_over_row(expression, table, self._catalogue.dialect)
            if not binding.accepts(bound, result):
                return binding.type_name(bound)
            # A literal may have the right type and still not be a value of the other type.
            binding.coerce(bound, result)
        except SpannerError as error:
            _refuse(error, expression)
        return None

    def proto_files(self, descriptors: bytes) -> ProtoFiles:
        """The types and files of a serialised google.protobuf.FileDescriptorSet."""
        return read_descriptors(descriptors)


def _refuse(error: SpannerError, expression: str) -> NoReturn:
    """The same with the position in the expression, not in the query around it."""
    match = _PLACE.search(error.message)
    if match is None:
        raise error
    column = int(match[1]) - len(_QUERY)
    raise SpannerError(
        error.code,
        f"{error.message[: match.start()]} [at 1:{column}]\n{expression}\n{' ' * (column - 1)}^",
    ) from error
