"""How a table's columns grow, and what must not change."""

import copy
import io

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.producer.errors import IncompatibleChange
from tidegate.producer.records import RecordColumn
from tidegate.producer.translation.table_evolution import evolve, grown
from tidegate.schemas.change_schema import (
    excludes,
    row_fields,
    unwatched_columns,
    value_schema,
)
from tidegate.schemas.tables import Column, ColumnType, TableSchema

INT64, STRING = ColumnType("INT64"), ColumnType("STRING")


def table(*columns):
    return TableSchema("t", (Column("id", INT64, 1, key_position=1), *columns))


def names(schema):
    return [column.name for column in schema.columns]


@pytest.mark.rule("spanner-column-types")
def test_a_new_column_is_added_in_its_place():
    known = table(Column("c", INT64, 3))
    current = table(Column("b", STRING, 2), Column("c", INT64, 3))
    grown = evolve(known, current, (), table="t")
    assert names(grown) == ["id", "b", "c"]


def test_a_dropped_column_stays_and_the_living_one_with_its_ordinal_comes_first():
    known = table(Column("dropped", STRING, 2))
    current = table(Column("living", INT64, 2))
    assert names(evolve(known, current, (), table="t")) == ["id", "living", "dropped"]


def test_a_column_that_only_a_record_shows_is_kept():
    shown = (RecordColumn("id", INT64, True, 1), RecordColumn("gone", STRING, False, 2))
    grown = evolve(None, table(), shown, table="t")
    assert names(grown) == ["id", "gone"]
    assert grown.columns[1] == Column("gone", STRING, 2)


def test_the_catalogues_type_holds():
    known, current = table(Column("c", STRING, 2)), table(Column("c", ColumnType("BYTES"), 2))
    assert evolve(known, current, (), table="t").columns[1].type == ColumnType("BYTES")


def test_what_a_stream_has_left_out_stays_left_out():
    known = TableSchema("t", table(Column("c", STRING, 2)).columns, excludes=("exclude_delete",))
    current = TableSchema("t", known.columns, excludes=("exclude_insert",))
    assert evolve(known, current, (), table="t").excludes == ("exclude_delete", "exclude_insert")
    hidden = table(Column("c", STRING, 2, is_watched=False))
    versions = [value_schema("p.t", known), value_schema("p.t", hidden)]
    schema = grown(value_schema("p.t", table(Column("c", STRING, 2))), versions, table="t")
    assert excludes((schema,)) == ("exclude_delete",)
    assert unwatched_columns((schema,)) == {"c"}
    own = value_schema("p.t", hidden)
    assert unwatched_columns((grown(own, versions[:1], table="t"),)) == {"c"}


def test_a_stream_that_leaves_nothing_out_has_the_value_schema_of_before():
    schema = value_schema("p.t", table(Column("c", STRING, 2)))
    assert "excludes" not in schema
    assert all(set(field) == {"name", "type", "default"} for field in row_fields(schema).values())
    assert grown(schema, [schema], table="t") == schema


def test_a_dropped_table_is_returned_as_it_was_known():
    known = table(Column("c", STRING, 2))
    assert evolve(known, None, (), table="t") == known


def test_an_unknown_table_is_what_a_record_shows():
    shown = (
        RecordColumn("b", INT64, True, 2),
        RecordColumn("c", STRING, False, 3),
        RecordColumn("a", INT64, True, 1),
    )
    by_ordinal = evolve(None, None, shown, table="t")
    by_registered = evolve(None, None, shown, table="t", key_names=("b", "a"))
    of_another = evolve(None, None, shown, table="t", key_names=("b", "x"))

    assert names(by_ordinal) == names(by_registered) == ["a", "b", "c"]
    assert [column.name for column in by_ordinal.key_columns] == ["a", "b"]
    assert [column.name for column in by_registered.key_columns] == ["b", "a"]
    assert of_another == by_ordinal


def test_a_records_primary_key_that_is_not_the_tables_is_refused():
    """A table was dropped and created again with another key: its old records have no place."""
    for column in (Column("c", INT64, 2), Column("other", INT64, 2)):
        shown = (RecordColumn("c", INT64, True, 2),)
        with pytest.raises(IncompatibleChange, match="primary key"):
            evolve(None, table(column), shown, table="t")


def test_another_primary_key_is_refused():
    other = TableSchema("t", (Column("id", STRING, 1, key_position=1),))
    with pytest.raises(IncompatibleChange, match="primary key"):
        evolve(table(), other, (), table="t")


TYPES = st.sampled_from([INT64, STRING, ColumnType("BYTES")])
COLUMN_NAMES = st.sampled_from("abcdef")
COLUMNS = st.dictionaries(COLUMN_NAMES, st.tuples(TYPES, st.integers(2, 6)), max_size=5).map(
    lambda found: [Column(name, *rest) for name, rest in found.items()]
)
TABLES = COLUMNS.map(lambda columns: table(*sorted(columns, key=lambda c: c.ordinal)))
SHOWN = COLUMNS.map(
    lambda columns: tuple(RecordColumn(c.name, c.type, False, c.ordinal) for c in columns)
)


@given(st.none() | TABLES, TABLES, SHOWN)
def test_nothing_that_anybody_knows_is_left_out(known, current, shown):
    grown = evolve(known, current, shown, table="t")
    everybody = {c.name for one in (known, current) if one for c in one.columns}
    assert sorted(names(grown)) == sorted(everybody | {column.name for column in shown})
    assert [column.ordinal for column in grown.columns] == sorted(
        column.ordinal for column in grown.columns
    )
    assert grown.key_columns == current.key_columns
    assert set(current.columns) <= set(grown.columns)


@given(TABLES, TABLES, SHOWN)
def test_growing_again_changes_nothing(known, current, shown):
    grown = evolve(known, current, shown, table="t")
    assert evolve(grown, current, shown, table="t") == grown
    assert evolve(grown, grown, (), table="t") == grown
    assert set(evolve(grown, None, (), table="t").columns) == set(grown.columns)


@given(TABLES, SHOWN)
def test_a_grown_value_schema_reads_what_the_older_one_wrote(current, shown):
    """BACKWARD: fastavro resolves every record of the old version with the new one."""
    grown = evolve(current, current, shown, table="t")
    source = {field["name"]: 1 for field in value_schema("p.t", current)["fields"][5]["type"][
        "fields"]}  # fmt: skip
    old, new = (fastavro.parse_schema(copy.deepcopy(value_schema("p.t", one)))
                for one in (current, grown))  # fmt: skip
    texts = {"server_transaction_id", "record_sequence", "transaction_tag", "value_capture_type",
             "change_stream", "partition_token"}  # fmt: skip
    written = {"mod_type": "INSERT", "new_values": {"id": 7},
               "source": {k: "x" if k in texts else v for k, v in source.items()}}  # fmt: skip
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, old, written)
    buffer.seek(0)
    row = fastavro.schemaless_reader(buffer, old, new)["new_values"]
    assert row == {**dict.fromkeys(names(grown)), "id": 7}
