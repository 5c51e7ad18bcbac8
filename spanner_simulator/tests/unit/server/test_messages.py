from __future__ import annotations

from typing import get_args

import pytest
from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.core.rows.key_sets import KeyBound, KeySet, KeySpan
from spanner_simulator.core.rows.mutations import Delete
from spanner_simulator.core.values import TypeCode, ValueType
from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.server.mutation_messages import key_set, mutation
from spanner_simulator.server.type_messages import metadata_bytes, type_message, value_type_of


def test_a_delete_with_keys_ranges_and_everything() -> None:
    message = spanner.Mutation.pb()()
    keys = message.delete.key_set
    message.delete.table = "T"
    keys.keys.add().values.add(bool_value=True)
    span = keys.ranges.add()
    span.start_open.values.add(number_value=1)
    span.end_closed.SetInParent()
    keys.all_ = True
    assert mutation(message) == Delete(
        "T",
        KeySet(
            ([True],),
            (KeySpan(KeyBound([1.0], inclusive=False), KeyBound([], inclusive=True)),),
            everything=True,
        ),
    )


def test_a_range_without_an_end_and_an_unknown_mutation_are_refused() -> None:
    open_ended = spanner.KeySet.pb()()
    open_ended.ranges.add().start_closed.SetInParent()
    with pytest.raises(SpannerError) as caught:
        key_set(open_ended)
    assert caught.value.code is Code.INVALID_ARGUMENT
    with pytest.raises(SpannerError, match=r"Mutation\.operation"):
        mutation(spanner.Mutation.pb()())


SCALARS = [ValueType(code) for code in get_args(TypeCode) if code != "ARRAY"]
TYPES = [
    *SCALARS,
    *(ValueType("ARRAY", one) for one in SCALARS),
    ValueType("NUMERIC", annotation="PG_NUMERIC"),
    ValueType("JSON", annotation="PG_JSONB"),
    ValueType("INT64", annotation="PG_OID"),
    ValueType("PROTO", proto_name="a.B"),
]


@pytest.mark.parametrize("value_type", TYPES, ids=str)
def test_types_round_trip(value_type: ValueType) -> None:
    assert value_type_of(type_message(value_type)) == value_type


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"code": 9, "struct_type": {"fields": [{}]}}, Code.INVALID_ARGUMENT, "Field.type"),
        ({"code": 12345}, Code.UNIMPLEMENTED, "type 12345"),
        ({"code": 8}, Code.INVALID_ARGUMENT, "array_element_type"),
        ({"code": 8, "array_element_type": {"code": 8}}, Code.INVALID_ARGUMENT, "Arrays of arrays"),
        ({"code": 2, "type_annotation": 99}, Code.INVALID_ARGUMENT, "annotation: 99"),
    ],
)
def test_types_that_nobody_knows_are_refused(fields, code: Code, words: str) -> None:
    with pytest.raises(SpannerError, match=words) as caught:
        value_type_of(spanner.Type.pb()(**fields))
    assert caught.value.code is code


def test_metadata_has_names_types_and_the_transaction() -> None:
    columns = [("a", ValueType("ARRAY", ValueType("INT64"))), ("b", ValueType("JSON"))]
    begun = spanner.Transaction.pb()(id=b"t")
    metadata = spanner.ResultSetMetadata.pb().FromString(metadata_bytes(columns, begun))
    array, json = metadata.row_type.fields
    assert metadata.transaction.id == b"t"
    assert (array.name, json.name) == ("a", "b")
    assert array.type_.array_element_type.code == spanner.TypeCode.INT64
    assert json.type_.code == spanner.TypeCode.JSON
