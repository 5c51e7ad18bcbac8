"""What is left out reaches neither translator nor registry, and is counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.producer.test_description import GOOD
from tests.unit.producer.test_record_filter import TABLE, record
from tidegate.producer.description import check_stream
from tidegate.producer.record_filter import RecordFilter
from tidegate.producer.translation.filtering import FilteredCatalogue, FilteringTranslator
from tidegate.schemas.errors import ConfigError, SchemaError
from tidegate.schemas.tables import ColumnType


class Inner:
    """Returns what it is given."""

    def translate(self, record, *, token):
        return record, token

    translate_now = translate


@pytest.mark.parametrize("method", ["translate", "translate_now"])
def test_what_is_left_out_is_a_record_without_messages(method):
    translator = FilteringTranslator(Inner(), RecordFilter(mod_types=("INSERT",)))
    whole = record()
    found = getattr(translator, method)(whole._replace(mods=whole.mods * 3), token="t")
    assert (found.messages, found.parked, found.filtered) == ((), (), 3)
    assert (found.commit_timestamp_us, found.server_transaction_id) == (5, "tx")
    assert found.record_sequence == "0"


@pytest.mark.parametrize("method", ["translate", "translate_now"])
def test_all_else_is_translated_without_the_columns_that_are_left_out(method):
    translator = FilteringTranslator(Inner(), RecordFilter(columns_left_out=("*.b",)))
    found, token = getattr(translator, method)(record(), token="t")
    assert (token, [column.name for column in found.columns]) == ("t", ["id", "a"])


class Catalogue:
    def __init__(self, *names, watches_all=False):
        tables = tuple(replace(TABLE, name=name) for name in names)
        self.described = replace(GOOD, tables=tables, watches_all=watches_all)

    def describe(self, _stream):
        return self.described

    def table(self, name, *, stream, read_ns=None):
        return next((table for table in self.described.tables if table.name == name), None)


def test_the_catalogue_holds_what_is_published():
    chosen = RecordFilter(tables=("a*",), columns_left_out=("ab.b",))
    catalogue = FilteredCatalogue(Catalogue("a", "ab", "c"), chosen)
    tables = catalogue.describe("s").tables
    assert [table.name for table in tables] == ["a", "ab"]
    assert [len(table.columns) for table in tables] == [3, 2]
    assert len(catalogue.table("ab", stream="s").columns) == 2
    assert catalogue.table("none", stream="s") is None


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"columns_left_out": ("ab.emial",)}, r"columns_left_out: ab\.emial.*watches a, ab"),
        ({"tables": ("a", "Orders")}, "tables: Orders"),
    ],
)
def test_a_new_stream_watches_what_its_filter_names(options, refused):
    tables = Catalogue("a", "ab", watches_all=True)
    with pytest.raises(ConfigError, match=refused):
        FilteredCatalogue(tables, RecordFilter(**options), is_new=True).describe("s")
    # What a stream that has begun does not watch may have been dropped.
    assert FilteredCatalogue(tables, RecordFilter(**options)).describe("s").tables


def test_a_filter_that_leaves_no_table_is_refused():
    chosen = RecordFilter(tables=("Orders*",))
    with pytest.raises(ConfigError, match=r"leaves out every table.*It watches a, b"):
        FilteredCatalogue(Catalogue("a", "b"), chosen, is_new=True).describe("s")
    # The table may have been dropped, and its records are still to be read.
    assert FilteredCatalogue(Catalogue("a", "b"), chosen).describe("s").tables == ()
    # A later table of a stream that watches all may be one of them.
    assert FilteredCatalogue(Catalogue("a", watches_all=True), chosen).describe("s").tables == ()


def test_a_later_table_whose_key_is_left_out_concerns_only_itself():
    chosen = RecordFilter(columns_left_out=("later.id",))
    later = Catalogue("a", "later")
    with pytest.raises(ConfigError, match="id of later is in the primary key"):
        FilteredCatalogue(later, chosen, is_new=True).describe("s")
    found = FilteredCatalogue(later, chosen)
    assert [table.name for table in found.describe("s").tables] == ["a"]
    with pytest.raises(SchemaError, match="id of later is in the primary key"):
        found.table("later", stream="s")
    for method in ("translate", "translate_now"):
        with pytest.raises(SchemaError, match="id of later is in the primary key"):
            getattr(FilteringTranslator(Inner(), chosen), method)(
                record(table_name="later"), token="t"
            )


def test_a_column_that_cannot_be_published_is_left_out_as_the_error_says():
    odd = replace(TABLE.columns[1], name="odd", type=ColumnType("RANGE<DATE>"), ordinal=9)
    umlaut = replace(odd, name="größe", type=TABLE.columns[1].type, ordinal=10)
    twin = replace(umlaut, name="A", ordinal=11)
    tables = Catalogue("a", "other")
    for wrong in (odd, umlaut, twin):
        table = replace(TABLE, name="a", columns=(*TABLE.columns, wrong))
        tables.described = replace(tables.described, tables=(table,))
        with pytest.raises(ConfigError, match=wrong.name) as caught:
            check_stream(tables.describe("s"))
        assert "columns_left_out" in str(caught.value) or wrong is umlaut
        remedy = RecordFilter(columns_left_out=(f"a.{wrong.name}",))
        if wrong is not twin:  # names in settings have no case: both are left out
            check_stream(FilteredCatalogue(tables, remedy, is_new=True).describe("s"))
    for remedy in (RecordFilter(tables_left_out=("a",)), RecordFilter(tables=("other",))):
        both = (*tables.described.tables, replace(TABLE, name="other"))
        tables.described = replace(tables.described, tables=both)
        check_stream(FilteredCatalogue(tables, remedy, is_new=True).describe("s"))
