"""The catalogue as DDL, in the form that GetDatabaseDdl prints, in the database's dialect.

The order makes the schema again when the statements are run one after the other: a foreign key to
a table that was made later comes as ALTER TABLE at the end of the tables.
"""

from __future__ import annotations

from typing import Final

from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.definitions import ForeignKey
from spanner_simulator.core.schema.expression_names import object_names
from spanner_simulator.core.schema.google_text import GoogleText
from spanner_simulator.core.schema.object_text import ObjectText
from spanner_simulator.core.schema.postgres_text import PostgresText
from spanner_simulator.core.schema.schema_objects import Table, View
from spanner_simulator.core.values import Dialect

_PRINTERS: Final[dict[Dialect, ObjectText]] = {
    "GOOGLE_STANDARD_SQL": GoogleText(),
    "POSTGRESQL": PostgresText(),
}


def catalogue_ddl(catalogue: Catalogue) -> list[str]:
    """Statements that would make this schema again, in an order that works."""
    text = _PRINTERS[catalogue.dialect]
    late = {table.name: _late_keys(catalogue, table) for table in catalogue.tables.values()}
    tables: list[str] = []
    for table in catalogue.tables.values():
        tables.append(text.table(table, without=late[table.name]))
        tables += [text.index(index) for index in catalogue.indexes_of(table.name)]
    return [
        *text.database_options(catalogue.database_name, catalogue.options),
        *text.proto_bundle(list(catalogue.proto_types)),
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
