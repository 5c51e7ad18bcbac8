"""The fields behind a flat value's columns, and the names that columns cannot have."""

from __future__ import annotations

import fastavro
import pytest

from tidegate.schemas.change_schema import (
    excludes,
    row_fields,
    unwatched_columns,
    value_schema,
    with_row,
    without,
)
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.flat_schema import FLAT_FIELDS, is_flat, reserved_names
from tidegate.schemas.output_form import Envelope
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.tables import Column, ColumnType, TableSchema

INT64 = ColumnType("INT64")


def table(*names, **options):
    columns = (Column("id", INT64, 1, key_position=1),)
    more = (Column(name, INT64, number) for number, name in enumerate(names, 2))
    return TableSchema("t", (*columns, *more), **options)


def flat(*names, **options):
    return value_schema("p.t", table(*names, **options), TimestampForm.MICROS, Envelope.FLAT)


def test_a_row_stands_before_the_fields_of_the_change():
    schema = flat("new_values", "source", excludes=("exclude_delete",))
    assert is_flat(schema)
    assert not is_flat(value_schema("p.t", table("__op")))
    names = [field["name"] for field in fastavro.parse_schema(schema)["fields"]]
    assert names == ["id", "new_values", "source", *(field["name"] for field in FLAT_FIELDS)]
    assert excludes([schema]) == ("exclude_delete",)
    assert list(row_fields(schema)) == ["id", "new_values", "source"]


def test_what_is_left_out_stands_at_its_column():
    schema = without(flat("a", "b"), {"a"})
    assert unwatched_columns([schema, flat("b")]) == {"a"}
    assert schema["fields"][3:] == list(FLAT_FIELDS)
    assert with_row(flat("a"), row_fields(schema)) == schema


@pytest.mark.parametrize("name", ["__op", "__columns", "__", "__anything"])
def test_a_column_with_a_name_of_the_envelope_is_refused(name):
    assert reserved_names(["a", name, "_x", "x__y"]) == [name]
    with pytest.raises(SchemaError, match="a flat value cannot have a column") as caught:
        flat(name)
    assert caught.value.fields == {"table": "t", "column": name}
    assert "columns_left_out" in (caught.value.hint or "")


def test_each_field_has_a_reserved_name():
    names = [field["name"] for field in FLAT_FIELDS]
    assert reserved_names(names) == names
