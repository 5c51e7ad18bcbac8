"""How a table's columns grow; tables under a second name; what is left out of a stream."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.producer.test_description import GOOD
from tests.unit.producer.test_record_filter import TABLE, record
from tests.unit.producer.translation.translation_building import INT64, STRING
from tidegate.producer.description import check_stream
from tidegate.producer.errors import IncompatibleChange
from tidegate.producer.record_filter import RecordFilter
from tidegate.producer.records import RecordColumn
from tidegate.producer.translation.catalogues import (
    BesideCatalogue,
    FilteredCatalogue,
    require_other_names,
)
from tidegate.producer.translation.pipeline import TranslationPipeline
from tidegate.producer.translation.table_evolution import evolve, grown
from tidegate.schemas.change_schema import (
    excludes,
    row_fields,
    unwatched_columns,
    value_schema,
)
from tidegate.schemas.errors import ConfigError, SchemaError
from tidegate.schemas.tables import Column, ColumnType, TableSchema

BYTES = ColumnType("BYTES")


def table(*columns):
    return TableSchema("t", (Column("id", INT64, 1, key_position=1), *columns))


def names(schema):
    return [column.name for column in schema.columns]


def evolved(known, current, shown=(), **options):
    return evolve(known, current, shown, table="t", **options)


@pytest.mark.rule("spanner-column-types")
@pytest.mark.parametrize(
    ("known", "current", "expected"),
    [
        (table(Column("c", INT64, 3)), table(Column("b", STRING, 2), Column("c", INT64, 3)), "b c"),
        # A dropped column stays, after the living one with its ordinal.
        (table(Column("dropped", STRING, 2)), table(Column("living", INT64, 2)), "living dropped"),
        (table(Column("c", STRING, 2)), None, "c"),
    ],
)
def test_a_new_column_is_added_in_its_place(known, current, expected):
    assert names(evolved(known, current)) == ["id", *expected.split()]


def test_a_column_that_only_a_record_shows_is_kept_and_the_catalogues_type_holds():
    shown = (RecordColumn("id", INT64, True, 1), RecordColumn("gone", STRING, False, 2))
    assert evolved(None, table(), shown).columns[1] == Column("gone", STRING, 2)
    known, current = table(Column("c", STRING, 2)), table(Column("c", BYTES, 2))
    assert evolved(known, current).columns[1].type == BYTES


def test_what_a_stream_has_left_out_stays_left_out():
    watching = table(Column("c", STRING, 2))
    known = replace(watching, excludes=("exclude_delete",))
    current = replace(watching, excludes=("exclude_insert",))
    assert evolved(known, current).excludes == ("exclude_delete", "exclude_insert")
    hidden = table(Column("c", STRING, 2, is_watched=False))
    versions = [value_schema("p.t", known), value_schema("p.t", hidden)]
    schema = grown(value_schema("p.t", watching), versions, table="t")
    assert excludes((schema,)) == ("exclude_delete",)
    assert unwatched_columns((schema,)) == {"c"}
    assert unwatched_columns((grown(versions[1], versions[:1], table="t"),)) == {"c"}
    # One that leaves nothing out has the value schema of before.
    schema = value_schema("p.t", watching)
    assert "excludes" not in schema
    assert all(set(field) == {"name", "type", "default"} for field in row_fields(schema).values())
    assert grown(schema, [schema], table="t") == schema


def test_an_unknown_table_is_what_a_record_shows():
    shown = (RecordColumn("b", INT64, True, 2), RecordColumn("c", STRING, False, 3),
             RecordColumn("a", INT64, True, 1))  # fmt: skip
    for key_names, expected in (((), "ab"), (("b", "a"), "ba"), (("b", "x"), "ab")):
        evolved_table = evolved(None, None, shown, key_names=key_names)
        assert names(evolved_table) == ["a", "b", "c"]
        assert [column.name for column in evolved_table.key_columns] == [*expected]


def test_another_primary_key_is_refused():
    with pytest.raises(IncompatibleChange, match="primary key"):
        evolved(table(), TableSchema("t", (Column("id", STRING, 1, key_position=1),)))
    # A table was dropped and created again with another key: its old records have no place.
    for column in (Column("c", INT64, 2), Column("other", INT64, 2)):
        with pytest.raises(IncompatibleChange, match="primary key"):
            evolved(None, table(column), (RecordColumn("c", INT64, True, 2),))


TYPES = st.sampled_from([INT64, STRING, BYTES])
COLUMNS = st.dictionaries(
    st.sampled_from("abcdef"), st.tuples(TYPES, st.integers(2, 6)), max_size=5
).map(lambda found: [Column(name, *rest) for name, rest in found.items()])
TABLES = COLUMNS.map(lambda columns: table(*sorted(columns, key=lambda c: c.ordinal)))
SHOWN = COLUMNS.map(
    lambda columns: tuple(RecordColumn(c.name, c.type, False, c.ordinal) for c in columns)
)


@given(st.none() | TABLES, TABLES, SHOWN)
def test_nothing_that_anybody_knows_is_left_out(known, current, shown):
    evolved_table = evolved(known, current, shown)
    everybody = {c.name for one in (known, current) if one for c in one.columns}
    assert sorted(names(evolved_table)) == sorted(everybody | {column.name for column in shown})
    ordinals = [column.ordinal for column in evolved_table.columns]
    assert ordinals == sorted(ordinals)
    assert evolved_table.key_columns == current.key_columns
    assert set(current.columns) <= set(evolved_table.columns)
    # Growing again changes nothing.
    assert (
        evolved(evolved_table, current, shown)
        == evolved(evolved_table, evolved_table)
        == evolved_table
    )
    assert set(evolved(evolved_table, None).columns) == set(evolved_table.columns)


class Inner:
    def translate(self, record, *, token):
        return record, token


def filtering(chosen):
    return TranslationPipeline(Inner(), Inner(), record_filter=chosen)


class Catalogue:
    def __init__(self, *tables, watches_all=False):
        described_tables = tuple(
            replace(TABLE, name=t) if isinstance(t, str) else t for t in tables
        )
        self.described = replace(GOOD, tables=described_tables, watches_all=watches_all)

    def describe(self, _stream):
        return self.described

    def table(self, name, *, stream, read_ns=None):
        assert stream == "s"
        return next((table for table in self.described.tables if table.name == name), None)


def filtered(catalogue, chosen, **options):
    return FilteredCatalogue(catalogue, chosen, **options).describe("s").tables


@pytest.mark.parametrize("method", ["translate", "translate_now"])
def test_what_is_left_out_is_neither_translated_nor_uncounted(method):
    whole = record()._replace(mods=record().mods * 3)
    translate = getattr(filtering(RecordFilter(mod_types=("INSERT",))), method)
    translated = translate(whole, token="t")
    assert (translated.messages, translated.parked, translated.filtered) == ((), (), 3)
    assert (translated.commit_timestamp_us, translated.server_transaction_id) == (5, "tx")
    assert translated.record_sequence == "0"
    translate = getattr(filtering(RecordFilter(columns_left_out=("*.b",))), method)
    translated, token = translate(record(), token="t")
    assert (token, [column.name for column in translated.columns]) == ("t", ["id", "a"])


def test_the_catalogue_holds_what_is_published():
    chosen = RecordFilter(tables=("a*",), columns_left_out=("ab.b",))
    catalogue = FilteredCatalogue(Catalogue("a", "ab", "c"), chosen)
    tables = catalogue.describe("s").tables
    assert [(table.name, len(table.columns)) for table in tables] == [("a", 3), ("ab", 2)]
    assert len(catalogue.table("ab", stream="s").columns) == 2
    assert catalogue.table("none", stream="s") is None


@pytest.mark.parametrize(
    ("options", "refused", "watches_all"),
    [
        ({"columns_left_out": ("ab.emial",)}, r"columns_left_out: ab\.emial.*watches a, ab", True),
        ({"tables": ("a", "Orders")}, "tables: Orders", True),
        ({"tables": ("Orders*",)}, r"leaves out every table.*It watches a, ab", False),
    ],
)
def test_a_new_stream_watches_what_its_filter_names(options, refused, watches_all):
    chosen, catalogue = RecordFilter(**options), Catalogue("a", "ab", watches_all=watches_all)
    with pytest.raises(ConfigError, match=refused):
        filtered(catalogue, chosen, is_new=True)
    # What a stream that has begun does not watch may have been dropped, with records to be read.
    assert bool(filtered(catalogue, chosen)) == watches_all
    # One that watches all of them waits for a later one.
    later = RecordFilter(tables=("Orders*",))
    assert filtered(Catalogue("a", watches_all=True), later, is_new=True) == ()


def test_a_later_table_whose_key_is_left_out_concerns_only_itself():
    chosen, later = RecordFilter(columns_left_out=("later.id",)), Catalogue("a", "later")
    text = "id of later is in the primary key"
    with pytest.raises(ConfigError, match=text):
        filtered(later, chosen, is_new=True)
    assert [table.name for table in filtered(later, chosen)] == ["a"]
    with pytest.raises(SchemaError, match=text):
        FilteredCatalogue(later, chosen).table("later", stream="s")
    translator = filtering(chosen)
    for translate in (translator.translate, translator.translate_now):
        with pytest.raises(SchemaError, match=text):
            translate(record(table_name="later"), token="t")


def test_a_column_that_cannot_be_published_is_left_out_as_the_error_says():
    odd = replace(TABLE.columns[1], name="odd", type=ColumnType("RANGE<DATE>"), ordinal=9)
    umlaut = replace(odd, name="größe", type=TABLE.columns[1].type, ordinal=10)
    twin = replace(umlaut, name="A", ordinal=11)
    for wrong in (odd, umlaut, twin):
        tables = Catalogue(replace(TABLE, name="a", columns=(*TABLE.columns, wrong)), "other")
        with pytest.raises(ConfigError, match=wrong.name) as caught:
            check_stream(tables.describe("s"))
        assert "columns_left_out" in str(caught.value) or wrong is umlaut
        remedies = [RecordFilter(tables_left_out=("a",)), RecordFilter(tables=("other",))]
        if wrong is not twin:  # names in settings have no case: both are left out
            remedies.append(RecordFilter(columns_left_out=(f"a.{wrong.name}",)))
        for remedy in remedies:
            check_stream(FilteredCatalogue(tables, remedy, is_new=True).describe("s"))


ITEMS = replace(TABLE, name="Sales.Items")
NAMED_SO = replace(TABLE, name="Items__backfill")


def test_a_table_is_found_under_both_names():
    catalogue = BesideCatalogue(Catalogue(ITEMS))
    table = catalogue.table("Sales.Items__backfill", stream="s")
    assert table == replace(ITEMS, name="Sales.Items__backfill")
    assert catalogue.table("Sales.Items", stream="s") is ITEMS
    assert catalogue.table("Gone", stream="s") is None
    assert catalogue.table("Gone__backfill", stream="s") is None
    assert catalogue.describe("s").tables == (ITEMS,)


def test_no_table_may_have_the_second_name():
    catalogue = BesideCatalogue(Catalogue(NAMED_SO, "Items"))
    with pytest.raises(SchemaError, match="Items__backfill: its topic would be that of rows"):
        catalogue.table("Items__backfill", stream="s")
    require_other_names([ITEMS])
    with pytest.raises(ConfigError, match="table Items__backfill") as caught:
        require_other_names([ITEMS, NAMED_SO])
    assert "tables_left_out" in caught.value.hint
