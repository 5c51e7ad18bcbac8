"""Rules for the SQL inside schema statements: defaults, generated columns, checks and views.

What it means is decided by the catalogue's analyser; without one it is accepted as it is, and
refused when it is first used. The texts around the analyser's are the service's own.
"""

from __future__ import annotations

import re

from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.definitions import Check
from spanner_simulator.core.schema.schema_objects import Table, View
from spanner_simulator.core.schema.statements import ColumnDefinition
from spanner_simulator.core.schema.type_names import type_name
from spanner_simulator.core.values import ValueType
from spanner_simulator.errors import Code, SpannerError

_PLACE = re.compile(r" \[at (\d+):(\d+)\]")


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
        found = catalogue.analysis.mismatch(expression, table=table, result=result)
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
        columns = catalogue.analysis.view_columns(view.query)
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
