"""Rules for secondary indexes. Their rows are the caller's: an `Index` says what they hold."""

from __future__ import annotations

from dataclasses import replace

from spanner_simulator.core.schema import statements as ddl
from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.refusals import invalid, refused, type_name
from spanner_simulator.core.schema.schema_objects import Index, Table


def create_index(catalogue: Catalogue, statement: ddl.CreateIndex) -> None:
    """Define an index; filling it, and refusing rows that are not unique, is the caller's."""
    schema = statement.table.rpartition(".")[0]
    if catalogue.dialect == "POSTGRESQL" and schema and "." not in statement.name:
        statement = replace(statement, name=f"{schema}.{statement.name}")
    name = statement.name
    if statement.if_not_exists and name.lower() in catalogue.indexes:
        return
    catalogue.check_new_name("Index", name)
    table = catalogue.table(statement.table)
    if name.rpartition(".")[0].lower() != table.name.rpartition(".")[0].lower():
        raise refused(f"Index {name} does not match the schema of the indexed table {table.name}.")
    if not statement.key:
        raise invalid(f"Index {name} does not specify any key columns.")
    named = [_column(name, table, one) for one in (*_names(statement), *statement.storing)]
    for position, column in enumerate(named):
        if column in named[:position]:
            raise invalid(f"Index {name} specifies key column {column.name} twice.")
    keys, stored = named[: len(statement.key)], named[len(statement.key) :]
    for column in keys:
        if not column.value_type.is_key_type:
            raise refused(
                f"Cannot reference {type_name(column.value_type, element=False)} {column.name} in "
                f"the creation of index {name}."
            )
    for column in stored:
        if column.name in table.key_names:
            raise refused(
                f"Index {name} specifies stored column {column.name} which is a key of table "
                f"{table.name}."
            )
    catalogue.indexes[name.lower()] = Index(
        name,
        table.name,
        tuple(
            replace(part, name=column.name)
            for part, column in zip(statement.key, keys, strict=True)
        ),
        tuple(column.name for column in stored),
        statement.is_unique,
        statement.is_null_filtered,
    )


def _names(statement: ddl.CreateIndex) -> list[str]:
    return [part.name for part in statement.key]


def _column(index: str, table: Table, name: str) -> ddl.ColumnDefinition:
    column = table.by_name.get(name.lower())
    if column is None:
        raise invalid(
            f"Index {index} specifies key column {name} which does not exist in the index's base "
            "table."
        )
    return column
