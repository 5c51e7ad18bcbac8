"""Rules for views and named schemas.

A view's query is text; what it depends on is known by the words in it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from spanner_simulator.core.schema import statements as ddl
from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.expression_names import column_names, object_names
from spanner_simulator.core.schema.schema_objects import View
from spanner_simulator.core.schema.sql_rules import analyse_view, refreshed_view
from spanner_simulator.errors import Code, SpannerError


def _refused(message: str) -> SpannerError:
    return SpannerError(Code.FAILED_PRECONDITION, message)


def views_of(catalogue: Catalogue, name: str, column: str | None = None) -> list[str]:
    """Views whose query names a table or view, and a column of it if one is given."""
    return sorted(
        view.name
        for view in catalogue.views.values()
        if name.lower() in object_names(view.query, catalogue.dialect)
        and (column is None or column.lower() in column_names(view.query, catalogue.dialect))
    )


def views_without(catalogue: Catalogue, table: str, column: str) -> list[str]:
    """Views that make no sense now that a table has lost a column; by their words if need be."""
    if catalogue.analysis is None:
        return views_of(catalogue, table, column)
    broken: list[str] = []
    for name in views_of(catalogue, table):
        try:
            analyse_view(catalogue, catalogue.view(name))
        except SpannerError:
            broken.append(name)
    return broken


def check_no_views(catalogue: Catalogue, kind: Literal["TABLE", "VIEW"], name: str) -> None:
    """Refuse to drop what a view is made of."""
    views = [view for view in views_of(catalogue, name) if view.lower() != name.lower()]
    if views:
        raise _refused(
            f"Cannot drop {kind} `{name}` on which there are dependent views: {','.join(views)}."
        )


def create_view(catalogue: Catalogue, statement: ddl.CreateView) -> None:
    """Define a view, or replace one."""
    key = statement.name.lower()
    if not (statement.or_replace and key in catalogue.views):
        catalogue.check_new_name("View", statement.name)
    elif key in _reachable(catalogue, statement.query):
        raise _refused(
            f"Cannot replace VIEW `{statement.name}` because new definition is recursive."
        )
    view = View(statement.name, statement.query, statement.security)
    catalogue.views[key] = replace(view, columns=analyse_view(catalogue, view))
    refresh_views(catalogue, "VIEW", view.name)


def refresh_views(catalogue: Catalogue, kind: Literal["TABLE", "VIEW"], changed: str) -> None:
    """Look again at the views that are made of a changed table or view, and at theirs."""
    for name in views_of(catalogue, changed):
        view = catalogue.view(name)
        columns = refreshed_view(catalogue, view, kind=kind, changed=changed)
        catalogue.views[name.lower()] = replace(view, columns=columns)
        if name.lower() != changed.lower() and columns != view.columns:
            refresh_views(catalogue, "VIEW", name)


def _reachable(catalogue: Catalogue, query: str) -> set[str]:
    """Views that a query leads to, in lower case."""
    waiting = [query]
    found: set[str] = set()
    while waiting:
        for name in object_names(waiting.pop(), catalogue.dialect) - found:
            view = catalogue.views.get(name)
            if view is not None:
                found.add(name)
                waiting.append(view.query)
    return found


def drop_view(catalogue: Catalogue, statement: ddl.DropView) -> None:
    """Remove a view that no other view is made of."""
    if statement.if_exists and statement.name.lower() not in catalogue.views:
        return
    view = catalogue.view(statement.name)
    check_no_views(catalogue, "VIEW", view.name)
    del catalogue.views[view.name.lower()]


def create_schema(catalogue: Catalogue, statement: ddl.CreateSchema) -> None:
    """Make a named schema."""
    if statement.if_not_exists and statement.name.lower() in catalogue.schemas:
        return
    catalogue.check_new_name("Schema", statement.name)
    catalogue.schemas[statement.name.lower()] = statement.name


def drop_schema(catalogue: Catalogue, statement: ddl.DropSchema) -> None:
    """Remove a named schema that is empty."""
    name = catalogue.schemas.get(statement.name.lower())
    if name is None:
        if statement.if_exists:
            return
        raise SpannerError(Code.NOT_FOUND, f"Schema not found: {statement.name}")
    inside = [
        (kind, [one.name for one in owned.values() if _is_inside(one.name, name)])
        for kind, owned in (
            ("tables", catalogue.tables),
            ("views", catalogue.views),
            ("indexes", catalogue.indexes),
        )
    ]
    lines = [f"\nDependent {kind}:{', '.join(names)}" for kind, names in inside if names]
    if lines:
        raise _refused(f"Cannot drop schema {name} while it has dependencies.{''.join(lines)}")
    del catalogue.schemas[name.lower()]


def _is_inside(name: str, schema: str) -> bool:
    return name.rpartition(".")[0].lower() == schema.lower()
