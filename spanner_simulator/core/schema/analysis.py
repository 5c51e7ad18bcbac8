"""The port through which SQL inside a schema statement is looked at before it is accepted.

Defaults, generated columns, checks and views are SQL, which lies above the core. Whoever makes a
catalogue may give it an analyser; without one they are accepted as they are, and refused when they
are first used. The texts around what the analyser says are the service's own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tidegate.spanner_simulator.core.schema.type_names import type_name
from tidegate.spanner_simulator.errors import Code, SpannerError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.spanner_simulator.core.schema.catalogue import Catalogue
    from tidegate.spanner_simulator.core.schema.schema_objects import Check, Table, View
    from tidegate.spanner_simulator.core.schema.statements import ColumnDefinition
    from tidegate.spanner_simulator.core.values import ValueType

__all__ = [
    "Analysis",
    "ProtoFiles",
    "analyse_check",
    "analyse_column",
    "analyse_view",
    "refreshed_view",
]

_PLACE = re.compile(r" \[at (\d+):(\d+)\]")


@dataclass(frozen=True, slots=True)
class ProtoFiles:
    """A google.protobuf.FileDescriptorSet: its types by full name, and its files by theirs.

    Each file is a serialised set of its own, so that sets are put together by appending them.
    """

    types: Mapping[str, ValueType]
    files: Mapping[str, bytes]


class Analysis(Protocol):
    """Knows SQL and protocol buffers; raises `SpannerError` for what it cannot understand."""

    def mismatch(
        self, expression: str, *, table: Table, result: ValueType, catalogue: Catalogue
    ) -> str | None:
        """None when an expression over a row of the table converts to `result`, else its type."""
        ...

    def view_columns(
        self, query: str, *, catalogue: Catalogue
    ) -> tuple[tuple[str, ValueType], ...]:
        """Names ('' for none) and types of what a query yields."""
        ...

    def proto_files(self, descriptors: bytes) -> ProtoFiles:
        """What a serialised google.protobuf.FileDescriptorSet has."""
        ...


def analyse_column(catalogue: Catalogue, table: Table, column: ColumnDefinition) -> None:
    """Refuse a default or a generating expression that makes no sense."""
    name = f"`{table.name}`.`{column.name}`"
    if column.default is not None:
        what = f"Error parsing the default value of column {name}: "
        _check(catalogue, table, column.default, column.value_type, what)
    if column.generated is not None:
        what = f"Error parsing the definition of generated column {name}: "
        _check(catalogue, table, f"({column.generated})", column.value_type, what)


def analyse_check(catalogue: Catalogue, table: Table, check: Check, *, is_true: ValueType) -> None:
    """Refuse a check that makes no sense; `is_true` is the type that it must have."""
    name = check.name if check.is_named else "<unnamed>"
    what = (
        f"Error parsing expression '{check.expression}' from check constraint '{name}' in table "
        f"'{table.name}': "
    )
    _check(catalogue, table, check.expression, is_true, what)


def _check(
    catalogue: Catalogue, table: Table, expression: str, result: ValueType, what: str
) -> None:
    if catalogue.analysis is None:
        return
    try:
        found = catalogue.analysis.mismatch(
            expression, table=table, result=result, catalogue=catalogue
        )
    except SpannerError as error:
        if error.code is Code.UNIMPLEMENTED:
            raise
        raise SpannerError(Code.INVALID_ARGUMENT, what + error.message) from error
    if found is not None:
        raise SpannerError(
            Code.INVALID_ARGUMENT,
            f"{what}Expected type {type_name(result)}; found {found} [at 1:1]\n{expression}\n^",
        )


def analyse_view(catalogue: Catalogue, view: View) -> tuple[tuple[str, ValueType], ...]:
    """The columns of a view, or a refusal."""
    if catalogue.analysis is None:
        return ()
    is_google = catalogue.dialect == "GOOGLE_STANDARD_SQL"
    what = f"Error parsing the definition of view `{view.name}`: " if is_google else ""
    head = f"CREATE VIEW `{view.name}` SQL SECURITY {view.security} AS "
    try:
        columns = catalogue.analysis.view_columns(view.query, catalogue=catalogue)
    except SpannerError as error:
        if error.code is Code.UNIMPLEMENTED:
            raise
        message = _moved(error.message, head, view.query)
        raise SpannerError(Code.INVALID_ARGUMENT, what + message) from error
    for position, (name, _) in enumerate(columns, start=1):
        if not name:
            message = f"CREATE VIEW columns must be named, but column {position} has no name"
            raise SpannerError(Code.INVALID_ARGUMENT, what + message)
    return columns


def refreshed_view(
    catalogue: Catalogue, view: View, *, kind: str, changed: str
) -> tuple[tuple[str, ValueType], ...]:
    """The columns of a view after a change beneath it, or a refusal of that change."""
    try:
        return analyse_view(catalogue, view)
    except SpannerError as error:
        diagnosis = error.message.removeprefix(
            f"Error parsing the definition of view `{view.name}`: "
        )
        raise SpannerError(
            Code.FAILED_PRECONDITION,
            f"Cannot alter {kind} `{changed}`. The new definition causes the definition of VIEW "
            f"`{view.name}` to become invalid with the following diagnostic message: {diagnosis}",
        ) from error


def _moved(message: str, head: str, query: str) -> str:
    """A message about a query as one about the statement that it stands in."""
    found = _PLACE.search(message)
    if found is None or int(found[1]) != 1:
        return message
    column = int(found[2]) + len(head)
    return (
        f"{message[: found.start()]} [at 1:{column}]\n{head}{query.splitlines()[0]}\n"
        f"{' ' * (column - 1)}^"
    )
