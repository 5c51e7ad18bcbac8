"""How a table's columns grow, and what must not change."""

import pytest

from tidegate.producer.core.table_evolution import evolve
from tidegate.producer.errors import IncompatibleChange
from tidegate.producer.spanner_records import RecordColumn
from tidegate.schemas.tables import Column, ColumnType, TableSchema

INT64, STRING = ColumnType("INT64"), ColumnType("STRING")


def table(*columns):
    return TableSchema("t", (Column("id", INT64, 1, key_position=1), *columns))


def names(schema):
    return [column.name for column in schema.columns]


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


def test_a_dropped_table_is_told_as_it_was_known():
    known = table(Column("c", STRING, 2))
    assert evolve(known, None, (), table="t") == known


def test_a_table_that_nobody_knows_is_refused():
    with pytest.raises(IncompatibleChange, match="dropped"):
        evolve(None, None, (), table="t")


def test_another_primary_key_is_refused():
    other = TableSchema("t", (Column("id", STRING, 1, key_position=1),))
    with pytest.raises(IncompatibleChange, match="primary key"):
        evolve(table(), other, (), table="t")
