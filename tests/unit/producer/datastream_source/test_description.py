"""The catalogue of a source of files."""

import pytest

from tidegate.producer.datastream_source.description import FILES_DIALECT, FilesCatalogue
from tidegate.producer.translation.beside_tables import BesideCatalogue
from tidegate.schemas.errors import SchemaError


def test_it_takes_every_table_and_knows_none():
    found = FilesCatalogue().describe("files")
    assert (found.name, found.dialect, found.exists) == ("files", FILES_DIALECT, True)
    assert found.watches_all
    assert found.tables == found.filters == ()
    assert not found.has_key_moves
    assert FilesCatalogue().table("shop.orders", stream="files") is None


def test_a_table_that_is_named_as_rows_on_demand_are_is_refused():
    catalogue = BesideCatalogue(FilesCatalogue())
    with pytest.raises(SchemaError, match="orders__backfill") as raised:
        catalogue.table("shop.orders__backfill", stream="files")
    assert "tables_left_out" in raised.value.hint
