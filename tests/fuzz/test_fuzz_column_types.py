"""Column types, in the catalogue's notation and in a record's: a type, or a SchemaError."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.producer.translation.values import converter
from tidegate.schemas.change_schema import avro_type, key_schema, value_schema
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.tables import Column, ColumnType, TableSchema

WORDS = st.sampled_from(["ARRAY", "<", ">", "(", ")", "MAX", "STRING", "INT64", "PROTO", "a.b.C",
                         " ", "\t", "9", "double precision", "[]", "\u212a", "٣"])  # fmt: skip
TEXTS = st.text(max_size=20) | st.lists(WORDS, max_size=12).map("".join)
TYPE_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.dictionaries(
        st.sampled_from(["code", "array_element_type", "type_annotation", "x"]), inner
    ),
    max_leaves=8,
)


def use(assert_reportable, column_type):
    """As the producer does with every type that it reads."""
    assert column_type.element is None or column_type.element.element is None
    table = TableSchema("t", (Column("id", column_type, 1, key_position=1),))
    refusals = []
    for make in (
        lambda: avro_type(column_type),
        lambda: converter(column_type),
        lambda: key_schema("p.t", table),
        lambda: value_schema("p.t", table),
    ):
        try:
            make()
        except SchemaError as error:
            assert_reportable(error)
            refusals.append(error)
    # A type has a place in all of them, or in none.
    assert len(refusals) in (0, 4)


@pytest.mark.timeout(60)
@given(TEXTS)
@example("A" + " " * 20_000 + "!")
@example("ARRAY<" * 5_000)
@example("ARRAY<ARRAY<INT64>>")
@example("STRING(" + "9" * 20_000)
def test_the_catalogues_notation(assert_reportable, text):
    try:
        column_type = ColumnType.from_spanner_type(text)
    except SchemaError as error:
        assert_reportable(error)
    else:
        use(assert_reportable, column_type)


@given(st.dictionaries(st.sampled_from(["code", "array_element_type", "type_annotation"]),
                       TYPE_JSON))  # fmt: skip
@example({"code": "ARRAY", "array_element_type": {"code": "ARRAY", "array_element_type": {}}})
@example({"code": "INT64", "type_annotation": {}})
def test_a_records_notation(assert_reportable, value):
    try:
        column_type = ColumnType.from_type_json(value)
    except SchemaError as error:
        assert_reportable(error)
    else:
        use(assert_reportable, column_type)


@given(st.text(), st.lists(st.tuples(st.text(max_size=6), st.sampled_from(["INT64", "A"]))))
def test_any_names(assert_reportable, topic, columns):
    table = TableSchema(
        "t", tuple(Column(name, ColumnType(code), n, n) for n, (name, code) in enumerate(columns))
    )
    for make in (key_schema, value_schema):
        try:
            schema = make(topic, table)
        except SchemaError as error:
            assert_reportable(error)
        else:
            assert schema["namespace"].isascii()
