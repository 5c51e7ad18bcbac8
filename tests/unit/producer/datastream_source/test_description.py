"""The catalogue of a source of files."""

from tidegate.producer.datastream_source.description import FILES_DIALECT, FilesCatalogue


def test_it_takes_every_table_and_knows_none():
    found = FilesCatalogue().describe("files")
    assert (found.name, found.dialect, found.exists) == ("files", FILES_DIALECT, True)
    assert found.watches_all
    assert found.tables == found.filters == ()
    assert not found.has_key_moves
    assert FilesCatalogue().table("shop.orders", stream="files") is None
