"""The catalogue as DDL, in the form that GetDatabaseDdl prints, in the database's dialect.

The order makes the schema again when the statements are run one after the other: a foreign key to
a table that was made later comes as ALTER TABLE at the end of the tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidegate.spanner_simulator.core.schema import google_text, postgres_text
from tidegate.spanner_simulator.core.schema.expression_names import object_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidegate.spanner_simulator.core.schema.catalogue import Catalogue
    from tidegate.spanner_simulator.core.schema.schema_objects import (
        ChangeStream,
        ForeignKey,
        Index,
        Role,
        Table,
        View,
    )
    from tidegate.spanner_simulator.core.schema.statements import OptionValue

__all__ = ["catalogue_ddl"]


class _Text(Protocol):
    """What the printing module of a dialect has."""

    def database_options(self, name: str, options: Mapping[str, OptionValue]) -> list[str]: ...
    def schema(self, name: str) -> str: ...
    def table(self, one: Table, *, without: Sequence[ForeignKey] = ()) -> str: ...
    def index(self, one: Index) -> str: ...
    def foreign_key(self, table_name: str, key: ForeignKey) -> str: ...
    def view(self, one: View) -> str: ...
    def stream(self, one: ChangeStream) -> str: ...
    def roles(self, all_roles: Mapping[str, Role]) -> list[str]: ...


def catalogue_ddl(catalogue: Catalogue) -> list[str]:
    """Statements that would make this schema again, in an order that works."""
    text: _Text = google_text if catalogue.dialect == "GOOGLE_STANDARD_SQL" else postgres_text
    late = {table.name: _late_keys(catalogue, table) for table in catalogue.tables.values()}
    tables: list[str] = []
    for table in catalogue.tables.values():
        tables.append(text.table(table, without=late[table.name]))
        tables += [text.index(index) for index in catalogue.indexes_of(table.name)]
    return [
        *text.database_options(catalogue.database_name, catalogue.options),
        # Only GoogleSQL has one.
        *google_text.proto_bundle(list(catalogue.proto_types)),
        *(text.schema(name) for name in catalogue.schemas.values()),
        *tables,
        *(text.foreign_key(name, key) for name, keys in late.items() for key in keys),
        *(text.view(view) for view in _views_in_order(catalogue)),
        *(text.stream(stream) for stream in catalogue.streams.values()),
        *text.roles(catalogue.roles),
    ]


def _late_keys(catalogue: Catalogue, table: Table) -> tuple[ForeignKey, ...]:
    """Foreign keys to tables that are printed after this one."""
    order = list(catalogue.tables)
    here = order.index(table.name.lower())
    return tuple(
        key for key in table.foreign_keys if order.index(key.referenced_table.lower()) > here
    )


def _views_in_order(catalogue: Catalogue) -> list[View]:
    """Each view after those that it is made of."""
    ordered: list[View] = []
    # Words may seem to make a circle of views, as where a common table expression has the name of
    # one, though there is none.
    seen: set[str] = set()

    def add(view: View) -> None:
        if view.name in seen:
            return
        seen.add(view.name)
        for name in sorted(object_names(view.query, catalogue.dialect)):
            other = catalogue.views.get(name)
            if other is not None:
                add(other)
        ordered.append(view)

    for view in catalogue.views.values():
        add(view)
    return ordered
