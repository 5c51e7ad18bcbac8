"""A table is found under two names, and no table of the database may have the second one."""

from dataclasses import replace

import pytest

from tidegate.producer.translation.beside_tables import BesideCatalogue, require_other_names
from tidegate.schemas.errors import ConfigError, SchemaError
from tidegate.schemas.tables import Column, ColumnType, TableSchema

TABLE = TableSchema("Sales.Items", (Column("Id", ColumnType("INT64"), 1, 1),))
NAMED_SO = replace(TABLE, name="Items__backfill")


class Catalogue:
    """Knows these tables."""

    def __init__(self, *tables):
        self._tables = {table.name: table for table in tables}

    def describe(self, stream):
        return stream, tuple(self._tables)

    def table(self, name, *, stream, read_ns=None):
        assert stream == "Feed"
        return self._tables.get(name)


def test_a_table_is_found_under_both_names():
    catalogue = BesideCatalogue(Catalogue(TABLE))
    found = catalogue.table("Sales.Items__backfill", stream="Feed")

    assert found == replace(TABLE, name="Sales.Items__backfill")
    assert catalogue.table("Sales.Items", stream="Feed") is TABLE
    assert catalogue.table("Gone", stream="Feed") is None
    assert catalogue.table("Gone__backfill", stream="Feed") is None
    assert catalogue.describe("Feed") == ("Feed", ("Sales.Items",))


def test_changes_of_a_table_that_is_named_so_are_not_taken_for_rows_of_another():
    catalogue = BesideCatalogue(Catalogue(NAMED_SO, replace(TABLE, name="Items")))
    with pytest.raises(SchemaError, match="Items__backfill: its topic would be that of rows"):
        catalogue.table("Items__backfill", stream="Feed")


def test_a_worker_does_not_start_with_such_a_table():
    require_other_names([TABLE])
    with pytest.raises(ConfigError, match="table Items__backfill") as caught:
        require_other_names([TABLE, NAMED_SO])
    assert "tables_left_out" in caught.value.hint
